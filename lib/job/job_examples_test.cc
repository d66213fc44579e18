// What the repository shows to users must be true: the examples, and the reference page.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/document.h"
#include "lib/job/model_config.h"
#include "lib/job/parse.h"
#include "lib/job/reference.h"
#include "lib/opdag/graph.h"
#include "lib/opdag/text.h"

namespace fusionllm::job {
namespace {

std::filesystem::path SourceDir() {
  const char* folder = std::getenv("FUSIONLLM_SOURCE_DIR");
  return folder == nullptr ? "." : folder;
}

std::vector<std::string> YamlFiles(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(JobExamplesTest, EveryJobParsesAndItsFilesExist) {
  const std::vector<std::string> files = YamlFiles(SourceDir() / "examples/jobs");
  EXPECT_GE(files.size(), 5u);
  for (const std::string& file : files) {
    const absl::StatusOr<FusionJob> job = LoadFusionJob(file);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE(ResolveModel(job->spec).ok()) << file;
    for (const std::string& path : job->spec.data.path) EXPECT_TRUE(std::filesystem::exists(path)) << file << ": " << path;
    if (job->spec.data.validation) {
      for (const std::string& path : job->spec.data.validation->path) EXPECT_TRUE(std::filesystem::exists(path)) << file << ": " << path;
    }
    if (job->spec.model.graph && job->spec.model.graph->file) {
      EXPECT_TRUE(std::filesystem::exists(*job->spec.model.graph->file)) << file;
    }
    EXPECT_EQ(*ParseFusionJob(ToYaml(*job), "printed.yaml"), *job) << file;
  }
}

TEST(JobExamplesTest, TheGraphWrittenInAJobIsOneThatCanTrain) {
  const absl::StatusOr<FusionJob> job = LoadFusionJob((SourceDir() / "examples/jobs/custom-graph.yaml").string());
  ASSERT_TRUE(job.ok()) << job.status();
  absl::StatusOr<opdag::Graph> graph = opdag::ParseGraph(*job->spec.model.graph->inline_text, "spec.model.graph.inline");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(opdag::InferTypes(*graph, job->spec.training.micro_batch_size).ok());
}

// Each field that the format promises, Kubernetes' own included: dropping or renaming one breaks users.
constexpr char kEveryField[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: everything, namespace: team, labels: {a: b}, annotations: {c: d}}
spec:
  model:
    family: gpt2
    preset: tiny
    config: {nLayer: 6, nHead: 6, nEmbd: 384, vocabSize: 256, blockSize: 256, tieWeights: true}
    init: {seed: 1, from: null}
  data:
    kind: text
    path: [README.md, docs/]
    validation: {path: [held-out.txt]}
    volume: {persistentVolumeClaim: {claimName: texts}}
    clusters: [paris]
  training:
    steps: 200
    globalBatchSize: 32
    microBatchSize: 4
    sequenceLength: 256
    optimizer: {name: adamw, learningRate: 3.0e-4, beta1: 0.9, beta2: 0.95, epsilon: 1.0e-8, weightDecay: 0.1}
    schedule: {name: cosine, warmupSteps: 20, minLearningRate: 3.0e-5}
    gradientClipNorm: 1.0
    precision: fp32
    recompute: none
    seed: 1337
    evaluation: {everySteps: 50, batches: 8}
  strategy:
    planner: op-fence
    stages: 0
    pipelineSchedule: auto
    inFlight: 0
    backend: ref
    pins: [{ops: "block.0.*", device: paris-0}]
    exclude: [lab-3]
  compression: {policy: adatopk, codec: auto, ratio: 100, errorFeedback: false}
  checkpoint: {path: checkpoints/, everySteps: 50, keep: 3, resume: auto, volume: {emptyDir: {}}, shards: Broker}
  executors: {replicas: 6, min: 2, max: 8, spares: 1, threads: 2, template: {}}
  placement: {device: any, clusters: [{name: paris, min: 1, max: 4}], clusterSelector: {}, minMemory: 2Gi, maxEgressBytesPerStep: null}
  suspend: false
  managedBy: kueue.x-k8s.io/multikueue
  queueName: night
  failurePolicy:
    maxRestarts: 5
    rules:
    - {name: bad-input, action: FailJob, onExitCodes: [2, 3]}
    - {name: evicted, action: RestartJobAndIgnoreMaxRestarts, onReasons: [Evicted]}
  activeDeadlineSeconds: 3600
  pendingDeadlineSeconds: 600
  ttlSecondsAfterFinished: 0
  cleanPodPolicy: All
  forceDeleteAfterSeconds: 30
  preserveResourcesOnDeletion: true
  network: {mode: NodePort, port: 7100, address: 192.0.2.7}
  broker: {volume: {persistentVolumeClaim: {claimName: journal}}, template: {}}
)";

TEST(JobExamplesTest, AJobWithEveryFieldIsReadAndKept) {
  const absl::StatusOr<FusionJob> job = ParseFusionJob(kEveryField, "everything.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.training.optimizer.learning_rate, 3e-4);
  EXPECT_EQ(job->spec.strategy.pins[0].ops, "block.0.*");
  EXPECT_EQ(job->spec.strategy.backend, Backend::kRef);
  EXPECT_EQ(job->spec.executors.pod_template.json, "{}");
  EXPECT_EQ(job->spec.placement.min_memory->bytes, int64_t{2} << 30);
  EXPECT_EQ(job->spec.data.volume.json, R"({"persistentVolumeClaim": {"claimName": "texts"}})");
  EXPECT_EQ(job->spec.data.clusters, std::vector<std::string>{"paris"});
  EXPECT_EQ(job->spec.checkpoint->volume.json, R"({"emptyDir": {}})");
  EXPECT_EQ(job->spec.failure_policy.max_restarts, 5);
  EXPECT_EQ(job->spec.failure_policy.rules[0], (FailureRule{"bad-input", FailureAction::kFailJob, {2, 3}, {}}));
  EXPECT_EQ(job->spec.failure_policy.rules[1], (FailureRule{"evicted", FailureAction::kRestartJobAndIgnoreMaxRestarts, {}, {"Evicted"}}));
  EXPECT_EQ(job->spec.pending_deadline_seconds, 600);
  EXPECT_EQ(job->spec.clean_pod_policy, CleanPodPolicy::kAll);
  EXPECT_EQ(job->spec.force_delete_after_seconds, 30);
  EXPECT_TRUE(job->spec.preserve_resources_on_deletion);
  EXPECT_EQ(job->spec.network, (Network{NetworkMode::kNodePort, 7100, "192.0.2.7"}));
  EXPECT_EQ(job->spec.broker.volume.json, R"({"persistentVolumeClaim": {"claimName": "journal"}})");
  EXPECT_EQ(*ParseFusionJob(ToYaml(*job), "printed.yaml"), *job);
}

TEST(JobExamplesTest, FindingsInATreeThatIsNoFileNameTheFieldAlone) {
  Problems problems("any.yaml");
  Node tree;
  ASSERT_TRUE(LoadDocument(kEveryField, tree, problems)) << problems.ToStatus();
  EXPECT_EQ(*FusionJobFromTree(tree), *ParseFusionJob(kEveryField, "everything.yaml"));

  Node broken;
  const std::string text = absl::StrReplaceAll(kEveryField, {{"steps: 200", "steps: -3"}, {"max: 8", "max: 5"}});
  ASSERT_TRUE(LoadDocument(text, broken, problems)) << problems.ToStatus();
  EXPECT_EQ(std::string(FusionJobFromTree(broken).status().message()),
            "spec.training.steps: must be at least 0, got -3\n"
            "spec.executors.replicas: must be at most max, which is 5, got 6");
}

TEST(JobExamplesTest, EveryTopologyParsesAndFitsTwoCores) {
  const std::vector<std::string> files = YamlFiles(SourceDir() / "examples/topologies");
  EXPECT_GE(files.size(), 3u);
  for (const std::string& file : files) {
    const absl::StatusOr<Topology> topology = LoadTopology(file);
    ASSERT_TRUE(topology.ok()) << topology.status();
    double cores = 0;
    for (const Site& site : topology->spec.sites) {
      for (const Device& device : site.devices) cores += device.compute_scale;
    }
    EXPECT_LE(cores, 1.5 + 1e-9) << file << ": emulated devices would contend for a two-core machine";
    EXPECT_EQ(*ParseTopology(ToYaml(*topology), "printed.yaml"), *topology) << file;
  }
}

TEST(JobExamplesTest, ALoadedJobsPathsAreAbsoluteAndAMissingFileIsNamed) {
  const absl::StatusOr<FusionJob> job = LoadFusionJob((SourceDir() / "examples/jobs/gpt2-tiny.yaml").string());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.data.path[0], (std::filesystem::absolute(SourceDir()) / "README.md").lexically_normal().string());
  EXPECT_EQ(LoadFusionJob("no/such.yaml").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadTopology(SourceDir().string()).status().code(), absl::StatusCode::kNotFound);
}

TEST(JobExamplesTest, AGraphFileThatCannotBeReadIsNamedWithItsLine) {
  const base::TempFolder folder;
  const std::string text =
      "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: t}\nspec:\n  model: {graph: {file: g.dag}}\n"
      "  data: {kind: shapes, shapes: {samples: 8}}\n  training: {steps: 1}\n";
  const std::string job = folder.Write("job.yaml", text);
  EXPECT_EQ(std::string(LoadFusionJob(job).status().message()),
            job + ":5: spec.model.graph.file: cannot read " + (folder / "g.dag") + ": No such file or directory");
  std::filesystem::create_directory(folder / "g.dag");
  EXPECT_THAT(std::string(LoadFusionJob(job).status().message()), ::testing::HasSubstr(":5: spec.model.graph.file: cannot read"));
  std::filesystem::remove(folder / "g.dag");
  folder.Write("g.dag", "graph");
  const absl::StatusOr<FusionJob> loaded = LoadFusionJob(job);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
}

TEST(JobExamplesTest, TheReferencePageIsTheOneTheFieldTablesGive) {
  const std::filesystem::path file = SourceDir() / "docs/reference/job-reference.md";
  std::ostringstream committed;
  committed << std::ifstream(file).rdbuf();
  EXPECT_TRUE(committed.str() == ReferencePage()) << file << " is stale: tools/check-generated.sh --write";
}

// As `kubectl get -o yaml`, controller-gen and kustomize write objects.
TEST(JobExamplesTest, FieldsThatTheApiServerOwnsArePassedOver) {
  const std::string plain = "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata:\n  name: t\n  namespace: team\n";
  const std::string spec = "spec:\n  model: {family: gpt2, preset: tiny}\n  data: {kind: text, path: [a]}\n  training: {steps: 5}\n";
  const absl::StatusOr<FusionJob> own = ParseFusionJob(plain + spec, "job.yaml");
  ASSERT_TRUE(own.ok()) << own.status();
  for (const char* field :
       {"creationTimestamp: null", "creationTimestamp: 2026-01-31T12:00:00Z", "uid: 4fe5b1c4-0000-4000-8000-000000000000", "generation: 3",
        "resourceVersion: \"17\"", "selfLink: /apis/a", "managedFields: [{manager: kubectl, fieldsV1: {\"f:spec\": {}}}]",
        "deletionTimestamp: null", "deletionGracePeriodSeconds: 0", "finalizers: [a/b]", "ownerReferences: [{kind: Queue, name: q}]"}) {
    const absl::StatusOr<FusionJob> job = ParseFusionJob(absl::StrCat(plain, "  ", field, "\n", spec), "job.yaml");
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(*job, *own) << field;
  }
  for (const char* status : {"status: {}", "status:", "status: {phase: Running, conditions: [{type: Ready}]}"}) {
    const absl::StatusOr<FusionJob> job = ParseFusionJob(absl::StrCat(plain, spec, status, "\n"), "job.yaml");
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(*job, *own) << status;
  }
}

TEST(JobExamplesTest, UnknownFieldsStayErrors) {
  const std::string text =
      "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata:\n  name: t\n  uid: a\n  generateName: t-\n  uuid: a\n"
      "spec:\n  status: {}\n  model: {family: gpt2, preset: tiny}\n  data: {kind: text, path: [a]}\n  training: {steps: 5}\n"
      "state: {}\n";
  const std::string said(ParseFusionJob(text, "job.yaml").status().message());
  EXPECT_THAT(said, ::testing::HasSubstr("job.yaml:6: metadata.generateName: unknown field"));
  EXPECT_THAT(said, ::testing::HasSubstr("job.yaml:7: metadata.uuid: unknown field"));
  EXPECT_THAT(said, ::testing::HasSubstr("job.yaml:9: spec.status: unknown field"));
  EXPECT_THAT(said, ::testing::HasSubstr("job.yaml:13: state: unknown field"));
  EXPECT_THAT(said, ::testing::Not(::testing::HasSubstr("metadata.uid:")));
  const std::vector<std::string> overrides = {"status.phase=Running"};
  EXPECT_THAT(std::string(ParseFusionJob(text, "job.yaml", overrides).status().message()),
              ::testing::HasSubstr("--set status.phase: status: unknown field"));
}

}  // namespace
}  // namespace fusionllm::job
