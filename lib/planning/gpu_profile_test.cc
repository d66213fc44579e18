#include "lib/planning/gpu_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "lib/job/parse.h"
#include "lib/planning/plan_workload.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::planning {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHead[] = "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: gpus}\nspec:\n  sites:\n";

std::unique_ptr<workload::Workload> SmallGpt() {
  const auto job = job::ParseFusionJob(
      "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
      "  model: {family: gpt2, preset: small}\n  data: {kind: tokens, path: [x.bin]}\n"
      "  training: {steps: 5, globalBatchSize: 64, microBatchSize: 8, sequenceLength: 1024}\n",
      "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  auto workload = workload::Resolve(*job, "/");
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

job::Topology Sites(const std::string& devices) {
  const auto topology = job::ParseTopology(kHead + std::string("  - {name: s, devices: [") + devices + "]}\n", "t.yaml");
  EXPECT_TRUE(topology.ok()) << topology.status();
  return *topology;
}

plan::Plan GpuPlanOf(const workload::Workload& workload, const Profiles& profiles) {
  const auto answer = PlanWorkload(workload, profiles, {.strategy = "equal-ops", .explain = true});
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(std::holds_alternative<plan::Plan>(*answer)) << wire::PrintPlan(*answer);
  return std::get<plan::Plan>(*answer);
}

wire::DeviceProfile Measured() {
  return {.name = "m",
          .site = "s",
          .backend = "cpu",
          .memory_bytes = 1 << 30,
          .rates = {{"matmul", {.seconds_per_flop = 1e-11, .relative_error = 0.1, .samples = 9}}}};
}

TEST(GpuProfile, SurvivesTheWire) {
  for (const estimator::GpuSpec& gpu : estimator::GpuSpecs()) {
    wire::DeviceProfile profile = ProfileOf(gpu, estimator::Arithmetic::kBf16);
    profile.name = "a";
    const auto parsed = wire::ParseProfile(wire::PrintProfile(profile));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, profile);
  }
}

TEST(GpuProfile, ATopologyOfNamedGpusNeedsNoMeasurement) {
  const auto profiles =
      ProfilesFromTopology(Sites("{name: a, profile: nvidia-a100-80gb}, {name: b, profile: nvidia-t4, memory: 8Gi}"), {}, 1);
  ASSERT_TRUE(profiles.ok()) << profiles.status();
  EXPECT_EQ(profiles->devices[0].memory_bytes, 80'000'000'000) << "that of the card";
  EXPECT_EQ(profiles->devices[1].memory_bytes, int64_t{8} << 30) << "that of the topology";
  const plan::Plan plan = GpuPlanOf(*SmallGpt(), *profiles);
  EXPECT_NEAR(plan.specified_share, 1, 1e-9);
  EXPECT_EQ(plan.fitted_share, 0);
  EXPECT_NEAR(plan.fitted_relative_error, estimator::kSpecifiedError, 1e-9);
  EXPECT_THAT(plan.specifications, ElementsAre("nvidia-a100-80gb", "nvidia-t4"));
  EXPECT_THAT(plan.explain, Contains(AllOf(HasSubstr("100% come from public specifications of nvidia-a100-80gb, nvidia-t4"),
                                           HasSubstr("may be off by 50%"))));
  const auto parsed = wire::ParsePlan(wire::PrintPlan(plan));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<plan::Plan>(*parsed), plan);
}

// 64 samples of 1,024 tokens, 124 M parameters: 6 N tokens = 4.9e13 FLOPs and some 7e12 of attention. At 70 % of 19.5 TFLOP/s the former
// take 3.6 s; memory-bound ops and the head come on top.
TEST(GpuProfile, AStepOfGpt2TakesWhatItsArithmeticAndItsMemoryTrafficTake) {
  const auto workload = SmallGpt();
  const job::Topology one = Sites("{name: a, profile: nvidia-a100-80gb-sxm}");
  const auto step = [&](estimator::Arithmetic arithmetic) {
    const auto profiles = ProfilesFromTopology(one, {}, 1, arithmetic);
    EXPECT_TRUE(profiles.ok()) << profiles.status();
    return GpuPlanOf(*workload, *profiles).predicted_step_seconds;
  };
  const double fp32 = step(estimator::Arithmetic::kFp32), tf32 = step(estimator::Arithmetic::kTf32),
               bf16 = step(estimator::Arithmetic::kBf16);
  EXPECT_GT(fp32, 3.6);
  EXPECT_LT(fp32, 8);
  EXPECT_LT(tf32, fp32 / 2);
  EXPECT_LT(bf16, tf32);
  EXPECT_GT(bf16, 4.9e13 / 312e12) << "below what the peak allows";
}

TEST(GpuProfile, ExplainSaysTheArithmeticOfAStepAndItsShareOfThePeaks) {
  const auto workload = SmallGpt();
  const auto profiles = ProfilesFromTopology(Sites("{name: a, profile: nvidia-a100-80gb-sxm}, {name: b, profile: nvidia-a100-40gb}"), {}, 1,
                                             estimator::Arithmetic::kBf16);
  ASSERT_TRUE(profiles.ok()) << profiles.status();
  const plan::Plan plan = GpuPlanOf(*workload, *profiles);
  ASSERT_EQ(plan.stages.size(), 2);
  // As above: 4.9e13 and, of attention under its mask, half of 7e12.
  const double flops = 5.3e13, peak = 2 * 312e12;
  const auto sentence =
      std::find_if(plan.explain.begin(), plan.explain.end(), [](const std::string& line) { return line.starts_with("arithmetic: "); });
  ASSERT_NE(sentence, plan.explain.end());
  double reported_flops = 0, reported_share = 0;
  ASSERT_EQ(std::sscanf(sentence->c_str(), "arithmetic: a step is %lf TFLOP", &reported_flops), 1) << *sentence;
  EXPECT_NEAR(reported_flops * 1e12, flops, 0.05 * flops);
  const size_t share = sentence->find("FLOP/s, ");
  ASSERT_NE(share, std::string::npos) << *sentence;
  ASSERT_EQ(std::sscanf(sentence->c_str() + share, "FLOP/s, %lf%%", &reported_share), 1) << *sentence;
  EXPECT_NEAR(reported_share, 100 * flops / plan.predicted_step_seconds / peak, 2);
  EXPECT_THAT(*sentence, HasSubstr("of the peak of the 2 devices with a stage (624.0 TFLOP/s together)"));
  const auto measured = ProfilesFromTopology(Sites("{name: b, memory: 64Gi}"), {Measured()}, int64_t{64} << 30);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_THAT(GpuPlanOf(*workload, *measured).explain, Contains(AllOf(HasSubstr("arithmetic: a step is"), Not(HasSubstr("peak")))));
}

TEST(GpuProfile, BesideMeasuredDevicesEachHasItsOwnShare) {
  const job::Topology mixed = Sites("{name: a, profile: nvidia-l4}, {name: b, memory: 64Gi}");
  const auto profiles = ProfilesFromTopology(mixed, {Measured()}, int64_t{64} << 30);
  ASSERT_TRUE(profiles.ok()) << profiles.status();
  const plan::Plan plan = GpuPlanOf(*SmallGpt(), *profiles);
  EXPECT_GT(plan.specified_share, 0);
  EXPECT_GT(plan.fitted_share, 0);
  EXPECT_NEAR(plan.specified_share + plan.fitted_share, 1, 1e-9);
  EXPECT_THAT(plan.explain, Contains(AllOf(HasSubstr("specifications of nvidia-l4"), HasSubstr("matmul +-10% of 9 samples"))));
  EXPECT_THAT(std::string(ProfilesFromTopology(mixed, {}, 1).status().message()), HasSubstr("no measured device"));
}

}  // namespace
}  // namespace fusionllm::planning
