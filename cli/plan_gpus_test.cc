// Planning for GPUs that this machine does not have: by name in a topology, without any measurement, and marked as such.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "cli/testing/fusionctl.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGpuJob[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
    "  model: {family: mlp, config: {layers: [192, 4096, 4096, 8], activation: relu}}\n"
    "  data: {kind: shapes, shapes: {samples: 2048, imageSize: 8, numClasses: 8}}\n"
    "  training: {steps: 2, globalBatchSize: 64, microBatchSize: 8}\n";

constexpr char kGpuTopology[] =
    "apiVersion: fusionllm.io/v1alpha1\n"
    "kind: Topology\n"
    "metadata: {name: gpus}\n"
    "spec:\n"
    "  sites:\n"
    "  - {name: a, devices: [{name: a-0, profile: nvidia-l4}]}\n"
    "  - {name: b, devices: [{name: b-0, profile: nvidia-t4}]}\n"
    "  links:\n"
    "  - {from: a, to: b, bandwidth: 1Gbit, latency: 5ms, symmetric: true}\n";

class PlanGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    program_.Write("job.yaml", kGpuJob);
    program_.Write("t.yaml", kGpuTopology);
  }
  Fusionctl program_;
};

TEST_F(PlanGpus, APlanIsMadeWithoutMeasuring) {
  const Outcome text = program_.Run("plan job.yaml --topology t.yaml --strategy equal-ops --explain");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.err, "") << "nothing is measured";
  EXPECT_THAT(text.out, HasSubstr("predicted from public specifications, not measured (nvidia-l4, nvidia-t4)"));
  EXPECT_THAT(text.out, HasSubstr("come from public specifications of nvidia-l4, nvidia-t4"));
  const json plan = json::parse(program_.Run("plan job.yaml --topology t.yaml --strategy equal-ops --format json").out);
  EXPECT_NEAR(plan["specified_share"], 1, 1e-9);
  EXPECT_EQ(plan["specifications"], json({"nvidia-l4", "nvidia-t4"}));
}

TEST_F(PlanGpus, ASimulationSaysSoToo) {
  const Outcome outcome = program_.Run("simulate job.yaml --topology t.yaml --strategy equal-ops");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("predicted from public specifications, not measured (nvidia-l4, nvidia-t4)"));
}

// With so many samples at once a product of matrices is bound by its arithmetic, with 8 by its weights' way through memory.
TEST_F(PlanGpus, TheArithmeticOfTheTensorCoresMayBeChosen) {
  const auto step = [&](const std::string& arithmetic) {
    const Outcome outcome = program_.Run(
        "plan job.yaml --topology t.yaml --set spec.training.globalBatchSize=1024 --set spec.training.microBatchSize=1024 --set "
        "spec.strategy.stages=1 "
        "--format json --arithmetic " +
        arithmetic);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out)["predicted_step_seconds"].get<double>();
  };
  EXPECT_GT(step("fp32"), step("tf32"));
  EXPECT_EQ(program_.Run("plan job.yaml --topology t.yaml --arithmetic fp8").code, 2);
}

// With a T4, which has no bf16, beside: it takes fp32.
TEST_F(PlanGpus, ABf16JobIsPlannedWithTheTensorCoresAndTheHeadlineSaysSo) {
  const std::string large = "job.yaml --topology t.yaml --set spec.training.globalBatchSize=1024 --set spec.training.microBatchSize=1024 ";
  const std::string one = "--set spec.strategy.stages=1 --set spec.strategy.exclude=[b-0] ", bf16 = "--set spec.training.precision=bf16 ";
  const auto plan = [&](const std::string& options) {
    const Outcome outcome = program_.Run("plan " + large + options + "--format json");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    json document = json::parse(outcome.out);
    document.erase("search_cpu_seconds");
    return document;
  };
  const json followed = plan(one + bf16);
  EXPECT_EQ(followed, plan(one + bf16 + "--arithmetic bf16 "));
  EXPECT_EQ(followed["arithmetic"], json({"bf16"}));
  EXPECT_LT(followed["predicted_step_seconds"], plan(one + bf16 + "--arithmetic fp32 ")["predicted_step_seconds"]);
  EXPECT_EQ(plan(one), plan(one + "--arithmetic fp32 ")) << "fp32 products are not rounded to TF32";
  EXPECT_THAT(program_.Run("plan " + large + one + bf16).out, HasSubstr("s with arithmetic bf16 (tensor cores)\n"));
  EXPECT_THAT(program_.Run("plan " + large + one).out,
              AllOf(HasSubstr("s with arithmetic fp32 (no tensor cores)\n"), HasSubstr("warning: TensorCoresIdle: ")));
  EXPECT_THAT(program_.Run("simulate " + large + one + bf16).out, HasSubstr("s with arithmetic bf16 (tensor cores)\n"));
  const std::string both = "--strategy equal-ops " + bf16;
  EXPECT_EQ(plan(both)["arithmetic"], json({"bf16", "fp32"}));
  EXPECT_THAT(program_.Run("plan " + large + both).out,
              HasSubstr("with arithmetic bf16 (tensor cores) on nvidia-l4, fp32 (no tensor cores) on nvidia-t4\n"));
  // A change of the job's precision changes it, too.
  const json what_if =
      json::parse(program_.Run("simulate " + large + one + "--what-if spec.training.precision=bf16 --format json").out)["what_if"][0];
  EXPECT_EQ(what_if["replanned"]["plan"]["arithmetic"], json({"bf16"})) << what_if;
}

TEST_F(PlanGpus, ReplicasOnTheSameGpuAreWarnedOfOnce) {
  program_.Write("same.yaml", absl::StrReplaceAll(kGpuTopology, {{"nvidia-t4", "nvidia-l4"}}));
  const Outcome outcome = program_.Run("plan job.yaml --topology same.yaml --set spec.strategy.replicas=2 --format json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json plan = json::parse(outcome.out);
  ASSERT_EQ(plan["replicas"], 2);
  int warned = 0;
  for (const json& warning : plan["warnings"]) warned += warning["reason"] == "TensorCoresIdle" ? 1 : 0;
  EXPECT_EQ(warned, 1) << plan["warnings"];
}

TEST_F(PlanGpus, ARunIsRefusedBeforeItLeavesAnything) {
  const Outcome outcome = program_.Run("run job.yaml --topology t.yaml --output run");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("NotEmulated: device a-0 of topology gpus has the profile nvidia-l4"));
  EXPECT_FALSE(std::filesystem::exists(program_.Path("run")));
}

TEST_F(PlanGpus, RejectsUnknownGpuProfileNamingLineAndChoices) {
  program_.Write("t.yaml", absl::StrReplaceAll(kGpuTopology, {{"nvidia-t4", "nvidia-t5"}}));
  const Outcome outcome = program_.Run("plan job.yaml --topology t.yaml");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("t.yaml:7: spec.sites[1].devices[0].profile: no GPU profile is named nvidia-t5; did you mean nvidia-t4?"));
  EXPECT_THAT(outcome.err, HasSubstr("amd-mi300x, nvidia-a10,"));
}

TEST_F(PlanGpus, ThreadsBelongToEmulatedDevices) {
  program_.Write("t.yaml", absl::StrReplaceAll(kGpuTopology, {{"nvidia-t4", "nvidia-t4, threads: 4"}}));
  const Outcome outcome = program_.Run("plan job.yaml --topology t.yaml");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("t.yaml:7: spec.sites[1].devices[0].threads"));
}

TEST_F(PlanGpus, CalibrationMeasuresWhatIsNoPaper) {
  const Outcome nothing = program_.Run("bench job.yaml --topology t.yaml --calibrate");
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("there is nothing to measure"));
  program_.Write("t.yaml", absl::StrReplaceAll(kGpuTopology, {{"b-0, profile: nvidia-t4", "b-0"}}));
  const Outcome outcome = program_.Run("bench job.yaml --topology t.yaml --calibrate -o p.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("on 1 device,"));
  const Outcome plan = program_.Run("plan job.yaml --topology t.yaml --profiles p.json --strategy equal-ops");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("not measured (nvidia-l4)"));
}

TEST_F(PlanGpus, TheListNamesItsSourcesAndSaysThatNothingIsMeasured) {
  const Outcome text = program_.Run("bench --list-profiles");
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("NVIDIA T4 data sheet, 2019"));
  EXPECT_THAT(text.out, HasSubstr("from public specifications, not measured"));
  const json list = json::parse(program_.Run("bench --list-profiles --format json").out);
  EXPECT_EQ(list["measured"], false);
  for (const json& gpu : list["profiles"]) {
    EXPECT_FALSE(gpu["source"].get<std::string>().empty());
    program_.Write("one.yaml", absl::StrReplaceAll(kGpuTopology, {{"nvidia-l4", gpu["name"].get<std::string>()}}));
    EXPECT_EQ(program_.Run("plan job.yaml --topology one.yaml").code, 0) << gpu["name"];
  }
}

}  // namespace
}  // namespace fusionllm::cli
