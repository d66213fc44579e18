// A limit on what leaves a site is kept to by stronger codecs before a plan is refused.
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/requests.h"
#include "lib/scheduler/testing/small_instances.h"

namespace fusionllm::scheduler {
namespace {

using ::testing::HasSubstr;

const CodecLevelPolicy& Ladder() {
  static const auto* const kLadder =
      new CodecLevelPolicy({{"fp32", 1, 1, 0}, {"fp16", 2, 2, 1e-5}, {"int8", 4, 4, 2e-4}, {"topk", 16, 16, 1e-3}});
  return *kLadder;
}

// Two stages at two sites with a fast link between them: 4 MB each way in a step, and some reports.
PlanRequest TwoNearSites() {
  PlanRequest request = testing::Chain({.ops = 4, .op_s = 0.1, .cut_bytes = 1'000'000}, 4);
  testing::AddDevice(request, "paris", 1);
  testing::AddDevice(request, "tokyo", 1);
  testing::LinkSites(request, 1e9, 1e-4, 1e9, 1e-3);
  request.stages = 2;
  request.codec_policy = &Ladder();
  return request;
}

TEST(EgressCodecsTest, TheMildestThatKeepsToTheLimitIsTaken) {
  for (const char* planner : {"op-fence", "exact", "equal-ops"}) {
    SCOPED_TRACE(planner);
    PlanRequest request = TwoNearSites();
    EXPECT_EQ(std::get<PlannedPipeline>(*MakePlan(planner, request)).links[0].codec, "fp32");
    for (const auto& [limit, codec] :
         std::map<int64_t, std::string>{{4'100'000, "fp32"}, {2'100'000, "fp16"}, {1'100'000, "int8"}, {300'000, "topk"}}) {
      request.max_egress_bytes = limit;
      const absl::StatusOr<PlanOutcome> outcome = MakePlan(planner, request);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      ASSERT_TRUE(std::holds_alternative<PlannedPipeline>(*outcome)) << limit << ": " << std::get<PlanError>(*outcome).message;
      const PlannedPipeline& plan = std::get<PlannedPipeline>(*outcome);
      EXPECT_EQ(plan.links[0].codec, codec) << limit;
      if (codec != "fp32") {
        EXPECT_THAT(plan.links[0].codec_reason, HasSubstr("maxEgressBytesPerStep"));
      }
      for (const auto& [site, bytes] : testing::EgressOf(request, plan)) EXPECT_LE(bytes, limit) << site;
    }
  }
}

TEST(EgressCodecsTest, RejectsEgressLimitBeyondStrongestCodec) {
  PlanRequest request = TwoNearSites();
  request.max_egress_bytes = 200'000;  // the strongest leaves 250 kB
  const PlanOutcome outcome = *MakePlan("op-fence", request);
  ASSERT_TRUE(std::holds_alternative<PlanError>(outcome));
  EXPECT_EQ(std::get<PlanError>(outcome).reason, "EgressLimitExceeded");
}

// Wherever the strongest codec on every link keeps to the limit, there is a plan, if memory is not short: milder codecs take larger
// buffers.
TEST(EgressCodecsTest, NoPlanIsRefusedThatTheStrongestCodecWouldAllow) {
  const CodecLevelPolicy strongest({{"topk", 16, 16, 1e-3}});
  int compressed = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    testing::SmallInstance instance = testing::DrawSmallInstance(seed, {.max_ops = 6, .max_devices = 4});
    PlanRequest& request = instance.request;
    for (Device& device : request.devices) device.memory_bytes = int64_t{1} << 40;
    request.use_all_devices = true;
    request.codec_policy = &strongest;
    const auto least = MakePlan("equal-ops", request);
    ASSERT_TRUE(least.ok()) << least.status();
    if (!std::holds_alternative<PlannedPipeline>(*least)) continue;
    const PlannedPipeline& plan = std::get<PlannedPipeline>(*least);
    int64_t limit = 0;
    for (const auto& [site, bytes] : testing::EgressOf(request, plan)) limit = std::max(limit, bytes);
    if (limit == 0) continue;
    for (const TiedExchange& tied : plan.tied) limit += tied.bytes * static_cast<int64_t>(tied.stages.size() * tied.stages.size());
    request.max_egress_bytes = limit + 2 * request.report_bytes * static_cast<int64_t>(plan.stages.size());
    request.codec_policy = &Ladder();
    const auto outcome = MakePlan("equal-ops", request);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_TRUE(std::holds_alternative<PlannedPipeline>(*outcome)) << "seed " << seed << ": " << std::get<PlanError>(*outcome).message;
    for (const auto& [site, bytes] : testing::EgressOf(request, std::get<PlannedPipeline>(*outcome)))
      EXPECT_LE(bytes, *request.max_egress_bytes) << site;
    ++compressed;
  }
  EXPECT_GE(compressed, 30);
}

}  // namespace
}  // namespace fusionllm::scheduler
