#include "lib/broker/recovery_policy.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Of;
using ::testing::SizeIs;

TEST(RecoveryPolicyTest, TriesWithoutProgressWaitEverLonger) {
  RecoveryPolicy recovery({});
  ActionQueue queue;
  std::vector<double> waits;
  for (int i = 0; i < 9; ++i) waits.push_back(recovery.ScheduleRetry(/*lost=*/false, queue));
  EXPECT_EQ(waits, (std::vector<double>{0, 1, 2, 4, 8, 16, 32, 60, 60}));
  recovery.OnStep();
  EXPECT_EQ(recovery.ScheduleRetry(/*lost=*/false, queue), 0);
}

TEST(RecoveryPolicyTest, LossesAreAnsweredAtOnceAFewTimes) {
  RecoveryPolicy recovery({});
  ActionQueue queue;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(recovery.ScheduleRetry(/*lost=*/true, queue), 0) << i;
  EXPECT_EQ(recovery.ScheduleRetry(/*lost=*/true, queue), 1);
  recovery.OnAwaited();
  EXPECT_EQ(recovery.ScheduleRetry(/*lost=*/true, queue), 0);
}

TEST(RecoveryPolicyTest, GivesUpWithTheLastCause) {
  RecoveryPolicy recovery({.max_recoveries = 1});
  recovery.OnStopping("b0 was lost", 12);
  EXPECT_TRUE(recovery.CheckRetryLimit().ok());
  ActionQueue queue;
  recovery.ScheduleRetry(/*lost=*/true, queue);
  const EmitEvent reported = Of<EmitEvent>(queue.Take()).back();
  EXPECT_EQ(reported.message, "recovery 1 of at most 1: b0 was lost");
  EXPECT_EQ(reported.step, 12);
  recovery.OnStopping("a0 was lost", 12);
  EXPECT_EQ(recovery.CheckRetryLimit(), absl::UnavailableError("gave up after 1 recoveries; the last one was for this: a0 was lost"));
}

TEST(RecoveryPolicyTest, RestoreIsReportedOnceUntilAStepIsMade) {
  RecoveryPolicy recovery({});
  ActionQueue queue;
  for (int i = 0; i < 2; ++i) recovery.EmitRestored(10, "restoring step 10", queue);
  EXPECT_THAT(queue.Take(), SizeIs(1));
  recovery.OnStep();
  recovery.EmitRestored(10, "restoring step 10", queue);
  EXPECT_THAT(queue.Take(), SizeIs(1));
}

class SparesTest : public ::testing::Test {
 protected:
  void Start(const RunOptions& options) {
    executors_.emplace(options);
    recovery_.emplace(options);
    epoch_.emplace(options);
    epoch_->SetPlan(testing::PlanOn({"a0", "b0"}, {}, /*memory_bytes=*/50));
    Join("b0", false);
  }
  void Join(const std::string& name, bool spare = true, int64_t memory_bytes = 100) {
    executors_->Join({.name = name, .incarnation = 1, .spare = spare, .memory_bytes = memory_bytes});
  }
  bool ReplaceLost() { return recovery_->ReplaceLost(*epoch_, *executors_); }

  std::optional<ExecutorSet> executors_;
  std::optional<RecoveryPolicy> recovery_;
  std::optional<PlanEpoch> epoch_;
  ActionQueue queue_;
};

TEST_F(SparesTest, SpareTakesTheStageOfALostDevice) {
  Start({});
  Join("c0", /*spare=*/false);
  Join("s0");
  EXPECT_TRUE(ReplaceLost());
  EXPECT_EQ(epoch_->plan().devices[0], "s0") << "declared spares first";
  EXPECT_TRUE(recovery_->any_activated());
  recovery_->EmitActivated(/*figures_are_theirs=*/false, queue_);
  EXPECT_THAT(Of<EmitEvent>(queue_.Take()).back().message, HasSubstr("s0 takes stage 0 from a0; the predicted times are still"));
  EXPECT_FALSE(recovery_->any_activated());
}

TEST_F(SparesTest, SpareMustHaveRoomDataAndTheJobsLeave) {
  Start({.data_devices = {"a0", "d0"}, .excluded = {"x0"}, .min_executor_memory_bytes = 60});
  Join("s0");
  Join("x0");
  EXPECT_FALSE(ReplaceLost()) << "without the data";
  Join("d0", /*spare=*/true, /*memory_bytes=*/55);
  EXPECT_FALSE(ReplaceLost()) << "too little memory";
  Join("d0");
  EXPECT_TRUE(ReplaceLost());
  EXPECT_EQ(epoch_->plan().devices[0], "d0");
}

TEST_F(SparesTest, SpareThatIsLostBeforeItBeginsIsNotReported) {
  Start({});
  Join("s0");
  ReplaceLost();
  executors_->Leave("s0", 1);
  Join("s1");
  EXPECT_TRUE(ReplaceLost());
  recovery_->EmitActivated(/*figures_are_theirs=*/true, queue_);
  const auto events = Of<EmitEvent>(queue_.Take());
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].message, "s1 takes stage 0 from s0");
}

TEST_F(SparesTest, AllPresentNeedNoSpare) {
  Start({});
  Join("a0", /*spare=*/false);
  EXPECT_TRUE(ReplaceLost());
  EXPECT_FALSE(recovery_->any_activated());
  EXPECT_THAT(queue_.Take(), IsEmpty());
}

}  // namespace
}  // namespace fusionllm::broker
