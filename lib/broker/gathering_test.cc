#include "lib/broker/gathering.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_state_harness.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {
namespace {

using ::testing::HasSubstr;
using testing::Of;
using testing::Reasons;

class GatheringTest : public ::testing::Test {
 protected:
  using Kind = Gathering::Verdict::Kind;
  using State = Gathering::State;
  void Start(const RunOptions& options) {
    executors_.emplace(options);
    gathering_.emplace(options);
  }
  void Join(const std::string& name) { executors_->Join({.name = name, .incarnation = 1, .memory_bytes = 100}); }
  Gathering::Verdict Changed() { return gathering_->OnExecutorsChanged(*executors_, at_, queue_); }
  // The end of the timer that runs.
  Gathering::Verdict Timer() { return gathering_->OnTimer(queue_.timer(), *executors_, at_, queue_); }
  // Seconds of the timer that was started last, of what was ordered since the question before; 0: none was.
  double Seconds() {
    const auto timers = Of<StartTimer>(actions_ = queue_.Take());
    return timers.empty() ? 0 : timers.back().seconds;
  }

  std::optional<ExecutorSet> executors_;
  std::optional<Gathering> gathering_;
  RunPosition at_;
  ActionQueue queue_;
  std::vector<Action> actions_;
};

TEST_F(GatheringTest, MeasuresWhenAllExpectedAreHere) {
  Start({.expected = {"a0", "b0"}});
  Join("a0");
  EXPECT_EQ(Changed().kind, Kind::kWait);
  EXPECT_EQ(Seconds(), kGatherSeconds);
  Join("b0");
  EXPECT_EQ(Changed().kind, Kind::kMeasure);
  EXPECT_EQ(Seconds(), 0);
}

TEST_F(GatheringTest, OpenRunWaitsForItsNumberWithoutALimit) {
  Start({.min_executors = 2});
  Join("a0");
  const uint64_t before = queue_.timer();
  EXPECT_EQ(Changed().kind, Kind::kWait);
  EXPECT_EQ(Seconds(), 0);
  EXPECT_GT(queue_.timer(), before) << "a timer that runs is about something else";
  Join("b0");
  EXPECT_EQ(Changed().kind, Kind::kMeasure);
}

TEST_F(GatheringTest, ClosedRunIsCompleteWithTheData) {
  Start({.expected = {"a0", "b0"}, .data_devices = {"b0"}});
  gathering_->Close();
  Join("a0");
  EXPECT_FALSE(gathering_->IsComplete(*executors_, /*planned=*/false));
  Join("b0");
  EXPECT_TRUE(gathering_->IsComplete(*executors_, /*planned=*/false));
}

TEST_F(GatheringTest, ExecutorsThatNeverJoinEndTheRun) {
  Start({.expected = {"a0", "b0"}});
  Join("a0");
  Changed();
  const Gathering::Verdict verdict = Timer();
  EXPECT_EQ(verdict.kind, Kind::kFail);
  EXPECT_EQ(verdict.failure, absl::DeadlineExceededError("executors did not join: b0"));
}

TEST_F(GatheringTest, LostExecutorIsGivenUpOnceOthersBeganToMeasure) {
  Start({.expected = {"a0", "b0"}});
  gathering_->Begin();
  Join("a0");
  EXPECT_EQ(Changed().kind, Kind::kWait);
  EXPECT_EQ(Seconds(), 20) << "executor_timeout_s";
  EXPECT_EQ(Timer().kind, Kind::kMeasure);
  EXPECT_EQ(executors_->StateOf("b0"), ExecutorSet::State::kGivenUp);
}

TEST_F(GatheringTest, WaitForDataIsReportedAfterAMomentAndThenLimited) {
  Start({.expected = {"a0", "b0"}, .data_devices = {"b0"}});
  Join("a0");
  Changed();
  EXPECT_EQ(Seconds(), kDataWaitNoticeSeconds);
  EXPECT_EQ(Timer().kind, Kind::kWait);
  EXPECT_EQ(Seconds(), kGatherSeconds - kDataWaitNoticeSeconds);
  EXPECT_THAT(Reasons(actions_), ::testing::ElementsAre("WaitingForData"));
  const Gathering::Verdict verdict = Timer();
  EXPECT_EQ(verdict.kind, Kind::kFail);
  EXPECT_THAT(std::string(verdict.failure.message()), HasSubstr("no device that has the training data has joined: b0"));
}

TEST_F(GatheringTest, NoPlanWithoutLostExecutorsIsWaitedForWhereTheyAreRestarted) {
  Start({.expected = {"a0", "b0"}});
  Join("a0");
  EXPECT_FALSE(gathering_->AwaitLost("too little memory", *executors_, at_, queue_)) << "nothing restarts them";
  Start({.expected = {"a0", "b0"}, .waits_for_executors = true});
  Join("a0");
  executors_->GiveUpMissing();
  EXPECT_TRUE(gathering_->AwaitLost("too little memory", *executors_, at_, queue_));
  EXPECT_EQ(Seconds(), 20);
  EXPECT_THAT(Reasons(actions_), ::testing::ElementsAre("WaitingForExecutors"));
  EXPECT_EQ(gathering_->lost_reason(), "too little memory");
  EXPECT_EQ(executors_->StateOf("b0"), ExecutorSet::State::kAbsent) << "it is awaited again";
  const Gathering::Verdict verdict = Timer();
  EXPECT_EQ(verdict.failure, absl::UnavailableError("b0 lost, and not back in 20 s: too little memory"));
  Join("b0");
  EXPECT_EQ(Changed().kind, Kind::kMeasure);
  EXPECT_EQ(gathering_->lost_reason(), "");
}

TEST_F(GatheringTest, DataThatComeBackLeadOnToWhatWasToCome) {
  at_ = {.planned = true, .last_step = 12, .checkpoint_step = 10, .checkpoint_path = "step-10"};
  for (const auto& [then, kind] : {std::pair(State::kDataThenPlan, Kind::kMeasure), std::pair(State::kDataThenRecovery, Kind::kRecover)}) {
    Start({.data_devices = {"a0"}, .data_timeout_s = 30});
    EXPECT_EQ(gathering_->AwaitData(then, *executors_, at_, queue_).kind, Kind::kWait);
    EXPECT_EQ(Seconds(), 30);
    EXPECT_EQ(gathering_->state(), then);
    Join("b0");
    EXPECT_EQ(Changed().kind, Kind::kWait);
    EXPECT_EQ(Seconds(), 0) << "the timer runs on";
    Join("a0");
    EXPECT_EQ(gathering_->AwaitData(then, *executors_, at_, queue_).kind, kind) << "they are here";
    EXPECT_EQ(Changed().kind, kind);
    EXPECT_EQ(gathering_->state(), State::kExecutors);
  }
}

TEST_F(GatheringTest, DataThatDoNotComeBackEndTheRunAndSayWhereItGoesOn) {
  at_ = {.planned = true, .last_step = 12, .checkpoint_step = 10, .checkpoint_path = "step-10"};
  Start({.data_devices = {"a0"}});
  Gathering::Verdict verdict = gathering_->AwaitData(State::kDataThenRecovery, *executors_, at_, queue_);
  EXPECT_EQ(verdict.kind, Kind::kFail) << "nothing restarts them";
  EXPECT_EQ(verdict.failure, absl::UnavailableError("a0, which alone has the training data, was lost after step 12; started again, the run "
                                                    "goes on after step 10, from step-10"));
  Start({.data_devices = {"a0"}, .data_timeout_s = 30});
  gathering_->AwaitData(State::kDataThenRecovery, *executors_, at_, queue_);
  verdict = Timer();
  EXPECT_EQ(verdict.kind, Kind::kFail);
  EXPECT_THAT(std::string(verdict.failure.message()), HasSubstr("and did not come back in 30 s"));
}

TEST_F(GatheringTest, TooLittleMemoryIsSaidOnceAllAreHere) {
  Start({.expected = {"a0", "b0"}, .min_model_memory = {.all_bytes = 1000}});
  Join("a0");
  EXPECT_EQ(gathering_->InsufficientMemoryReason(*executors_, /*planned=*/false), "") << "b0 may have what a0 lacks";
  Join("b0");
  EXPECT_NE(gathering_->InsufficientMemoryReason(*executors_, /*planned=*/false), "");
}

}  // namespace
}  // namespace fusionllm::broker
