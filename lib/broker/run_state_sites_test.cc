// Shards that stay in their sites: what is believed of them, and what becomes of a run whose checkpoint cannot be had any more.
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Of;
using testing::Options;
using testing::Reasons;
using testing::RunStateHarness;
using ::testing::SizeIs;

class RunStateSitesTest : public ::testing::Test {
 protected:
  RunStateSitesTest() {
    Join("a0", /*holds=*/false);
    Join("b0", /*holds=*/true);
    run_.Join("s0", /*spare=*/true);
  }
  void Join(const std::string& name, bool holds) {
    run_.Feed(ExecutorJoined{
        .executor = {.name = name, .incarnation = 1, .site = name.substr(0, 1), .pid = 7, .memory_bytes = 100, .holds_shards = holds}});
  }
  ShardWritten InSite(int64_t step) const {
    ShardWritten shard = run_.Shard(step, 1);
    shard.files[0].site = "b";
    shard.files[0].site_folder = "0123456789abcdef/b0/step-000010.fedcba9876543210";
    return shard;
  }
  // Loses stage 1 after two checkpoints; none is ready yet in what follows.
  void LoseAStageAfterTwoCheckpoints() {
    for (const int64_t step : {10, 20}) {
      run_.Step(step);
      run_.SaveShards(step);
    }
    run_.ignores = [](const Action& action) { return std::holds_alternative<SendAssign>(action); };
    run_.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
    ASSERT_EQ(run_.state.phase(), Phase::kLoading);
    before_ = run_.all.size();
  }
  std::vector<Action> Since() const { return {run_.all.begin() + static_cast<int64_t>(before_), run_.all.end()}; }
  void Unusable(const std::string& path = "step-20", uint32_t epoch = 2) {
    run_.Feed(CheckpointUnusable{.epoch = epoch, .path = path, .status = absl::DataLossError("its file lies in site b")});
  }

  RunStateHarness run_{Options({"a0", "b0", "s0"}), {"a0", "b0"}};
  size_t before_ = 0;
};

TEST_F(RunStateSitesTest, FilesInTheWritersOwnSiteAndUnderItsOwnNameAreBelieved) {
  run_.Step(10);
  EXPECT_TRUE(run_.state.IsCurrent(InSite(10)));
  const auto disbelieved = [&](const auto& spoil) {
    ShardWritten shard = InSite(10);
    spoil(shard.files[0]);
    return !run_.state.IsCurrent(shard);
  };
  EXPECT_TRUE(disbelieved([](checkpoint::FileEntry& file) { file.site = "a"; })) << "another site";
  EXPECT_TRUE(disbelieved([](checkpoint::FileEntry& file) { file.site = ""; })) << "beside the broker there are no such folders";
  EXPECT_TRUE(disbelieved([](checkpoint::FileEntry& file) { file.site_folder = ""; }));
  EXPECT_TRUE(disbelieved([](checkpoint::FileEntry& file) { file.site_folder = "0123456789abcdef/a0/step-000010.fedcba9876543210"; }))
      << "another's";
  EXPECT_TRUE(disbelieved([](checkpoint::FileEntry& file) { file.site_folder = "0123456789abcdef/b0/step-000011.fedcba9876543210"; }))
      << "of another step";
  EXPECT_TRUE(disbelieved([](checkpoint::FileEntry& file) { file.site_folder = "../../etc/step-000010.fedcba9876543210"; }));
  EXPECT_TRUE(disbelieved([](checkpoint::FileEntry& file) { file.tensor_bytes = 1; })) << "more than the file has";
  EXPECT_TRUE(disbelieved([](checkpoint::FileEntry& file) { file.bytes = -1; }));
  EXPECT_TRUE(disbelieved([](checkpoint::FileEntry& file) { file.bytes = std::numeric_limits<int64_t>::max(); }));
  ShardWritten other = run_.Shard(10, 0);
  other.files[0].site = "a";
  other.files[0].site_folder = "0123456789abcdef/a0/step-000010.fedcba9876543210";
  EXPECT_FALSE(run_.state.IsCurrent(other)) << "a0 holds no shards";
  run_.Feed(run_.Shard(10, 0));
  run_.Feed(InSite(10));
  const auto commits = Of<CommitCheckpoint>(run_.all);
  ASSERT_THAT(commits, SizeIs(1));
  EXPECT_EQ(commits[0].files[1].site, "b");
}

TEST_F(RunStateSitesTest, ARunGoesBackToTheNewestCheckpointThatIsLeft) {
  LoseAStageAfterTwoCheckpoints();
  Unusable();
  ASSERT_THAT(Of<ReplaceCheckpoint>(Since()), SizeIs(1));
  EXPECT_EQ(Of<ReplaceCheckpoint>(Since())[0].path, "step-20");
  EXPECT_THAT(Of<SendAbort>(Since()), SizeIs(2)) << "nobody loads meanwhile";
  run_.ignores = nullptr;
  run_.Feed(CheckpointReplaced{.step = 10, .path = "step-10"});
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
  EXPECT_THAT(Reasons(Since()), ElementsAre("CheckpointUnusable", "Recovering", "Restored"));
  EXPECT_THAT(Of<EmitEvent>(Since())[0].message,
              HasSubstr("step-20 cannot be restored: its file lies in site b; the newest that may is step-10"));
  EXPECT_EQ(Of<SendAssign>(Since())[0].restore_from, "step-10");
  EXPECT_EQ(Of<SendAssign>(Since())[0].first_step, 11);
  run_.Step(11);
  EXPECT_EQ(run_.state.last_step(), 11) << "the steps since are made again";
  run_.Step(20);
  run_.SaveShards(20);
  EXPECT_THAT(Of<CommitCheckpoint>(Since()), SizeIs(1)) << "and saved again";
}

TEST_F(RunStateSitesTest, WhatCannotBeReplacedEndsTheRun) {
  LoseAStageAfterTwoCheckpoints();
  Unusable();
  run_.Feed(CheckpointReplaced{.status = absl::NotFoundError("spec.checkpoint.resume names it")});
  EXPECT_EQ(run_.state.phase(), Phase::kFailed);
  const absl::Status status = Of<Finish>(run_.all).back().status;
  EXPECT_TRUE(absl::IsDataLoss(status)) << "lost under the run, and no bad input";
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("its file lies in site b"), HasSubstr("spec.checkpoint.resume names it")));
}

TEST_F(RunStateSitesTest, OnlyWhatIsBeingRestoredIsReplacedAndOnce) {
  LoseAStageAfterTwoCheckpoints();
  Unusable("step-10");
  Unusable("step-20", /*epoch=*/1);
  EXPECT_THAT(Of<ReplaceCheckpoint>(Since()), SizeIs(0));
  Unusable();
  Unusable();
  run_.Feed(ExecutorLeft{.name = "s0", .incarnation = 1, .why = "killed"});  // while it is looked for
  EXPECT_THAT(Of<ReplaceCheckpoint>(Since()), SizeIs(1));
  run_.Feed(TimerFired{.id = run_.timer->id});
  EXPECT_EQ(run_.state.phase(), Phase::kDraining) << "places have a patience of their own";
  run_.Feed(StopRequested{});
  run_.Feed(CheckpointReplaced{.step = 10, .path = "step-10"});
  EXPECT_EQ(run_.state.phase(), Phase::kDone);
}

}  // namespace
}  // namespace fusionllm::broker
