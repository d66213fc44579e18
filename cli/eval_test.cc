// fusionctl eval: which windows are read, and what cannot be evaluated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/testing/fusionctl_test.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/job/parse.h"
#include "lib/workload/workload.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class EvalTest : public FusionctlTest {};

// Id 0 is padding: targets of it do not count.
constexpr char kPaddedModel[] =
    "graph \"lm\" {\n"
    "  tokens = placeholder() {role=\"tokens\", dtype=\"i32\", shape=[b, 8]}\n"
    "  next = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b, 8]}\n"
    "  embed = embedding(tokens) {vocab=50, dim=8}\n"
    "  logits = linear(embed) {out=50}\n"
    "  loss = cross_entropy(logits, next) {ignore_index=0}\n"
    "  return loss\n}\n";

// The lines of one type, in order, that a run with --format json wrote.
std::vector<json> LinesOfType(const std::string& events, const std::string& type) {
  std::vector<json> lines;
  for (const absl::string_view line : absl::StrSplit(events, '\n', absl::SkipEmpty())) {
    const json event = json::parse(line, nullptr, false);
    if (event.is_object() && event.value("type", "") == type) lines.push_back(event);
  }
  return lines;
}

// Of the last evaluation of a run whose events these are; NaN: there is none.
double EvaluatedLoss(const std::string& events) {
  const std::vector<json> evaluations = LinesOfType(events, "eval");
  return evaluations.empty() ? std::nan("") : evaluations.back()["loss"].get<double>();
}

// 13 windows of eight tokens with very unlike numbers of targets that count; some have none.
std::string PaddedTokens() {
  std::string padded;
  for (int i = 0; i < 13 * 8 + 1; ++i) {
    const int window = i / 8;
    const bool padding = window % 5 == 4 || (window % 3 == 1 && i % 8 > 1);
    padded += {static_cast<char>(padding ? 0 : 1 + (i * i + 3 * i) % 49), '\0'};
  }
  return padded;
}

// With all parameters zero every byte is equally likely: the loss is log 256, whatever the text.
TEST_F(EvalTest, EvalReadsEveryWindowOfTheFileOnce) {
  const auto job = job::ParseFusionJob(kJob, "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  const auto graph = workload::BuildForwardGraph(*job, "");
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<tensor::Tensor> zeros;
  std::vector<checkpoint::NamedTensor> tensors;
  for (const opdag::Parameter& parameter : graph->parameters()) zeros.emplace_back(parameter.type);
  for (size_t i = 0; i < zeros.size(); ++i) tensors.push_back({.name = graph->parameters()[i].name, .view = zeros[i].view()});
  ASSERT_TRUE(checkpoint::WriteSafetensors(Path("model.safetensors"), tensors).ok());
  Write("text.txt", std::string(11 * 16 + 5, 'x'));  // eleven windows of sixteen: a batch of eight and a rest

  const Outcome outcome = Run("--format json eval model.safetensors --job job.yaml --data text.txt");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report["windows"], 11);
  EXPECT_EQ(report["tokens"], 176);
  EXPECT_NEAR(report["loss"].get<double>(), std::log(256.0), 1e-5);
  EXPECT_EQ(json::parse(Run("--format json eval model.safetensors --job job.yaml --data text.txt --sequence-length 8").out)["windows"], 22);

  EXPECT_EQ(Run("eval model.safetensors --data text.txt").code, 2) << "no job";
  EXPECT_EQ(Run("eval model.safetensors --job job.yaml --data text.txt --sequence-length 64").code, 2) << "more than the positions";
  tensors.pop_back();
  ASSERT_TRUE(checkpoint::WriteSafetensors(Path("less.safetensors"), tensors).ok());
  const Outcome lacking = Run("eval less.safetensors --job job.yaml --data text.txt");
  EXPECT_EQ(lacking.code, 2);
  EXPECT_EQ(lacking.err, "fusionctl: less.safetensors: it has no tensor '" + graph->parameters().back().name + "'\n");
  EXPECT_THAT(Run("eval less.safetensors --job job.yaml --data text.txt --threads 1025").err, HasSubstr("--threads"));
  EXPECT_THAT(Run("eval less.safetensors --job job.yaml --data text.txt --threads 1024").err, HasSubstr("has no tensor"));
}

// Ids that differ from file to file, so that a loss tells which were read; 16 bits each.
std::string Tokens(int count, int step) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>((7 + i * step + i * i % 5) % 256);
    bytes += '\0';
  }
  return bytes;
}

TEST_F(EvalTest, EvalOfAFolderReadsItsTestFilesOnce) {
  const auto graph = workload::BuildForwardGraph(*job::ParseFusionJob(kJob, "job.yaml"), "");
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<tensor::Tensor> values;
  std::vector<checkpoint::NamedTensor> tensors;
  for (const opdag::Parameter& parameter : graph->parameters()) {
    tensor::Tensor& value = values.emplace_back(parameter.type);
    for (int64_t i = 0; i < parameter.type.elements(); ++i) value.f32()[i] = 0.2F * std::sin(static_cast<float>(3 * i + 1));
  }
  for (size_t i = 0; i < values.size(); ++i) tensors.push_back({.name = graph->parameters()[i].name, .view = values[i].view()});
  ASSERT_TRUE(checkpoint::WriteSafetensors(Path("model.safetensors"), tensors).ok());
  const auto eval = [&](const std::string& data) {
    return Run("--format json eval model.safetensors --job job.yaml --set spec.data.kind=tokens --set spec.data.tokenDtype=uint16 --data " +
               data);
  };
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    Write(name, bytes);
  };
  write("both/train.bin", Tokens(11 * 16 + 1, 3));
  write("both/val_0.bin", Tokens(3 * 16 + 1, 5));
  write("both/more/test_1.bin", Tokens(2 * 16 + 1, 11));
  const Outcome folder = eval("both");
  ASSERT_EQ(folder.code, 0) << folder.err;
  const json all = json::parse(folder.out);
  EXPECT_EQ(all["windows"], 5) << "each once";
  EXPECT_EQ(all["tokens"], 5 * 16);
  // As one text, in the order of their paths; the losses tell which were read.
  write("whole.bin", Tokens(2 * 16 + 1, 11) + Tokens(3 * 16 + 1, 5));
  write("twice.bin", Tokens(2 * 16 + 1, 11) + Tokens(2 * 16 + 1, 11));
  EXPECT_NEAR(all["loss"].get<double>(), json::parse(eval("whole.bin").out)["loss"].get<double>(), 1e-6);
  EXPECT_GT(std::abs(all["loss"].get<double>() - json::parse(eval("twice.bin").out)["loss"].get<double>()), 1e-3);

  write("training/train.bin", Tokens(11 * 16 + 1, 3));
  const Outcome none = eval("training");
  EXPECT_EQ(none.code, 2) << none.out;
  EXPECT_THAT(none.err, AllOf(HasSubstr("training holds files for training (train.bin) and none to test on"), HasSubstr("by their paths")));
  EXPECT_EQ(json::parse(eval("training/train.bin").out)["windows"], 11) << "what is named is read";

  std::filesystem::create_directories(Path("empty"));
  const Outcome empty = eval("empty");
  EXPECT_EQ(empty.code, 2) << empty.out;
  EXPECT_THAT(empty.err, HasSubstr("empty"));
}

TEST_F(EvalTest, EvalOfGeneratedDataTakesNoFile) {
  constexpr char kShapes[] =
      "apiVersion: fusionllm.io/v1alpha1\n"
      "kind: FusionJob\n"
      "metadata: {name: shapes}\n"
      "spec:\n"
      "  model: {family: mlp, config: {layers: [192, 4]}}\n"
      "  data: {kind: shapes, shapes: {samples: 11, imageSize: 8, numClasses: 4}}\n"
      "  training: {steps: 0, globalBatchSize: 1}\n"
      "  checkpoint: {path: checkpoints}\n";
  Write("shapes.yaml", kShapes);
  Write("text.bin", std::string(400, 'x'));
  const Outcome run = Run("run shapes.yaml --output out");
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string checkpoint = "out/checkpoints/latest";
  const Outcome refused = Run("eval " + checkpoint + " --data text.bin");
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--data text.bin"), HasSubstr("generated"), HasSubstr("spec.data.kind: shapes")));
  const Outcome windows = Run("eval " + checkpoint + " --sequence-length 16");
  EXPECT_EQ(windows.code, 2) << windows.out;
  EXPECT_THAT(windows.err, AllOf(HasSubstr("--sequence-length 16"), HasSubstr("of kind shapes")));
  const Outcome too_long =
      Run("eval " + checkpoint + " --job job.yaml --data text.bin --sequence-length 4096 --set spec.model.config.blockSize=64");
  EXPECT_EQ(too_long.code, 2);
  EXPECT_THAT(too_long.err, HasSubstr("--sequence-length 4096: "));
  const Outcome whole = Run("--format json eval " + checkpoint);
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(json::parse(whole.out)["windows"], 11);
  for (const char* folder : {"out", "out/", "out/checkpoints"}) {
    EXPECT_EQ(Run(absl::StrCat("--format json eval ", folder)).out, whole.out) << "a run's folder stands for its newest checkpoint";
  }
  const Outcome held_out = Run("--format json eval " + checkpoint + " --set 'spec.data.validation={fraction: 0.3}'");
  ASSERT_EQ(held_out.code, 0) << held_out.err;
  EXPECT_EQ(json::parse(held_out.out)["windows"], 3);

  const Outcome no_file = Run("eval " + checkpoint + " --job job.yaml");
  EXPECT_EQ(no_file.code, 2);
  EXPECT_THAT(no_file.err, HasSubstr("--data is required"));
}

TEST_F(EvalTest, WhereNoTargetCountsThereIsNoLossNeitherInARunNorByEval) {
  Write("lm.dag", kPaddedModel);
  Write("padding.u16", std::string(2 * 97, '\0'));
  std::string full;
  for (int i = 0; i < 97; ++i) full += {static_cast<char>(1 + i % 49), '\0'};
  Write("full.u16", full);
  Write("lm.yaml",
        "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: lm}\nspec:\n"
        "  model: {graph: {file: lm.dag}}\n  data: {kind: tokens, path: [full.u16], validation: {path: [padding.u16]}}\n"
        "  training: {steps: 2, globalBatchSize: 4, microBatchSize: 2, sequenceLength: 8, optimizer: {name: sgd, learningRate: 0.1},\n"
        "    evaluation: {everySteps: 2}}\n  executors: {threads: 1}\n  checkpoint: {path: cp/}\n");
  const Outcome run = Run("run lm.yaml --output r");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out + run.err, AllOf(HasSubstr("validation loss none: no target counts"), ::testing::Not(HasSubstr("NoTargetCounts"))));
  const Outcome eval = Run("--format json eval r/cp/latest --data padding.u16");
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_TRUE(json::parse(eval.out)["loss"].is_null()) << eval.out;
  EXPECT_THAT(Run("eval r/cp/latest --data padding.u16").out, HasSubstr("loss none: no target counts"));

  const Outcome blind =
      Run("--format json run lm.yaml --output b --set spec.data.path=padding.u16 --set spec.data.validation.path=full.u16");
  ASSERT_EQ(blind.code, 0) << blind.err;
  EXPECT_THAT(blind.out, AllOf(HasSubstr("\"loss\":null"), HasSubstr("NoTargetCounts")));
}

TEST_F(EvalTest, ARunEvaluatesTheWholeSetUnlessTheJobSaysHowManyBatches) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i * i / 7 % 26);
  Write("val.txt", text);
  Write("text.txt", std::string(2000, 'x'));
  const auto loss_of_run = [&](const std::string& batches) {
    const Outcome run = Run(absl::StrCat("--format json run job.yaml --output r", batches.empty() ? "" : "b",
                                         " --set spec.training.globalBatchSize=2 --set spec.training.microBatchSize=2 "
                                         "--set spec.data.validation.path=val.txt --set 'spec.training.evaluation={everySteps: 2",
                                         batches, "}'"));
    EXPECT_EQ(run.code, 0) << run.err;
    return EvaluatedLoss(run.out);
  };
  const double whole = loss_of_run("");
  const json eval = json::parse(Run("--format json eval r/checkpoints/latest --data val.txt").out);
  ASSERT_GT(eval["windows"], 8 * 2) << "so that a few batches are not the set";
  EXPECT_NEAR(whole, eval["loss"].get<double>(), 1e-6);
  EXPECT_GT(std::abs(loss_of_run(", batches: 2") - whole), 1e-4) << "the first four windows";
}

// A mean over all targets that count, however the set is cut into batches, micro-batches and stages: the windows have very unlike numbers.
TEST_F(EvalTest, ALossWithIgnoredTargetsIsThatOfTheRunsOwnEvaluation) {
  Write("lm.dag", kPaddedModel);
  std::string full;
  for (int i = 0; i < 97; ++i) full += {static_cast<char>(1 + i % 49), '\0'};
  Write("full.u16", full);
  Write("padded.u16", PaddedTokens());  // the second batch of eight is not full
  Write("lm.yaml",
        "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: lm}\nspec:\n"
        "  model: {graph: {file: lm.dag}}\n  data: {kind: tokens, path: [full.u16], validation: {path: [padded.u16]}}\n"
        "  training: {steps: 2, globalBatchSize: 8, sequenceLength: 8, optimizer: {name: sgd, learningRate: 0.1},\n"
        "    evaluation: {everySteps: 2}}\n  executors: {threads: 1}\n  checkpoint: {path: cp/}\n");
  for (const char* cut : {"--set spec.training.microBatchSize=1", "--set spec.training.microBatchSize=8",
                          "--set spec.training.microBatchSize=1 --set spec.strategy.stages=2 --device cpu,cpu"}) {
    const Outcome run = Run(absl::StrCat("--format json run lm.yaml --fresh --output r ", cut));
    ASSERT_EQ(run.code, 0) << cut << run.err;
    const Outcome eval = Run("--format json eval r/cp/latest --data padded.u16");
    ASSERT_EQ(eval.code, 0) << eval.err;
    EXPECT_EQ(json::parse(eval.out)["ignored_tokens"], 34);
    EXPECT_NEAR(json::parse(eval.out)["loss"].get<double>(), EvaluatedLoss(run.out), 1e-6) << cut;
  }
}

// Samples are read and cut by two programs; 39 of them are no whole number of batches of either.
TEST_F(EvalTest, AccuracyOfImagesIsThatOfTheRunsOwnEvaluation) {
  Write("shapes.yaml",
        "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: shapes}\nspec:\n"
        "  model: {family: mlp, config: {layers: [192, 16, 4]}}\n"
        "  data: {kind: shapes, shapes: {samples: 78, imageSize: 8, numClasses: 4}, validation: {fraction: 0.5}}\n"
        "  training: {steps: 8, globalBatchSize: 8, optimizer: {name: sgd, learningRate: 0.1}, evaluation: {everySteps: 4}}\n"
        "  executors: {threads: 1}\n  checkpoint: {path: cp/}\n");
  for (const char* cut : {"--set spec.training.microBatchSize=1", "--set spec.training.microBatchSize=4",
                          "--set spec.training.microBatchSize=8 --set spec.strategy.stages=2 --device cpu,cpu"}) {
    const Outcome run = Run(absl::StrCat("--format json run shapes.yaml --fresh --output r ", cut));
    ASSERT_EQ(run.code, 0) << cut << run.err;
    const std::vector<json> evaluations = LinesOfType(run.out, "eval");
    ASSERT_EQ(evaluations.size(), 2) << run.out;
    ASSERT_TRUE(evaluations.back()["accuracy"].is_number()) << run.out;
    const Outcome eval = Run("--format json eval r/cp/latest");
    ASSERT_EQ(eval.code, 0) << eval.err;
    const json report = json::parse(eval.out);
    EXPECT_EQ(report["windows"], 39);
    EXPECT_DOUBLE_EQ(report["accuracy"].get<double>(), evaluations.back()["accuracy"].get<double>()) << cut;
    EXPECT_NEAR(report["loss"].get<double>(), EvaluatedLoss(run.out), 1e-6) << cut;
    EXPECT_GT(report["accuracy"].get<double>(), 0) << "or a sum of nothing would be as good";
  }
}

TEST_F(EvalTest, FirstLossOfAPaddedBatchIsTheSameForEveryMicroBatchSize) {
  Write("lm.dag", kPaddedModel);
  Write("padded.u16", PaddedTokens());
  Write("lm.yaml",
        "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: lm}\nspec:\n"
        "  model: {graph: {file: lm.dag}}\n  data: {kind: tokens, path: [padded.u16]}\n"
        "  training: {steps: 1, globalBatchSize: 8, sequenceLength: 8, optimizer: {name: sgd, learningRate: 0.1}}\n"
        "  executors: {threads: 1}\n");
  json whole;
  for (const char* size : {"8", "4", "2", "1", "auto"}) {
    const Outcome run =
        Run(absl::StrCat("--format json run lm.yaml --no-checkpoint --output r-", size, " --set spec.training.microBatchSize=", size));
    ASSERT_EQ(run.code, 0) << size << run.err;
    const std::vector<json> steps = LinesOfType(run.out, "step");
    ASSERT_EQ(steps.size(), 1) << run.out;
    if (whole.is_null()) whole = steps[0];
    EXPECT_EQ(steps[0]["ignored_targets"], whole["ignored_targets"]) << size;
    const double expected = whole["loss"].get<double>();
    EXPECT_NEAR(steps[0]["loss"].get<double>(), expected, 1e-6 * expected) << "micro-batches of " << size;
  }
  EXPECT_GT(whole["ignored_targets"].get<int>(), 8) << "the batch is to have padding";
  EXPECT_GT(whole["targets"].get<int>(), 8);
}

TEST_F(EvalTest, AFolderOfCheckpointsWithoutLatestStandsForItsNewestWholeOne) {
  namespace fs = std::filesystem;
  Write("text.txt", std::string(2000, 'x'));
  ASSERT_EQ(Run("run job.yaml --output r --set 'spec.checkpoint={path: cp, everySteps: 1, keep: 0}'").code, 0);
  const std::string wanted = Run("eval r/cp/step-000001 --data text.txt").out;
  EXPECT_NE(wanted, Run("eval r/cp --data text.txt").out);
  fs::resize_file(Path("r/cp/step-000002/model.safetensors"), 9);
  fs::remove(Path("r/cp/latest"));
  EXPECT_EQ(Run("eval r/cp --data text.txt").out, wanted);
  fs::create_symlink("step-000009", Path("r/cp/latest"));
  EXPECT_EQ(Run("eval r/cp --data text.txt").out, wanted);
  fs::resize_file(Path("r/cp/step-000001/model.safetensors"), 9);
  const Outcome none = Run("eval r/cp --data text.txt");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, AllOf(HasSubstr("no checkpoint of "), HasSubstr("step-000001"), HasSubstr("step-000002")));
}

}  // namespace
}  // namespace fusionllm::cli
