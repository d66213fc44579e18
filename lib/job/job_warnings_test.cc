#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/parse.h"
#include "lib/job/warnings.h"

namespace fusionllm::job {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(JobWarningsTest, WarnsOfWarmUpThatNeverEnds) {
  FusionJob job;
  job.spec.training.steps = 20;
  job.spec.training.schedule.warmup_steps = 20;
  EXPECT_THAT(Warnings(job), IsEmpty());
  job.spec.training.steps = 19;
  EXPECT_THAT(Warnings(job), ElementsAre(AllOf(HasSubstr("spec.training.schedule.warmupSteps: "), HasSubstr("warm-up of 20 steps"),
                                               HasSubstr("run of 19"))));
}

TEST(JobWarningsTest, NoStepsAndNoCheckpointWriteNothing) {
  FusionJob job;
  job.spec.training.steps = 0;
  job.spec.training.schedule.warmup_steps = 20;
  EXPECT_THAT(Warnings(job), ElementsAre(AllOf(HasSubstr("spec.training.steps: 0"), HasSubstr("no checkpoints"))));
  job.spec.checkpoint.emplace();
  EXPECT_THAT(Warnings(job), IsEmpty());
}

FusionJob ParsedWith(const std::string& rest) {
  const auto job = ParseFusionJob(absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: t}\nspec:\n"
                                               "  model: {family: gpt2, preset: tiny}\n  data: {kind: text, path: [a]}\n",
                                               rest),
                                  "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
}

TEST(JobWarningsTest, FieldsThatOnlyKubernetesReadsAreNamedOnce) {
  EXPECT_EQ(KubernetesOnlyWarning(ParsedWith("  training: {steps: 3, globalBatchSize: 4}\n  executors: {min: 2}\n")), "");
  EXPECT_EQ(KubernetesOnlyWarning(ParsedWith("  checkpoint: {everySteps: 2}\n  placement: {minMemory: 2Gi}\n")), "") << "read everywhere";
  EXPECT_EQ(
      KubernetesOnlyWarning(ParsedWith("  placement: {device: cuda}\n")),
      "spec.placement.device has no effect here: only Kubernetes reads it; `fusionctl run --device` or a topology says what computes");
  EXPECT_EQ(
      KubernetesOnlyWarning(ParsedWith("  checkpoint: {volume: {emptyDir: {}}}\n"
                                       "  placement: {clusters: [{name: paris, min: 1}, {name: rome, min: 1}], spread: Packed}\n"
                                       "  failurePolicy: {maxRestarts: 7}\n  suspend: true\n"
                                       "  network: {mode: Relay, port: 7777}\n")),
      "spec.checkpoint.volume, spec.placement.clusters, spec.placement.spread, spec.suspend, spec.failurePolicy, spec.network have no "
      "effect here: only Kubernetes reads them");
}

TEST(JobWarningsTest, WarnsOfUnknownExcludedDevice) {
  FusionJob job;
  job.spec.strategy.exclude = {"a", "zig", "lab3"};
  Topology topology;
  topology.metadata.name = "pair";
  topology.spec.sites = {{.name = "here", .devices = {{.name = "a"}, {.name = "lab-3"}}}};
  EXPECT_THAT(Warnings(job, topology),
              ElementsAre("spec.strategy.exclude: topology pair has no device 'zig', so none is left out for it",
                          "spec.strategy.exclude: topology pair has no device 'lab3', so none is left out for it; did you mean lab-3?"));
}

}  // namespace
}  // namespace fusionllm::job
