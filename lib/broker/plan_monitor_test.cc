#include "lib/broker/plan_monitor.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_plans.h"

namespace fusionllm::broker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// a sends labels and b activations to c, over one shared link; the planner counts on 1 MB/s of it for each. A step is to take a second and
// takes more.
class SharedLinkTest : public ::testing::Test {
 protected:
  SharedLinkTest() {
    RunPlan plan = testing::PlanOn({"a", "b", "c"}, {0.5, 0.5, 0.5});
    plan.plan.predicted_step_seconds = 1;
    plan.plan.links = {testing::Between(plan, 0, 2, {.bytes = 4'000}), testing::Between(plan, 1, 2, {.bytes = 500'000})};
    plan_monitor_.Begin(
        plan,
        [](const std::string&, const std::string&) {
          return PlanMonitor::LinkFigures{2e6, 0};
        },
        [](const auto&, const auto&) { return true; });
  }
  // Steps in each of which both links were measured.
  std::vector<Slowdown> Steps(int count, double labels_bytes_per_s, double activations_bytes_per_s) {
    std::vector<Slowdown> found;
    for (int i = 0; i < count; ++i) {
      ++step_;
      const std::map<std::string, double> rates = {{"a", labels_bytes_per_s}, {"b", activations_bytes_per_s}, {"c", 0}};
      for (const auto& [name, rate] : rates) {
        Add(plan_monitor_.On({.name = name, .step = step_, .busy_s = 0.5, .rates = {{"c", {.bytes_per_s = rate, .samples = step_}}}}),
            found);
      }
      Add(plan_monitor_.OnStep(step_, 1.5), found);
    }
    return found;
  }
  static void Add(const std::vector<Slowdown>& more, std::vector<Slowdown>& found) { found.insert(found.end(), more.begin(), more.end()); }

  PlanMonitor plan_monitor_;
  int64_t step_ = 0;
};

TEST_F(SharedLinkTest, WhatSendsLittleMeasuresTheQueueAndIsNotJudged) {
  EXPECT_THAT(Steps(50, 2e3, 1e6), IsEmpty());
  EXPECT_EQ(plan_monitor_.representative_links(), (PlanMonitor::LinkSet{{"b", "c"}}));
}

TEST_F(SharedLinkTest, WhatSendsMostSaysThatTheLinkHasDegraded) {
  Steps(10, 1e6, 1e6);
  const std::vector<Slowdown> found = Steps(10, 2e3, 0.3e6);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].device, "b");
  EXPECT_EQ(found[0].peer, "c");
}

TEST_F(SharedLinkTest, AnOldMeasurementIsNoNewEvidence) {
  Steps(10, 1e6, 1e6);
  Steps(1, 1e6, 0.3e6);
  const int64_t last = step_;
  std::vector<Slowdown> found;
  for (int i = 0; i < 30; ++i) {
    ++step_;
    for (const char* name : {"a", "b", "c"}) {
      Add(plan_monitor_.On({.name = name, .step = step_, .busy_s = 0.5, .rates = {{"c", {.bytes_per_s = 0.3e6, .samples = last}}}}), found);
    }
    Add(plan_monitor_.OnStep(step_, 1.5), found);
  }
  EXPECT_THAT(found, IsEmpty());
}

// Two stages, 40 ms of round trip apart over 3.8 MB/s: eight messages of 90 kB a step take 64 ms each, and not the 24 ms of the rate alone.
std::vector<Slowdown> FortyStepsOverSlowPath(double bytes_per_s, double step_seconds) {
  RunPlan plan = testing::PlanOn({"a", "b"}, {0.1, 0.1});
  plan.plan.predicted_step_seconds = 0.6;
  plan.plan.micro_batches = 8;
  plan.plan.links = {testing::Between(plan, 0, 1, {.bytes = 8 * 90'000})};
  PlanMonitor watch;
  watch.Begin(
      plan,
      [](const std::string&, const std::string&) {
        return PlanMonitor::LinkFigures{3.8e6, 0.04};
      },
      [](const auto&, const auto&) { return false; });
  std::vector<Slowdown> found;
  for (int64_t step = 1; step <= 40; ++step) {
    watch.On({.name = "a", .step = step, .busy_s = 0.1, .rates = {{"b", {.bytes_per_s = bytes_per_s, .samples = step}}}});
    watch.On({.name = "b", .step = step, .busy_s = 0.1});
    for (Slowdown& slowdown : watch.OnStep(step, step_seconds)) found.push_back(std::move(slowdown));
  }
  return found;
}

TEST(PlanMonitorTest, SmallMessagesAreJudgedByTheirRoundTripToo) {
  EXPECT_THAT(FortyStepsOverSlowPath(1.2e6, 2), IsEmpty()) << "a third of the rate of the probe, and what such messages get";
  const std::vector<Slowdown> found = FortyStepsOverSlowPath(0.5e6, 2);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_DOUBLE_EQ(found[0].planned, 3.8e6);
  EXPECT_THAT(found[0].message, HasSubstr("3.8 MB/s, 1.41 MB/s for such messages (35 %)"));
}

TEST(PlanMonitorTest, ASlowLinkInAStepThatKeepsItsPredictionIsNotReported) { EXPECT_THAT(FortyStepsOverSlowPath(0.5e6, 0.65), IsEmpty()); }

// Two pipelines of two stages, of which c and d are the second.
TEST(PlanMonitorTest, AStragglerIsNamedByItsStageAndReplica) {
  RunPlan plan = testing::PlanOn({"a", "b", "c", "d"}, {0.4, 0.4, 0.4, 0.4}, /*memory_bytes=*/0, /*replicas=*/2);
  plan.plan.predicted_step_seconds = 1;
  PlanMonitor watch;
  watch.Begin(
      plan, [](const std::string&, const std::string&) { return PlanMonitor::LinkFigures(); },
      [](const auto&, const auto&) { return false; });
  std::vector<Slowdown> found;
  for (int64_t step = 1; step <= 40; ++step) {
    for (const std::string& name : plan.devices) watch.On({.name = name, .step = step, .busy_s = name == "c" && step <= 20 ? 0.9 : 0.4});
    for (Slowdown& slowdown : watch.OnStep(step, 1.5)) found.push_back(std::move(slowdown));
  }
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].device, "c");
  EXPECT_THAT(found[0].message, StartsWith("stage 0 of replica 1 on c has been busy for 0.9 s"));
  EXPECT_THAT(found[1].message, StartsWith("stage 0 of replica 1 on c is back at 0.4 s"));
}

}  // namespace
}  // namespace fusionllm::broker
