#include "lib/planning/micro_batch_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/planning/gpu_profile.h"
#include "lib/planning/testing/three_devices.h"

namespace fusionllm::planning {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kResNet[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: test}
spec:
  model: {family: resnet, preset: 18, config: {stem: cifar, numClasses: 4, imageSize: 8}}
  data: {kind: shapes, shapes: {imageSize: 8, numClasses: 4}}
  training: {steps: 5, globalBatchSize: 32}
)";

TEST(MicroBatchSizes, AreTheDivisorsOfTheGlobalBatch) {
  const auto job = Resolve({"spec.training={globalBatchSize: 24, microBatchSize: auto, sequenceLength: 16}"});
  EXPECT_THAT(MicroBatchSizes(*job).all(), ElementsAre(1, 2, 3, 4, 6, 8, 12, 24));
  const auto large = Resolve({"spec.training={globalBatchSize: 8192, microBatchSize: auto, sequenceLength: 16}"});
  EXPECT_EQ(MicroBatchSizes(*large).all().front(), 2) << "of one sample there would be more than a plan is made for";
}

TEST(MicroBatchSizes, BatchNormHasNoSmallerMicroBatchesThanByDefault) {
  const auto parsed = job::ParseFusionJob(kResNet, "job.yaml");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto job = workload::Resolve(*parsed, "/");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(MicroBatchSizes(**job).all(), ElementsAre(4, 8, 16, 32));
}

// Every op takes its launch and so much for each sample.
double Seconds(double size) { return 1e-4 + 3e-5 * size; }

// A machine on which the job was measured at micro-batches of 1 and of 8.
wire::DeviceProfile MeasuredAtOneAndEight() {
  const auto at = [](int size) {
    return Resolve({absl::StrCat("spec.training={globalBatchSize: 16, microBatchSize: ", size, ", sequenceLength: 16}")});
  };
  const wire::DeviceProfile one = Machine(*at(1));
  wire::DeviceProfile machine = Machine(*at(8));
  for (auto& [signature, op] : machine.ops) {
    op.seconds = Seconds(one.ops.contains(signature) ? 1 : 8);
    op.workspace_bytes = one.ops.contains(signature) ? 100 : 800;
  }
  return machine;
}

const std::vector<std::string> kAuto = {"spec.training={globalBatchSize: 16, microBatchSize: auto, sequenceLength: 16}"};

TEST(MicroBatchSizes, InterpolatesUnmeasuredMicroBatchSizes) {
  const auto job = Resolve(kAuto);
  const Profiles profiles{.devices = {MeasuredAtOneAndEight()}};
  const auto inferred = MicroBatchSizes(*job).ProfilesAt(4, profiles);
  ASSERT_TRUE(inferred.ok()) << inferred.status();
  int fresh = 0;
  for (const auto& [signature, op] : inferred->devices[0].ops) {
    if (profiles.devices[0].ops.contains(signature)) continue;
    ++fresh;
    EXPECT_NEAR(op.seconds, Seconds(4), 1e-9) << signature;
    EXPECT_EQ(op.relative_error, kInferredError) << signature;
    EXPECT_EQ(op.workspace_bytes, 400) << signature;
    EXPECT_GT(op.bytes, 0) << signature;
  }
  EXPECT_GT(fresh, 10);
}

wire::DeviceProfile Specified() { return ProfileOf(*estimator::FindGpu("nvidia-l4"), estimator::Arithmetic::kFp32); }

TEST(MicroBatchSizes, NoPlanRestsOnSizesBeyondThoseThatWereMeasured) {
  const auto job = Resolve(kAuto);
  MicroBatchSizes sizes(*job);
  const wire::DeviceProfile measured = MeasuredAtOneAndEight();
  EXPECT_THAT(sizes.PlannableOn({.devices = {measured}}), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(sizes.PlannableOn({.devices = {Specified(), measured}}), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(sizes.PlannableOn({.devices = {Specified()}}), ElementsAre(1, 2, 4, 8, 16)) << "rates of classes hold for any";
}

TEST(MicroBatchSizes, AJobOfAnotherSizeIsPricedByWhatWasMeasured) {
  const auto two = Resolve({"spec.training={globalBatchSize: 16, microBatchSize: 2, sequenceLength: 16}"});
  const Profiles profiles{.devices = {MeasuredAtOneAndEight()}};
  EXPECT_TRUE(InferredProfiles(*two, profiles)->has_value());
  const auto eight = Resolve({"spec.training={globalBatchSize: 16, microBatchSize: 8, sequenceLength: 16}"});
  EXPECT_FALSE(InferredProfiles(*eight, profiles)->has_value()) << "there is nothing to infer";
  const plan::Plan plan = PlanOf(*two,
                                 {.devices = {[&] {
                                    wire::DeviceProfile device = profiles.devices[0];
                                    device.site = "s";
                                    return device;
                                  }()},
                                  .network = {.sites = {"s"}, .ports = {{}}}},
                                 {.explain = true});
  // But for the one op of the loss that takes the same whatever a micro-batch's size is, and was measured.
  EXPECT_GT(plan.fitted_share, 0.98);
  EXPECT_LT(plan.fitted_share, 1);
  EXPECT_NEAR(plan.fitted_relative_error, kInferredError, 1e-9);
  EXPECT_THAT(plan.explain, Contains(HasSubstr("99% follow from what the same ops took at other micro-batch sizes")));
}

// What a search looked at of a valley with its bottom at `least`; above `most` nothing fits.
std::vector<SizeCost> Searched(const std::vector<int64_t>& sizes, int64_t first, double least, double most = 1e9) {
  const auto searched = SearchSizes(sizes, first, [&](int64_t size) -> absl::StatusOr<double> {
    if (static_cast<double>(size) > most) return std::numeric_limits<double>::infinity();
    return 1 + std::abs(std::log(static_cast<double>(size) / least));
  });
  EXPECT_TRUE(searched.ok()) << searched.status();
  return *searched;
}

int64_t Best(const std::vector<SizeCost>& searched) {
  return std::min_element(searched.begin(), searched.end(), [](const auto& a, const auto& b) { return a.cost < b.cost; })->size;
}

TEST(SearchSizes, TheBottomOfTheValleyIsFoundFromAnywhere) {
  const std::vector<int64_t> sizes = {1,  2,  3,  4,  5,  6,  8,  9,  10, 12,  15,  16,  18,  20,  24,
                                      30, 36, 40, 45, 48, 60, 72, 80, 90, 120, 144, 180, 240, 360, 720};
  for (const int64_t first : sizes) {
    for (const int64_t least : sizes) {
      const std::vector<SizeCost> searched = Searched(sizes, first, static_cast<double>(least));
      EXPECT_EQ(Best(searched), least) << "from " << first;
      EXPECT_LT(searched.size(), sizes.size() * 3 / 4) << "from " << first << " to " << least;
    }
  }
}

TEST(SearchSizes, WhatDoesNotFitIsLeftForWhatDoes) {
  const std::vector<int64_t> sizes = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  EXPECT_EQ(Best(Searched(sizes, 64, 16, 3)), 2);
  EXPECT_EQ(Best(Searched(sizes, 1, 16, 8)), 8);
  EXPECT_EQ(Searched(sizes, 64, 16, 0.5).front().size, 1) << "down to the least";
  EXPECT_THAT(Searched({7}, 7, 16), SizeIs(1));
}

}  // namespace
}  // namespace fusionllm::planning
