#include "lib/broker/replanner.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Of;
using testing::Reasons;
using ::testing::SizeIs;

// Two stages of 0.4 s each, in a step of 1 s.
class ReplannerTest : public ::testing::Test {
 protected:
  using State = Replanner::State;
  using Decision = MigrationPolicy::Decision;

  ReplannerTest() : ReplannerTest(RunOptions{.total_steps = 1000, .checkpoints = true}) {}
  explicit ReplannerTest(const RunOptions& options) : executors_(options), measurement_(options), epoch_(options), replanner_(options) {
    for (const char* name : {"a0", "b0", "c0"}) executors_.Join({.name = name, .incarnation = 1, .site = "a"});
    plan_ = testing::PlanOn({"a0", "b0"}, {0.4, 0.4});
    plan_.plan.predicted_step_seconds = 1;
    plan_.executors = 2;
    plan_.desired_executors = 3;
    epoch_.SetPlan(plan_);
    epoch_.Begin(0);
    epoch_.Start();
    replanner_.BeginEpoch(plan_, measurement_, executors_);
  }
  // Steps in which b0 takes so long.
  void Steps(int count, double busy_b0) {
    for (int i = 0; i < count; ++i) {
      const StepRecord record{.step = epoch_.last_step() + 1, .step_seconds = 0.6 + busy_b0};
      epoch_.OnStep({.epoch = 1, .name = "a0", .record = record});
      replanner_.OnStep(record, epoch_, queue_);
      for (const auto& [name, busy_s] : {std::pair("a0", 0.4), std::pair("b0", busy_b0)}) {
        replanner_.OnMeasured({.epoch = 1, .name = name, .step = record.step, .busy_s = busy_s}, epoch_, queue_);
      }
    }
  }
  RequestPlan Ask() {
    replanner_.Ask({}, epoch_, /*shard_s=*/1, queue_);
    return Of<RequestPlan>(queue_.Take()).back();
  }

  ExecutorSet executors_;
  Measurement measurement_;
  PlanEpoch epoch_;
  Replanner replanner_;
  RunPlan plan_;
  ActionQueue queue_;
};

class ReplannerWithoutCheckpointsTest : public ReplannerTest {
 protected:
  ReplannerWithoutCheckpointsTest() : ReplannerTest(RunOptions{.total_steps = 1000}) {}
};

TEST_F(ReplannerTest, SlowdownIsReportedWithItsStageAndItsEnd) {
  Steps(20, 1.6);
  const auto events = Of<EmitEvent>(queue_.Take());
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].reason, "Straggler");
  EXPECT_EQ(events[0].device, "b0");
  EXPECT_EQ(events[0].stage, 1);
  EXPECT_TRUE(replanner_.IsTimeToAsk(epoch_.last_step(), /*late_joiners=*/false));
  Steps(20, 0.4);
  EXPECT_THAT(Reasons(queue_.Take()), ElementsAre("StragglerRecovered"));
  EXPECT_FALSE(replanner_.IsTimeToAsk(epoch_.last_step() + 100, /*late_joiners=*/false));
}

TEST_F(ReplannerWithoutCheckpointsTest, SlowdownIsReportedAndThePlanStays) {
  Steps(20, 1.6);
  EXPECT_THAT(Of<EmitEvent>(queue_.Take()).back().message, HasSubstr("the job keeps no checkpoints"));
  EXPECT_FALSE(replanner_.MayAsk(epoch_.last_step()));
  executors_.RecordTrainers(3);
  EXPECT_THAT(replanner_.DescribeLateJoiner(executors_.at("c0"), epoch_, executors_), HasSubstr("the job keeps no checkpoints"));
}

TEST_F(ReplannerTest, AsksOneQuestionAtATime) {
  EXPECT_TRUE(replanner_.MayAsk(10));
  EXPECT_FALSE(replanner_.MayAsk(998)) << "no steps are left to gain by it";
  const RequestPlan ask = Ask();
  EXPECT_EQ(replanner_.state(), State::kAsking);
  EXPECT_EQ(ask.alternative, 1u);
  EXPECT_EQ(ask.current_plan->devices, plan_.devices);
  EXPECT_GE(ask.current_plan->move_s, 3) << "with a shard of 1 s and two steps of 1 s";
  EXPECT_FALSE(replanner_.MayAsk(10));
  EXPECT_FALSE(replanner_.OnAnswer(2));
  EXPECT_TRUE(replanner_.OnAnswer(1));
  EXPECT_EQ(replanner_.state(), State::kMonitoring);
  EXPECT_FALSE(replanner_.OnAnswer(1)) << "answered";
  EXPECT_EQ(Ask().alternative, 2u);
}

TEST_F(ReplannerTest, BetterPlanIsMovedToWhenFoundTwice) {
  Steps(20, 1.6);
  RunPlan other = plan_;
  other.plan.predicted_step_seconds = 0.5;
  std::string figures;
  EXPECT_EQ(replanner_.DecideMigration(other, epoch_, 1, &figures), Decision::kAskAgain);
  EXPECT_EQ(replanner_.DecideMigration(other, epoch_, 1, &figures), Decision::kMove);
  EXPECT_NE(figures, "");
  replanner_.OnRefused();
  EXPECT_EQ(replanner_.DecideMigration(other, epoch_, 1, &figures), Decision::kAskAgain) << "what was found before counts no more";
}

TEST_F(ReplannerTest, SwitchEndsTheEpochAndHandsThePlanOver) {
  replanner_.Switch({.why = "c0 is faster", .plan = RunPlan{.devices = {"a0", "c0"}}}, epoch_, queue_);
  EXPECT_EQ(replanner_.state(), State::kSwitching);
  const auto stops = Of<SendStop>(queue_.Take());
  ASSERT_THAT(stops, SizeIs(1));
  EXPECT_EQ(stops[0].name, "a0");
  EXPECT_FALSE(replanner_.MayAsk(10));
  const std::optional<RunPlan> plan = replanner_.TakeSwitch();
  ASSERT_TRUE(plan.has_value());
  EXPECT_THAT(plan->devices, ElementsAre("a0", "c0"));
  EXPECT_EQ(replanner_.state(), State::kMonitoring);
  EXPECT_EQ(replanner_.OnTaken(), "c0 is faster");
  EXPECT_EQ(replanner_.OnTaken(), "") << "once";
}

TEST_F(ReplannerTest, AnswerThatComesDuringASwitchDoesNotCount) {
  Ask();
  replanner_.Switch({.why = "codecs up to int8"}, epoch_, queue_);
  EXPECT_FALSE(replanner_.OnAnswer(1));
  EXPECT_FALSE(replanner_.TakeSwitch().has_value()) << "its plan is asked for";
}

TEST_F(ReplannerTest, LostEpochForgetsItsSwitch) {
  replanner_.Switch({.why = "c0 is faster", .plan = plan_}, epoch_, queue_);
  replanner_.ForgetSwitch();
  EXPECT_EQ(replanner_.state(), State::kMonitoring);
  EXPECT_FALSE(replanner_.TakeSwitch().has_value());
  EXPECT_EQ(replanner_.OnTaken(), "");
}

TEST_F(ReplannerTest, TakenPlanMeetsWhatTheNextOneNeeded) {
  replanner_.NeedSpares(true);
  replanner_.NeedOtherCodecs("codecs up to int8");
  EXPECT_TRUE(replanner_.needs_spares() && replanner_.needs_other_codecs());
  EXPECT_EQ(replanner_.OnTaken(), "codecs up to int8");
  EXPECT_FALSE(replanner_.needs_spares() || replanner_.needs_other_codecs());
}

TEST_F(ReplannerTest, DeclinedJoinersHearWhyAndAreNotAskedAboutAgain) {
  executors_.RecordTrainers(3);
  ASSERT_THAT(executors_.LateJoiners(plan_), ElementsAre("c0"));
  EXPECT_THAT(replanner_.DescribeLateJoiner(executors_.at("c0"), epoch_, executors_), HasSubstr("made over 2 of 3 executors"));
  EXPECT_EQ(replanner_.DescribeLateJoiner(executors_.at("a0"), epoch_, executors_), "") << "it has a stage";
  replanner_.Decline({"c0"}, "another plan does not pay", 20, executors_, queue_);
  EXPECT_EQ(Of<EmitEvent>(queue_.Take()).back().message, "c0 stays a spare: another plan does not pay");
  EXPECT_THAT(executors_.LateJoiners(plan_), IsEmpty());
}

}  // namespace
}  // namespace fusionllm::broker
