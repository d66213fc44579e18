// Every way to write a wrong job file, and the exact words that answer it.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/document.h"
#include "lib/job/parse.h"

namespace fusionllm::job {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The sound job, with one line (from 1) replaced; line 8 is appended.
std::string JobWithLine(int line, const std::string& text) {
  std::vector<std::string> lines = {"apiVersion: fusionllm.io/v1alpha1",
                                    "kind: FusionJob",
                                    "metadata: {name: t}",
                                    "spec:",
                                    "  model: {family: gpt2, preset: tiny}",
                                    "  data: {kind: text, path: [a]}",
                                    "  training: {steps: 5, sequenceLength: 64}"};
  if (line > 7) {
    lines.push_back(text);
  } else if (line > 0) {
    lines[line - 1] = text;
  }
  return absl::StrJoin(lines, "\n");
}

struct BadJob {
  const char* name;
  int line;
  std::string text;
  std::string error;  // whole, without the leading "job.yaml:"
};

std::ostream& operator<<(std::ostream& out, const BadJob& bad) { return out << bad.text; }

class BadJobTest : public ::testing::TestWithParam<BadJob> {};

TEST_P(BadJobTest, IsRefusedWithThisError) {
  const absl::StatusOr<FusionJob> job = ParseFusionJob(JobWithLine(GetParam().line, GetParam().text), "job.yaml");
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(job.status().message()), "job.yaml:" + GetParam().error);
}

std::string Name(const ::testing::TestParamInfo<BadJob>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Identity, BadJobTest,
    ::testing::Values(
        BadJob{"WrongKind", 2, "kind: Topology", "2: kind: must be FusionJob, got \"Topology\""},
        BadJob{"MissingKind", 2, "", "1: kind: required: FusionJob"},
        BadJob{"WrongVersion", 1, "apiVersion: fusionllm.io/v2", "1: apiVersion: must be fusionllm.io/v1alpha1, got \"fusionllm.io/v2\""},
        BadJob{"MissingVersion", 1, "", "2: apiVersion: required: fusionllm.io/v1alpha1"},
        BadJob{"MissingMetadata", 3, "", "1: metadata: required"}, BadJob{"MissingName", 3, "metadata: {}", "3: metadata.name: required"},
        BadJob{"EmptyName", 3, "metadata: {name: ''}", "3: metadata.name: must not be empty"},
        BadJob{"NullName", 3, "metadata: {name: }", "3: metadata.name: must be text, got nothing"},
        BadJob{"NameWithSlash", 3, "metadata: {name: a/b}",
               "3: metadata.name: must be at most 37 lower-case letters, digits and '-', the first a letter, the last not '-': Pods are "
               "named after it"},
        BadJob{"NameWithCapitals", 3, "metadata: {name: Job}",
               "3: metadata.name: must be at most 37 lower-case letters, digits and '-', the first a letter, the last not '-': Pods are "
               "named after it"},
        BadJob{"UnknownTopKey", 8, "sepc: 1", "8: sepc: unknown field; did you mean spec?"},
        BadJob{"MetadataAsText", 3, "metadata: t", "3: metadata: must be a mapping, got \"t\""}),
    Name);

INSTANTIATE_TEST_SUITE_P(
    Model, BadJobTest,
    ::testing::Values(
        BadJob{"NoModel", 5, "", "4: spec.model: required"},
        BadJob{"NeitherFamilyNorGraph", 5, "  model: {}", "5: spec.model: must have exactly one of family and graph"},
        BadJob{"FamilyAndGraph", 5, "  model: {family: mlp, graph: {file: g.dag}}",
               "5: spec.model: must have exactly one of family and graph"},
        BadJob{"GraphWithNothing", 5, "  model: {graph: {}}", "5: spec.model.graph: must have exactly one of file and inline"},
        BadJob{"GraphWithBoth", 5, "  model: {graph: {file: g, inline: h}}",
               "5: spec.model.graph: must have exactly one of file and inline"},
        BadJob{"GraphWithPreset", 5, "  model: {preset: tiny, graph: {file: g}}",
               "5: spec.model.preset: belongs to a family, not to a graph"},
        BadJob{"GraphWithConfig", 5, "  model: {graph: {file: g}, config: {nLayer: 2}}",
               "5: spec.model.config.nLayer: belongs to family gpt2"},
        BadJob{"UnknownFamily", 5, "  model: {family: gpt3}",
               "5: spec.model.family: must be one of gpt2, resnet, mlp, got \"gpt3\"; did you mean gpt2?"},
        BadJob{"UnknownPreset", 5, "  model: {family: gpt2, preset: larg}",
               "5: spec.model.preset: must be one of tiny, small, medium, large, xl for gpt2, got \"larg\"; did you mean large?"},
        BadJob{"PresetWithItsFamily", 5, "  model: {family: gpt2, preset: gpt2-small}",
               "5: spec.model.preset: must be one of tiny, small, medium, large, xl for gpt2, got \"gpt2-small\"; did you mean small?"},
        BadJob{"ForeignConfig", 5, "  model: {family: gpt2, config: {numClasses: 10}}",
               "5: spec.model.config.numClasses: belongs to family resnet"},
        BadJob{"HeadsDoNotDivide", 5, "  model: {family: gpt2, preset: tiny, config: {nHead: 3}}",
               "5: spec.model.config.nHead: nHead must divide nEmbd, and 128 is no multiple of 3"},
        BadJob{"BlockTooShort", 5, "  model: {family: gpt2, config: {blockSize: 32}}",
               "7: spec.training.sequenceLength: must be at most spec.model.config.blockSize, which is 32, got 64"},
        BadJob{"VocabularyBelowBytes", 5, "  model: {family: gpt2, config: {vocabSize: 255}}",
               "5: spec.model.config.vocabSize: must be at least 256 for data of kind text, whose tokens are bytes, got 255"},
        BadJob{"TooManyLayers", 5, "  model: {family: gpt2, config: {nLayer: 10001}}",
               "5: spec.model.config.nLayer: must be at most 10000, got 10001"},
        BadJob{"TooManyParameters", 5, "  model: {family: gpt2, config: {nLayer: 10000, nEmbd: 1048576, nHead: 16}}",
               "5: spec.model: has more than 10^12 parameters, the limit"},
        BadJob{"TextForANumber", 5, "  model: {family: gpt2, config: {nLayer: six}}",
               "5: spec.model.config.nLayer: must be a whole number, got \"six\""},
        BadJob{"TextForADivisor", 5, "  model: {family: gpt2, config: {nHead: six}}",
               "5: spec.model.config.nHead: must be a whole number, got \"six\""},
        BadJob{"NoHeads", 5, "  model: {family: gpt2, config: {nHead: 0}}", "5: spec.model.config.nHead: must be at least 1, got 0"},
        BadJob{"WordForABool", 5, "  model: {family: gpt2, config: {tieWeights: yep}}",
               "5: spec.model.config.tieWeights: must be true or false, got \"yep\""},
        BadJob{"ImagesForGpt", 6, "  data: {kind: cifar10, path: [a]}",
               "6: spec.data.kind: family gpt2 trains on text or tokens, got cifar10"},
        BadJob{"TextForResnet", 5, "  model: {family: resnet}",
               "6: spec.data.kind: family resnet trains on images (cifar10, idx, shapes), got text"}),
    Name);

INSTANTIATE_TEST_SUITE_P(
    Data, BadJobTest,
    ::testing::Values(
        BadJob{"NoData", 6, "", "4: spec.data: required"},
        BadJob{"NoPath", 6, "  data: {kind: text}", "6: spec.data.path: required for data of kind text"},
        BadJob{"EmptyPath", 6, "  data: {kind: text, path: ['']}", "6: spec.data.path[0]: must not be empty"},
        BadJob{"UnknownKind", 6, "  data: {kind: token, path: [a]}",
               "6: spec.data.kind: must be one of text, tokens, cifar10, idx, shapes, got \"token\"; did you mean tokens?"},
        BadJob{"PathAsMapping", 6, "  data: {path: {a: b}}", "6: spec.data.path: must be a list, got a mapping"},
        BadJob{"TokenDtypeForText", 6, "  data: {path: [a], tokenDtype: uint32}",
               "6: spec.data.tokenDtype: belongs to data of kind tokens"},
        BadJob{"ShapesForText", 6, "  data: {path: [a], shapes: {samples: 1}}", "6: spec.data.shapes: belongs to data of kind shapes"},
        BadJob{"ValidationWithBoth", 6, "  data: {path: [a], validation: {path: [b], fraction: 0.5}}",
               "6: spec.data.validation: must have exactly one of path and fraction"},
        BadJob{"ValidationWithNeither", 6, "  data: {path: [a], validation: {}}",
               "6: spec.data.validation: must have exactly one of path and fraction"},
        BadJob{"FractionOfAll", 6, "  data: {path: [a], validation: {fraction: 1}}",
               "6: spec.data.validation.fraction: must be below 1, got 1"},
        BadJob{"FractionOfNothing", 6, "  data: {path: [a], validation: {fraction: 0}}",
               "6: spec.data.validation.fraction: must be above 0, got 0; to hold nothing out write spec.data.validation: null"},
        BadJob{"VolumeAsText", 6, "  data: {path: [a], volume: disk}", "6: spec.data.volume: must be a mapping, got \"disk\""}),
    Name);

INSTANTIATE_TEST_SUITE_P(
    Training, BadJobTest,
    ::testing::Values(
        BadJob{"NegativeSteps", 7, "  training: {steps: -3}", "7: spec.training.steps: must be at least 0, got -3"},
        BadJob{"MisspeltSteps", 7, "  training: {stpes: 3}", "7: spec.training.stpes: unknown field; did you mean steps?"},
        BadJob{"SnakeCase", 7, "  training: {global_batch_size: 3}",
               "7: spec.training.global_batch_size: unknown field; did you mean globalBatchSize?"},
        BadJob{"NoBlankBehindTheColon", 7, "  training: {steps:5}",
               "7: spec.training.\"steps:5\": unknown field; a blank is missing behind ':', as in steps: 5"},
        BadJob{"NothingLikeIt", 7, "  training: {colour: 3}", "7: spec.training.colour: unknown field"},
        BadJob{"FractionalSteps", 7, "  training: {steps: 1.5}", "7: spec.training.steps: must be a whole number, got 1.5"},
        BadJob{"QuotedSteps", 7, "  training: {steps: \"5\"}", "7: spec.training.steps: must be a whole number, got \"5\""},
        BadJob{"NullSteps", 7, "  training: {steps: }", "7: spec.training.steps: must be a whole number, got nothing"},
        BadJob{"StepsAsList", 7, "  training: {steps: [1]}", "7: spec.training.steps: must be a whole number, got a list"},
        BadJob{"HugeSteps", 7, "  training: {steps: 99999999999999999999999999999999}",
               "7: spec.training.steps: must be at most 1000000000, got 99999999999999999999999999999999"},
        BadJob{"DuplicateSteps", 7, "  training:\n    steps: 1\n    seed: 2\n    steps: 3",
               "10: spec.training.steps: duplicate key, first given on line 8"},
        BadJob{"IndivisibleBatch", 7, "  training: {globalBatchSize: 10, microBatchSize: 4}",
               "7: spec.training.microBatchSize: must divide globalBatchSize, and 10 is no multiple of 4"},
        BadJob{"MicroBatchOfZero", 7, "  training: {microBatchSize: 0}", "7: spec.training.microBatchSize: must be at least 1, got 0"},
        BadJob{"MicroBatchAsWord", 7, "  training: {microBatchSize: automatic}",
               "7: spec.training.microBatchSize: must be a whole number or auto, got \"automatic\""},
        BadJob{"NanLearningRate", 7, "  training: {optimizer: {learningRate: .nan}}",
               "7: spec.training.optimizer.learningRate: must be a finite number, got .nan"},
        BadJob{"InfiniteLearningRate", 7, "  training: {optimizer: {learningRate: -.inf}}",
               "7: spec.training.optimizer.learningRate: must be a finite number, got -.inf"},
        BadJob{"VanishingLearningRate", 7, "  training: {optimizer: {learningRate: 1.0e-400}}",
               "7: spec.training.optimizer.learningRate: must be 0 or a number that differs from 0, got 1.0e-400"},
        BadJob{"LearningRateThatFp32TakesFor0", 7, "  training: {optimizer: {learningRate: 1.0e-50}}",
               "7: spec.training.optimizer.learningRate: must be 0 or a number that differs from 0 in fp32, got 1.0e-50"},
        BadJob{"ClipNormThatFp32TakesFor0", 7, "  training: {gradientClipNorm: 1.0e-46}",
               "7: spec.training.gradientClipNorm: must be 0 or a number that differs from 0 in fp32, got 1.0e-46"},
        BadJob{"OverflowingLearningRate", 7, "  training: {optimizer: {learningRate: 1e999}}",
               "7: spec.training.optimizer.learningRate: must be a finite number, got \"1e999\""},
        BadJob{"LearningRateAsWord", 7, "  training: {optimizer: {learningRate: high}}",
               "7: spec.training.optimizer.learningRate: must be a number, got \"high\""},
        BadJob{"BetaOfOne", 7, "  training: {optimizer: {beta1: 1.0}}", "7: spec.training.optimizer.beta1: must be below 1, got 1.0"},
        BadJob{"MomentumForAdamw", 7, "  training: {optimizer: {name: adamw, momentum: 0.9}}",
               "7: spec.training.optimizer.momentum: belongs to optimizer sgd"},
        BadJob{"BetaForSgd", 7, "  training: {optimizer: {name: sgd, beta1: 0.9}}",
               "7: spec.training.optimizer.beta1: belongs to optimizer adamw"},
        BadJob{"NesterovWithoutMomentum", 7, "  training: {optimizer: {name: sgd, nesterov: true}}",
               "7: spec.training.optimizer.nesterov: needs momentum above 0"},
        BadJob{"FloorAbovePeak", 7, "  training: {optimizer: {learningRate: 0.1}, schedule: {minLearningRate: 0.2}}",
               "7: spec.training.schedule.minLearningRate: must be at most spec.training.optimizer.learningRate"},
        BadJob{"EvaluationOnNothing", 7, "  training: {evaluation: {everySteps: 5}}",
               "7: spec.training.evaluation.everySteps: needs spec.data.validation: there is nothing to evaluate on; `validation: "
               "{fraction: 0.05}` holds out a 20th"},
        BadJob{"UnknownPrecision", 7, "  training: {precision: fp16}",
               "7: spec.training.precision: must be one of fp32, bf16, got \"fp16\"; fp16 is a codec of links: spec.compression.codec"}),
    Name);

INSTANTIATE_TEST_SUITE_P(
    TheRest, BadJobTest,
    ::testing::Values(
        BadJob{"UnknownPlanner", 8, "  strategy: {planner: opfense}",
               "8: spec.strategy.planner: must be one of op-fence, equal-ops, equal-compute, dt-fm, exact, got \"opfense\"; did you mean "
               "op-fence?"},
        BadJob{"NegativeReplicas", 8, "  strategy: {replicas: -1}", "8: spec.strategy.replicas: must be auto (0) or at least 1, got -1"},
        BadJob{"MoreInFlightThanAPlannerTakes", 8, "  strategy: {inFlight: 4097}",
               "8: spec.strategy.inFlight: must be at most 4096, got 4097"},
        BadJob{"PinWithoutDevice", 8, "  strategy: {pins: [{ops: a}, {ops: b, device: d}]}", "8: spec.strategy.pins[0].device: required"},
        BadJob{"PinToExcluded", 8, "  strategy:\n    pins:\n    - ops: 'b.*'\n      device: d\n    exclude: [d]",
               "11: spec.strategy.pins[0].device: d is excluded by spec.strategy.exclude"},
        BadJob{"ExcludeAsText", 8, "  strategy: {exclude: lab-3}", "8: spec.strategy.exclude: must be a list, got \"lab-3\""},
        BadJob{"ResidualsOfReplicas", 8, "  strategy: {replicas: 2}\n  compression: {policy: uniform, errorFeedback: true}",
               "9: spec.compression.errorFeedback: belongs to one pipeline: of several (spec.strategy.replicas) each has residuals of its "
               "own, "
               "which no checkpoint holds"},
        BadJob{"ResidualsOfAnyNumberOfReplicas", 8, "  strategy: {replicas: auto}\n  compression: {policy: uniform, errorFeedback: true}",
               "9: spec.compression.errorFeedback: belongs to one pipeline: of several (spec.strategy.replicas) each has residuals of its "
               "own, "
               "which no checkpoint holds"},
        BadJob{"RatioBelowOne", 8, "  compression: {ratio: 0.5}", "8: spec.compression.ratio: must be at least 1, got 0.5"},
        BadJob{"UnknownCodec", 8, "  compression: {codec: zip}",
               "8: spec.compression.codec: must be one of auto, topk, int8, int4, fp16, bf16, fp32, got \"zip\""},
        BadJob{"NegativeKeep", 8, "  checkpoint: {keep: -1}", "8: spec.checkpoint.keep: must be at least 0, got -1"},
        BadJob{"MaxBelowMin", 8, "  executors: {min: 4, max: 2}", "8: spec.executors.max: must be at least min, which is 4, got 2"},
        BadJob{"ReplicasBelowMin", 8, "  executors: {replicas: 1, min: 2}",
               "8: spec.executors.replicas: must be at least min, which is 2, got 1"},
        BadJob{"ReplicasAboveMax", 8, "  executors: {replicas: 5, max: 4}",
               "8: spec.executors.replicas: must be at most max, which is 4, got 5"},
        BadJob{"SparesBeyondAllExecutors", 8, "  executors: {replicas: 9999, spares: 2}",
               "8: spec.executors.spares: must leave room for the others: 9999 and 2 spares are more than 10000"},
        BadJob{"SparesBeyondMax", 8, "  executors: {max: 10000, spares: 1}",
               "8: spec.executors.spares: must leave room for the others: 10000 and 1 spares are more than 10000"},
        BadJob{"ClustersAskForMoreThanReplicas", 8,
               "  executors: {replicas: 4}\n  placement: {clusters: [{name: a, min: 3}, {name: b, min: 2}]}",
               "9: spec.placement.clusters: the clusters ask for 5 executors, by their min, and spec.executors.replicas allows 4"},
        BadJob{"MemoryInDecimal", 8, "  placement: {minMemory: 2GB}",
               "8: spec.placement.minMemory: \"2GB\" is no size: write a number and Ki, Mi, Gi or Ti (bytes), as in 2Gi"},
        BadJob{"UnknownFailureAction", 8, "  failurePolicy: {rules: [{name: a, action: restartJob}]}",
               "8: spec.failurePolicy.rules[0].action: must be one of FailJob, RestartJob, RestartJobAndIgnoreMaxRestarts, "
               "RestartExecutor, Ignore, ReplaceCluster, got \"restartJob\"; did you mean RestartJob?"},
        BadJob{"FailureRuleTwice", 8, "  failurePolicy: {rules: [{name: a, action: Ignore}, {name: a, action: FailJob}]}",
               "8: spec.failurePolicy.rules[1].name: a is given twice"},
        BadJob{"ExitCodeOfSuccess", 8, "  failurePolicy: {rules: [{name: a, action: Ignore, onExitCodes: [0]}]}",
               "8: spec.failurePolicy.rules[0].onExitCodes[0]: must be at least 1, got 0"},
        BadJob{"ClusterTwice", 8, "  placement: {clusters: [{name: a}, {name: a}]}",
               "8: spec.placement.clusters[1].name: a is given twice"},
        BadJob{"SuspendAsNumber", 8, "  suspend: 1", "8: spec.suspend: must be true or false, got 1"},
        BadJob{"StrangeKey", 8, "  \"a.b\\n\": 1", "8: spec.\"a.b\\n\": unknown field"},
        BadJob{"KeyAsList", 8, "  [a]: 1", "8: a key must be text"},
        BadJob{"Tag", 8, "  suspend: !!bool true", "8: YAML tags other than !!str are not supported"},
        BadJob{"ControlCharacter", 8, "  suspend: \x04", "8: control character 4 at byte 200"},
        BadJob{"SecondDocument", 8, "---\na: b", "9: a second document: one file holds one document"}),
    Name);

INSTANTIATE_TEST_SUITE_P(
    ObjectStores, BadJobTest,
    ::testing::Values(
        BadJob{"AnotherScheme", 6, "  data: {kind: text, path: [a, gs://models/a]}",
               "6: spec.data.path: 'gs://models/a' is no URI of an object store that is known: those begin with s3://"},
        BadJob{"NoBucket", 8, "  checkpoint: {path: s3://Runs/a}",
               "8: spec.checkpoint.path: 's3://Runs/a' names no bucket: that has 3 to 63 lower-case letters, digits, '-' and '.', with a "
               "letter or digit at both ends"},
        BadJob{
            "LeavesThePrefix", 8, "  checkpoint: {path: a, replica: {path: s3://runs/a/../b}}",
            "8: spec.checkpoint.replica.path: 's3://runs/a/../b' names no object: between the slashes of its key, of 1024 bytes at most, "
            "there is something, and neither . nor .."},
        BadJob{"VolumeOfAUri", 8, "  checkpoint: {path: s3://runs/a, volume: {emptyDir: {}}}",
               "8: spec.checkpoint.volume: belongs to a path that is a folder, not to a URI"},
        BadJob{"ReplicaInTheSamePlace", 8, "  checkpoint: {path: s3://runs/a, replica: {path: s3://runs/a/}}",
               "8: spec.checkpoint.replica.path: must be another place than spec.checkpoint.path"},
        BadJob{"GraphInAStore", 5, "  model: {graph: {file: s3://runs/a.dag}}",
               "5: spec.model.graph.file: must be a file: a graph is not read from an object store"}),
    [](const auto& info) { return info.param.name; });

TEST(JobErrorsTest, TheSoundJobIsSound) {
  const absl::StatusOr<FusionJob> job = ParseFusionJob(JobWithLine(0, ""), "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.training.steps, 5);
}

std::string ErrorOf(const std::string& yaml, std::vector<std::string> overrides = {}) {
  return std::string(ParseFusionJob(yaml, "job.yaml", overrides).status().message());
}

TEST(JobErrorsTest, DocumentsThatCannotBeReadAtAllSayWhy) {
  EXPECT_EQ(ErrorOf(""), "job.yaml:1: the document is empty");
  EXPECT_EQ(ErrorOf("# nothing\n"), "job.yaml:1: the document is empty");
  EXPECT_EQ(ErrorOf("- a\n"), "job.yaml:1: the document must be a mapping, got a list");
  EXPECT_EQ(ErrorOf("a: b\nc: \xC3("), "job.yaml:2: not UTF-8 at byte 8");
  EXPECT_EQ(ErrorOf(std::string("a: b\0c", 6)), "job.yaml:1: control character 0 at byte 4");
  EXPECT_THAT(ErrorOf("a: b\nc: [d\n"), StartsWith("job.yaml:3: not YAML: "));
  for (const char* tab : {"a:\n\tb: c\n", "a:\n  b:\n\tc: d\n", "a:\n  b: c\n\td: e\n"}) {
    EXPECT_THAT(ErrorOf(tab), ::testing::EndsWith(": not YAML: a tab indents this line, and YAML takes spaces alone")) << tab;
  }
  EXPECT_THAT(ErrorOf("a: *b\n"), StartsWith("job.yaml:1: not YAML: "));
  EXPECT_EQ(ErrorOf("a: &b [*b]\n"), "job.yaml:1: an alias must not stand inside what it refers to");
  EXPECT_EQ(ErrorOf(std::string((1 << 20) + 1, ' ')), "job.yaml:1: the document has 1048577 bytes, more than the limit of 1048576");
  EXPECT_EQ(ErrorOf(std::string(100, '[') + std::string(100, ']')), "job.yaml:1: nested more than 64 levels deep");
  EXPECT_THAT(ErrorOf(std::string(1 << 19, '[')), HasSubstr("nested more than 64 levels deep"));
}

// Unless it is named, a line with one looks sound.
TEST(JobErrorsTest, NamesInvisibleCharacters) {
  const struct {
    int line;
    const char* text;
    const char* named;
  } cases[] = {
      {7, "  training: {steps:\u00A05}", "7: the character U+00A0 (no-break space), which"},
      {7, "  training: {steps: 5\u200B}", "7: the character U+200B (zero-width space), which"},
      {7, "  training:\n    steps:\u00A05\n    sequenceLength: 64", "8: not YAML: the character U+00A0 (no-break space), which"},
      {7, "  training:\n    steps: \u00A05\n    sequenceLength: 64", "8: the character U+00A0 (no-break space), which"},
      {7, "  training:\n\u00A0   steps: 5\n", "8: the character U+00A0 (no-break space), which"},
      {7, "  training:\n    steps: 5\n\u00A0   sequenceLength: 64", "9: the character U+00A0 (no-break space), which"},
      {7, "  train\u200Bing: {steps: 5}", "7: the character U+200B (zero-width space), which"},
      {6, "  data: {kind: text, path: [a\u202F]}", "6: the character U+202F (narrow no-break space), which"},
      {6, "  data: {kind: text, path: one\n    two\n    thr\u2009ee}", "8: the character U+2009 (typographic space), which"},
      {2, "kind: FusionJob\u3000", "2: the character U+3000 (ideographic space), which"},
      {2, "kind: Fusion\uFEFFJob", "2: the character U+FEFF (byte order mark) at byte 46, which"},
      {2, "kind: \"Fusion\u200BJob\"", "2: kind: must be FusionJob, got \"Fusion\\u200bJob\""},
  };
  for (const auto& bad : cases) {
    EXPECT_THAT(ErrorOf(JobWithLine(bad.line, bad.text)), StartsWith(absl::StrCat("job.yaml:", bad.named))) << bad.text;
  }
  EXPECT_THAT(ErrorOf(JobWithLine(0, ""), {"spec.data.kind=text\u200B"}),
              StartsWith("--set spec.data.kind: the character U+200B (zero-width space), which"));
}

TEST(JobErrorsTest, AllowsInvisibleCharactersInQuotesBlocksAndComments) {
  const char* const data =
      "  data: # of\u00A0one\n    kind: text\n    path: [\"a\u00A0b\", 'c\u200Bd']\n    volume:\n      x: |\n        e\u2009f\n";
  const absl::StatusOr<FusionJob> job = ParseFusionJob(JobWithLine(6, data), "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.data.path, (std::vector<std::string>{"a\u00A0b", "c\u200Bd"}));
  EXPECT_THAT(ToYaml(*job), HasSubstr("\"a\\u00a0b\", \"c\\u200bd\""));
  EXPECT_THAT(ErrorOf("a: \"b\u00A0c\" # \u00A0\nd: [e\n"), ::testing::Not(HasSubstr("U+00A0")));
}

TEST(JobErrorsTest, AnAliasBombIsRefusedBeforeItIsExpanded) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 20; ++i) {
    const std::string alias = absl::StrCat("*a", i - 1);
    absl::StrAppend(&bomb, "a", i, ": &a", i, " [", absl::StrJoin(std::vector<std::string>(10, alias), ", "), "]\n");
  }
  EXPECT_EQ(ErrorOf(bomb), "job.yaml:5: the document has more than 100000 values (aliases are counted expanded)");
}

TEST(JobErrorsTest, AliasesWithinTheLimitsWork) {
  const absl::StatusOr<FusionJob> job =
      ParseFusionJob(JobWithLine(6, "  data: {path: &files [a, b], validation: {path: *files}}"), "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.data.validation->path, job->spec.data.path);
}

TEST(JobErrorsTest, AllFindingsAreReportedInTheOrderOfTheFile) {
  EXPECT_EQ(ErrorOf(JobWithLine(7, "  training:\n    steps: -1\n    microBatchSize: 5\n    seed: x\n  executors: {min: 3, max: 2}")),
            "job.yaml:8: spec.training.steps: must be at least 0, got -1\n"
            "job.yaml:9: spec.training.microBatchSize: must divide globalBatchSize, and 32 is no multiple of 5\n"
            "job.yaml:10: spec.training.seed: must be a whole number, got \"x\"\n"
            "job.yaml:11: spec.executors.max: must be at least min, which is 3, got 2");
}

TEST(JobErrorsTest, AFieldThatCannotBeReadIsNotBlamedTwice) {
  EXPECT_EQ(ErrorOf(JobWithLine(7, "  training: {globalBatchSize: lots, microBatchSize: 5}")),
            "job.yaml:7: spec.training.globalBatchSize: must be a whole number, got \"lots\"");
}

TEST(JobErrorsTest, AtMostTwentyFindingsArePrintedAndTheRestCounted) {
  std::string text;
  for (int i = 0; i < 50; ++i) absl::StrAppend(&text, "  nonsense", i, ": 1\n");
  const std::vector<std::string> lines = absl::StrSplit(ErrorOf(JobWithLine(8, text)), '\n');
  ASSERT_EQ(lines.size(), 21u);
  EXPECT_EQ(lines[0], "job.yaml:8: spec.nonsense0: unknown field");
  EXPECT_EQ(lines[20], "job.yaml: and 30 more");
}

TEST(JobErrorsTest, LongValuesAreCutInMessages) {
  const std::string error = ErrorOf(JobWithLine(8, "  suspend: " + std::string(100000, 'x')));
  EXPECT_EQ(error, "job.yaml:8: spec.suspend: must be true or false, got \"" + std::string(40, 'x') + "...\"");
}

TEST(JobOverridesTest, ReplaceAddAndReachIntoLists) {
  const std::string yaml = JobWithLine(8, "  strategy: {pins: [{ops: a, device: d}]}");
  const std::vector<std::string> overrides = {
      "spec.training.steps=50", "spec.training.optimizer.learningRate=3e-4", "spec.strategy.pins[0].device=lab-1",
      "spec.data.path=[x, z]",  "spec.checkpoint={everySteps: 7}",           "spec.model.config.nLayer=2"};
  const absl::StatusOr<FusionJob> job = ParseFusionJob(yaml, "job.yaml", overrides);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.training.steps, 50);
  EXPECT_EQ(job->spec.training.optimizer.learning_rate, 3e-4);
  EXPECT_EQ(job->spec.strategy.pins[0].device, "lab-1");
  EXPECT_EQ(job->spec.data.path, (std::vector<std::string>{"x", "z"}));
  EXPECT_EQ(job->spec.checkpoint->every_steps, 7);
  EXPECT_EQ(job->spec.model.config.n_layer, 2);
}

TEST(JobOverridesTest, ErrorsNameTheOption) {
  const std::string yaml = JobWithLine(0, "");
  EXPECT_EQ(ErrorOf(yaml, {"spec.training.steps=-3"}), "--set spec.training.steps: must be at least 0, got -3");
  EXPECT_EQ(ErrorOf(yaml, {"spec.trainig.steps=3"}), "--set spec.trainig.steps: spec.trainig: unknown field; did you mean training?");
  EXPECT_EQ(ErrorOf(yaml, {"spec.training={steps: -3}"}), "--set spec.training: spec.training.steps: must be at least 0, got -3");
  EXPECT_EQ(ErrorOf(yaml, {"spec.training={steps: 3, steps: 4}"}),
            "--set spec.training: spec.training.steps: duplicate key, first given on line 1");
  EXPECT_EQ(ErrorOf(yaml, {"spec.training.microBatchSize=3"}),
            "--set spec.training.microBatchSize: must divide globalBatchSize, and 32 is no multiple of 3");
  EXPECT_EQ(ErrorOf(yaml, {"spec.training.steps"}), "--set spec.training.steps: write FIELD=VALUE, as in spec.training.steps=50");
  EXPECT_EQ(ErrorOf(yaml, {"=5"}), "--set : write FIELD=VALUE, as in spec.training.steps=50");
  EXPECT_EQ(ErrorOf(yaml, {"spec.strategy.pins[3].ops=a"}), "--set spec.strategy.pins[3].ops: spec.strategy.pins[3]. does not exist");
  EXPECT_EQ(ErrorOf(yaml, {"metadata.name.x=a"}), "--set metadata.name.x: metadata.name.x does not exist: what holds it is no mapping");
  EXPECT_THAT(ErrorOf(yaml, {"spec.training.steps=[1"}), StartsWith("--set spec.training.steps: not YAML: "));
  EXPECT_THAT(ErrorOf(yaml, {"spec..x=1"}), StartsWith("--set spec..x: "));
  EXPECT_EQ(ErrorOf(yaml, {"kind=Topology"}), "--set kind: must be FusionJob, got \"Topology\"");
  std::string deep = "spec";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  EXPECT_THAT(ErrorOf(yaml, {deep + "=1"}), HasSubstr("the path is too deep"));
}

TEST(JobOverridesTest, NothingBehindTheEqualsSignTakesAnOptionalFieldAway) {
  const std::string yaml = JobWithLine(8, "  checkpoint: {}");
  ASSERT_TRUE(ParseFusionJob(yaml, "job.yaml")->spec.checkpoint.has_value());
  const std::vector<std::string> overrides = {"spec.checkpoint="};
  EXPECT_FALSE(ParseFusionJob(yaml, "job.yaml", overrides)->spec.checkpoint.has_value());
}

// yaml-cpp tells one empty document after the other of these.
TEST(JobErrorsTest, ATokenThatBeginsNoDocumentEndsTheReading) {
  for (const char* text : {"}", "]", "a: b\n}", "---\n]\n", "{}\n}\n}\n", ",", "a: {}\n---\n]"}) {
    const absl::Status status = ParseFusionJob(text, "job.yaml").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text << ": " << status;
  }
}

TEST(JobDefaultsTest, OmittedMeansWhatTheReferenceSays) {
  const absl::StatusOr<FusionJob> job = ParseFusionJob(JobWithLine(0, ""), "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.compression.policy, CompressionPolicy::kNone);
  EXPECT_FALSE(job->spec.data.validation.has_value());
  EXPECT_FALSE(job->spec.checkpoint.has_value());
  EXPECT_EQ(job->spec.training.evaluation.every_steps, 0);
  EXPECT_EQ(job->spec.training.micro_batch_size, 0);
  EXPECT_EQ(job->spec.executors.min, 1);
  EXPECT_FALSE(job->spec.executors.max.has_value());
  const std::vector<std::string> sgd = {"spec.training.optimizer.name=sgd"};
  EXPECT_EQ(ParseFusionJob(JobWithLine(0, ""), "job.yaml", sgd)->spec.training.optimizer.weight_decay, 0);
}

TEST(JobDefaultsTest, FreeShapesAreKeptAsJson) {
  const absl::StatusOr<FusionJob> job = ParseFusionJob(
      JobWithLine(
          8, "  executors: {template: {spec: {nodeSelector: {zone: 'true', disk: ssd, 'n': '007', off: 0x10}, gpus: [1, 2.5, true, ~]}}}"),
      "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.executors.pod_template.json,
            R"({"spec": {"nodeSelector": {"zone": "true", "disk": "ssd", "n": "007", "false": 16}, "gpus": [1, 2.5, true, null]}})");
}

}  // namespace
}  // namespace fusionllm::job
