#include "lib/broker/run_checkpoints.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_state_harness.h"
#include "lib/checkpoint/layout.h"

namespace fusionllm::broker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Of;
using testing::Reasons;
using ::testing::SizeIs;

class RunCheckpointsTest : public ::testing::Test {
 protected:
  using AddResult = RunCheckpoints::AddResult;
  using Outcome = RunCheckpoints::Outcome;
  using Restore = RunCheckpoints::Restore;

  AddResult Add(int64_t step, int stage, absl::Status status = absl::OkStatus()) {
    return checkpoints_.Add({.step = step,
                             .stage = stage,
                             .files = {{.name = "shard"}},
                             .samples_consumed = stage == 0 ? 4 * step : 0,
                             .status = std::move(status),
                             .seconds = 2});
  }
  bool Commit(int64_t step) { return checkpoints_.CommitIfComplete(step, /*stages=*/2, {.codec_limit = "int8"}, queue_); }
  Outcome Committed(int64_t step, absl::Status status = absl::OkStatus(), const RunCheckpoints::CommitContext& at = {}) {
    return checkpoints_.OnCommitted({.step = step, .path = absl::StrCat("step-", step), .status = std::move(status)}, at, queue_);
  }

  RunCheckpoints checkpoints_{RunOptions()};
  ActionQueue queue_;
};

TEST_F(RunCheckpointsTest, ShardsOfAllStagesAreCommittedOnce) {
  EXPECT_EQ(Add(10, 1), AddResult::kAccepted);
  EXPECT_TRUE(Commit(10));
  EXPECT_THAT(queue_.Take(), IsEmpty()) << "stage 0 has not saved its shard";
  EXPECT_EQ(checkpoints_.shard_s(), 2);
  EXPECT_EQ(Add(10, 0), AddResult::kAccepted);
  EXPECT_THAT(checkpoints_.Collecting(), ElementsAre(10));
  EXPECT_TRUE(Commit(10));
  const auto commits = Of<CommitCheckpoint>(queue_.Take());
  ASSERT_THAT(commits, SizeIs(1));
  EXPECT_THAT(commits[0].files, SizeIs(2));
  EXPECT_EQ(commits[0].samples_consumed, 40);
  EXPECT_EQ(commits[0].codec_limit, "int8");
  EXPECT_TRUE(checkpoints_.UnderWay());
  EXPECT_EQ(Add(10, 0), AddResult::kIgnored) << "committing";
  EXPECT_EQ(Committed(10), Outcome::kContinues);
  EXPECT_EQ(checkpoints_.step(), 10);
  EXPECT_EQ(checkpoints_.path(), "step-10");
  EXPECT_FALSE(checkpoints_.UnderWay());
  EXPECT_EQ(Add(10, 0), AddResult::kIgnored) << "covered";
}

TEST_F(RunCheckpointsTest, FailedShardAbandonsTheStepOnceAllHaveReported) {
  EXPECT_EQ(Add(10, 0, absl::ResourceExhaustedError("full")), AddResult::kFirstFailure);
  EXPECT_TRUE(Commit(10));
  EXPECT_EQ(Add(10, 1, absl::ResourceExhaustedError("full")), AddResult::kAccepted);
  EXPECT_FALSE(Commit(10));
  EXPECT_THAT(Of<AbandonCheckpoint>(queue_.Take()), SizeIs(1));
  EXPECT_FALSE(checkpoints_.UnderWay());
}

TEST_F(RunCheckpointsTest, LaterCheckpointAbandonsWhatIsMissingOfEarlierSteps) {
  Add(10, 0);
  Add(20, 0);
  Add(20, 1);
  Add(30, 0);
  Commit(20);
  queue_.Take();
  Committed(20);
  const auto abandoned = Of<AbandonCheckpoint>(queue_.Take());
  ASSERT_THAT(abandoned, SizeIs(1));
  EXPECT_EQ(abandoned[0].step, 10);
  EXPECT_THAT(checkpoints_.Collecting(), ElementsAre(30));
}

TEST_F(RunCheckpointsTest, ErrorIsReportedUnlessItWasTheLastOneToBeHad) {
  const absl::Status full = absl::ResourceExhaustedError("full");
  EXPECT_EQ(Committed(10, full), Outcome::kContinues);
  EXPECT_THAT(Reasons(queue_.Take()), ElementsAre("CheckpointFailed"));
  EXPECT_EQ(Committed(20, full, {.is_last = true, .runs = true, .last_step = 20}), Outcome::kLost);
  ASSERT_TRUE(checkpoints_.lost().has_value());
  EXPECT_EQ(checkpoints_.lost()->step, 20);
  EXPECT_THAT(std::string(checkpoints_.lost()->status.message()), HasSubstr("checkpoint of step 20 was not saved: full"));
  checkpoints_.BeginEpoch();
  EXPECT_FALSE(checkpoints_.lost().has_value());
  EXPECT_EQ(Committed(20, full, {.is_last = true, .runs = false, .last_step = 20}), Outcome::kFatal);
}

TEST_F(RunCheckpointsTest, LastErrorIsNoneWhereTheStepIsCovered) {
  Committed(20);
  EXPECT_EQ(Committed(20, absl::ResourceExhaustedError("full"), {.is_last = true}), Outcome::kContinues);
}

TEST_F(RunCheckpointsTest, CheckpointThatCannotBeRestoredIsReplacedOnce) {
  Committed(10);
  queue_.Take();
  checkpoints_.Replace(queue_);
  EXPECT_THAT(queue_.Take(), IsEmpty()) << "it is usable";
  checkpoints_.MarkUnusable({.path = "step-10", .status = absl::NotFoundError("site a is away")});
  EXPECT_EQ(checkpoints_.restore(), Restore::kUnusable);
  checkpoints_.Replace(queue_);
  checkpoints_.Replace(queue_);
  EXPECT_THAT(Of<ReplaceCheckpoint>(queue_.Take()), SizeIs(1));
  EXPECT_EQ(checkpoints_.restore(), Restore::kReplacing);
  EXPECT_TRUE(checkpoints_.OnReplaced({.step = 5, .path = "step-5"}, queue_).ok());
  EXPECT_EQ(checkpoints_.restore(), Restore::kUsable);
  EXPECT_EQ(checkpoints_.step(), 5);
  EXPECT_EQ(Of<EmitEvent>(queue_.Take()).back().message, "step-10 cannot be restored: site a is away; the newest that may is step-5");
}

TEST_F(RunCheckpointsTest, NoReplacementIsAnErrorOfTheRun) {
  Committed(10);
  checkpoints_.MarkUnusable({.path = "step-10", .status = absl::NotFoundError("site a is away")});
  checkpoints_.Replace(queue_);
  const absl::Status status = checkpoints_.OnReplaced({.status = absl::NotFoundError("there is none")}, queue_);
  EXPECT_EQ(status.message(), "step-10 cannot be restored: site a is away; there is none");
}

TEST_F(RunCheckpointsTest, AdoptsShardsThatNoCheckpointCovers) {
  RunCheckpoints checkpoints({.start_step = 10, .start_checkpoint = "step-10"});
  checkpoints.Adopt({{.step = 10, .stage = 0}, {.step = 20, .stage = 0}});
  EXPECT_THAT(checkpoints.Collecting(), ElementsAre(20));
}

TEST_F(RunCheckpointsTest, ShardIsCurrentWithFilesOfItsStageWhereItsWriterMayKeepThem) {
  const RunOptions options{.total_steps = 100};
  ExecutorSet executors(options);
  executors.Join({.name = "a0", .incarnation = 1, .site = "a", .holds_shards = true});
  PlanEpoch epoch(options);
  epoch.SetPlan({.devices = {"a0"}});
  epoch.Begin(0);
  ShardWritten shard{.epoch = 1, .name = "a0", .step = 10};
  shard.files = {{.name = checkpoint::ShardFileName(checkpoint::ShardKind::kModel, 0, 1)}};
  EXPECT_TRUE(IsCurrentShard(shard, epoch, executors));
  shard.files[0].site = "b";
  EXPECT_FALSE(IsCurrentShard(shard, epoch, executors)) << "another site's";
  shard.files[0] = {.name = "../../etc/passwd"};
  EXPECT_FALSE(IsCurrentShard(shard, epoch, executors));
}

}  // namespace
}  // namespace fusionllm::broker
