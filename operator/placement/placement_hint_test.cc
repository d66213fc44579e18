#include "operator/placement/placement_hint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/plan/plan.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::op::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string PlanOn(const std::vector<std::string>& devices) {
  plan::Plan plan{.strategy = "op-fence", .predicted_step_seconds = 0.25, .graph_hash = "0123456789abcdef"};
  for (const std::string& device : devices) {
    plan.stages.push_back({.index = static_cast<int>(plan.stages.size()), .devices = {device}, .ops = {"op" + device}});
  }
  return wire::PrintPlan(plan);
}

TEST(PlacementHintTest, ClustersCountByTheirStages) {
  const PlacementHint hint = PlacementHintOf(PlanOn({"paris-0", "new-york-1", "new-york-0", "new-york-12"}));
  EXPECT_THAT(hint.ranking, ElementsAre(RankedCluster{"new-york", 3}, RankedCluster{"paris", 1})) << hint.message;
  EXPECT_EQ(hint.reason, kPlanFound);
  EXPECT_EQ(hint.message, "The scheduler expects the fastest steps, 0.25 s, of new-york with 3, paris with 1.");
}

TEST(PlacementHintTest, RejectionNamesShortage) {
  const PlacementHint hint =
      PlacementHintOf(wire::PrintPlan(plan::PlanError{.reason = "InsufficientMemory",
                                                      .message = "stage 3 needs 11.2 GiB, the largest device has 8 GiB",
                                                      .shortfall = {"memory_bytes", 12e9, 8e9}}));
  EXPECT_THAT(hint.ranking, IsEmpty());
  EXPECT_EQ(hint.reason, kPlanInfeasible);
  EXPECT_THAT(hint.message, HasSubstr("(InsufficientMemory): stage 3 needs 11.2 GiB, the largest device has 8 GiB."));
}

TEST(PlacementHintTest, NoAnswerIsNoAdvice) {
  for (const absl::StatusOr<std::string>& answer :
       {absl::StatusOr<std::string>(absl::UnavailableError("connection refused")), absl::StatusOr<std::string>("no plan")}) {
    const PlacementHint hint = PlacementHintOf(answer);
    EXPECT_THAT(hint.ranking, IsEmpty());
    EXPECT_EQ(hint.reason, kSchedulerUnavailable);
    EXPECT_THAT(hint.message, HasSubstr("Executors are placed by room and preference."));
  }
}

}  // namespace
}  // namespace fusionllm::op::placement
