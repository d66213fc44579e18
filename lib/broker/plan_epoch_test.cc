#include "lib/broker/plan_epoch.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Of;
using ::testing::SizeIs;

class PlanEpochTest : public ::testing::Test {
 protected:
  using State = PlanEpoch::State;
  PlanEpochTest() {
    for (const char* name : {"a0", "b0", "c0", "d0"}) executors_.Join({.name = name, .incarnation = 1});
  }
  static RunPlan TwoStages(int replicas = 1) {
    std::vector<std::string> devices = {"a0", "b0"};
    if (replicas == 2) devices.insert(devices.end(), {"c0", "d0"});
    return testing::PlanOn(devices, {0.1, 0.2}, /*memory_bytes=*/0, replicas);
  }
  void Run(PlanEpoch& epoch, RunPlan plan) {
    epoch.SetPlan(std::move(plan));
    epoch.Begin(0);
    epoch.Start();
  }
  bool Step(PlanEpoch& epoch, int64_t step, const std::string& name = "a0") {
    return epoch.OnStep({.epoch = epoch.number(), .name = name, .record = {.step = step}});
  }

  RunOptions options_{.total_steps = 100};
  ExecutorSet executors_{options_};
  ActionQueue queue_;
};

TEST_F(PlanEpochTest, LoadsUntilAllStagesAreReadyThenRunsToItsEnd) {
  PlanEpoch epoch(options_);
  EXPECT_EQ(epoch.state(), State::kNone);
  epoch.SetPlan(TwoStages());
  EXPECT_TRUE(epoch.Begin(10));
  EXPECT_EQ(epoch.state(), State::kLoading);
  EXPECT_EQ(epoch.number(), 1u);
  EXPECT_EQ(epoch.last_step(), 10);
  EXPECT_FALSE(epoch.OnReady("b0", 2));
  EXPECT_TRUE(epoch.OnReady("a0", 1));
  EXPECT_EQ(epoch.load_s(), 2) << "the slowest";
  EXPECT_FALSE(epoch.loaded_once());
  epoch.Start();
  EXPECT_TRUE(epoch.runs());
  EXPECT_TRUE(epoch.loaded_once());
  epoch.OnEnded("a0", 100);
  EXPECT_FALSE(epoch.AllEnded());
  epoch.OnEnded("b0", 100);
  EXPECT_TRUE(epoch.AllEnded());
  EXPECT_FALSE(epoch.EndedBeforeLastStep());
  epoch.End();
  EXPECT_EQ(epoch.state(), State::kEnded);
  epoch.Leave();
  EXPECT_EQ(epoch.state(), State::kNone);
  EXPECT_FALSE(epoch.Begin(20)) << "not the first of this broker";
  EXPECT_EQ(epoch.number(), 2u);
}

TEST_F(PlanEpochTest, StepsCountFromItsFirstStageAndOnlyOnce) {
  PlanEpoch epoch(options_);
  epoch.SetPlan(TwoStages());
  epoch.Begin(0);
  EXPECT_FALSE(Step(epoch, 1)) << "it loads";
  epoch.Start();
  EXPECT_FALSE(Step(epoch, 1, "b0"));
  EXPECT_FALSE(Step(epoch, 101)) << "a step that the run does not have";
  EXPECT_TRUE(Step(epoch, 1));
  EXPECT_TRUE(epoch.stepped());
  EXPECT_FALSE(Step(epoch, 1));
  EXPECT_FALSE(epoch.OnStep({.epoch = 7, .name = "a0", .record = {.step = 2}}));
}

TEST_F(PlanEpochTest, DrainAbortsWhoIsPresentAndHasNotEnded) {
  PlanEpoch epoch(options_);
  Run(epoch, TwoStages(/*replicas=*/2));
  epoch.OnEnded("c0", 5);
  executors_.Leave("d0", 1);
  epoch.Drain("lost", executors_, queue_);
  EXPECT_EQ(epoch.state(), State::kStopping);
  EXPECT_THAT(epoch.waiting(), ElementsAre("a0", "b0"));
  EXPECT_THAT(Of<SendAbort>(queue_.Take()), SizeIs(2));
  EXPECT_FALSE(epoch.OnStopped("a0"));
  EXPECT_TRUE(epoch.OnStopped("b0"));
  EXPECT_TRUE(epoch.AllStopped());
  epoch.Pause();
  EXPECT_FALSE(epoch.OnStopped("b0")) << "the next try is waited for";
}

TEST_F(PlanEpochTest, AdoptedEpochResumesWhenAllAreBack) {
  PlanEpoch epoch(options_);
  epoch.Adopt(4, TwoStages(), 12, {});
  EXPECT_EQ(epoch.state(), State::kRejoining);
  EXPECT_TRUE(epoch.stepped());
  EXPECT_TRUE(Step(epoch, 13)) << "repeated to the broker that took over";
  epoch.OnRejoined("a0", 4);
  epoch.OnRejoined("s0", 0);
  EXPECT_FALSE(epoch.CanResume());
  epoch.OnRejoined("b0", 4);
  EXPECT_TRUE(epoch.CanResume());
  epoch.OnLost("a0");
  EXPECT_FALSE(epoch.CanResume());
  epoch.OnRejoined("a0", 4);
  epoch.Resume();
  EXPECT_TRUE(epoch.runs());
}

TEST_F(PlanEpochTest, AdoptedEpochIsBrokenByAStageWithoutItAndByOneThatIsGone) {
  PlanEpoch epoch(options_);
  epoch.Adopt(4, TwoStages(), 12, {});
  epoch.OnRejoined("b0", 0);
  EXPECT_EQ(epoch.state(), State::kBroken);
  EXPECT_TRUE(epoch.adopted());
  for (const char* name : {"a0", "b0"}) epoch.OnRejoined(name, 4);
  EXPECT_FALSE(epoch.CanResume());
  options_.lost_executors = {"a0"};
  PlanEpoch gone(options_);
  gone.Adopt(4, TwoStages(), 12, {});
  EXPECT_EQ(gone.state(), State::kBroken);
}

TEST_F(PlanEpochTest, NumbersFollowThoseThatExecutorsAreFoundToRun) {
  PlanEpoch epoch(options_);
  epoch.RecordForeign(6);
  epoch.RecordForeign(3);
  Run(epoch, TwoStages());
  EXPECT_EQ(epoch.number(), 7u);
}

TEST_F(PlanEpochTest, OtherReplicasAreNotRequiredOnceReplicaZeroHasEnded) {
  PlanEpoch epoch(options_);
  Run(epoch, TwoStages(/*replicas=*/2));
  epoch.OnEnded("a0", 50);
  EXPECT_FALSE(epoch.IsNoLongerRequired(2));
  epoch.OnEnded("b0", 50);
  EXPECT_TRUE(epoch.IsNoLongerRequired(2));
  EXPECT_FALSE(epoch.IsNoLongerRequired(0));
  EXPECT_FALSE(epoch.IsNoLongerRequired(-1));
  EXPECT_TRUE(epoch.EndedBeforeLastStep());
  EXPECT_THAT(epoch.UnfinishedRanks(), ElementsAre(2, 3));
  executors_.Leave("d0", 1);
  epoch.EndOtherReplicas("c0 has failed", executors_, queue_);
  EXPECT_TRUE(epoch.AllEnded());
  EXPECT_THAT(Of<SendAbort>(queue_.Take()), SizeIs(1)) << "d0 is gone";
  EXPECT_THAT(epoch.UnfinishedRanks(), IsEmpty());
}

TEST_F(PlanEpochTest, ReportsAreCurrentFromTheirStageOfThisEpoch) {
  PlanEpoch epoch(options_);
  Run(epoch, TwoStages(/*replicas=*/2));
  EXPECT_TRUE(epoch.IsCurrent(StageEnded{.epoch = 1, .name = "d0", .last_step = 100}));
  EXPECT_FALSE(epoch.IsCurrent(StageEnded{.epoch = 1, .name = "d0", .last_step = 101}));
  EXPECT_FALSE(epoch.IsCurrent(StageEnded{.epoch = 1, .name = "s0", .last_step = 100}));
  EXPECT_FALSE(epoch.IsCurrent(StageEnded{.epoch = 2, .name = "d0", .last_step = 100}));
  EXPECT_TRUE(epoch.IsCurrent(ShardWritten{.epoch = 1, .name = "b0", .step = 3, .stage = 1}));
  EXPECT_FALSE(epoch.IsCurrent(ShardWritten{.epoch = 1, .name = "a0", .step = 3, .stage = 1}));
  EXPECT_FALSE(epoch.IsCurrent(ShardWritten{.epoch = 1, .name = "c0", .step = 3, .stage = 2})) << "replica 0 writes for all";
  EXPECT_EQ(epoch.AtStage("d0", absl::InternalError("broken")), "stage 1 of replica 1 on d0: broken");
}

TEST_F(PlanEpochTest, DeviceThatIsReplacedLeavesNoFigures) {
  PlanEpoch epoch(options_);
  epoch.SetPlan(TwoStages());
  epoch.SetDevice(1, "c0");
  EXPECT_EQ(epoch.plan().devices, (std::vector<std::string>{"a0", "c0"}));
  EXPECT_EQ(testing::BusySeconds(epoch.plan()), (std::vector<double>{0.1, 0}));
  RunPlan figures = epoch.plan();
  testing::SetStages(figures, {0.1, 0.4});
  figures.desired_executors = 9;
  epoch.SetFigures(figures);
  EXPECT_EQ(epoch.plan().BusySecondsOf(1), 0.4);
  EXPECT_EQ(epoch.plan().desired_executors, 0) << "known to the run, not to the planner's document";
}

}  // namespace
}  // namespace fusionllm::broker
