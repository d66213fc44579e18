#include "services/broker/failover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/manifest.h"

namespace fusionllm::services {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

broker::ShardWritten Shard(int64_t step, int stage, char digit = 'a') {
  return {
      .epoch = 1,
      .step = step,
      .stage = stage,
      .files = {{.name = absl::StrCat("model-0000", stage + 1, "-of-00002.safetensors"), .bytes = 8, .sha256 = std::string(64, digit)}}};
}

class FailoverTest : public ::testing::Test {
 protected:
  FailoverTest() { past_.plan.devices = {"a", "b"}; }
  // What a commit of these shards leaves.
  void WriteCheckpoint(int64_t step, const std::vector<broker::ShardWritten>& shards) {
    checkpoint::Manifest manifest{.job_name = "job", .spec_hash = "1", .plan_hash = "2", .step = step};
    for (const broker::ShardWritten& shard : shards) {
      for (const checkpoint::FileEntry& file : shard.files) {
        manifest.files.push_back(
            {.name = file.name, .bytes = 8, .sha256 = file.sha256, .site = file.site, .site_folder = file.site_folder});
      }
    }
    folder_.Write(absl::StrCat(checkpoint::StepFolderName(step), "/manifest.json"), checkpoint::FormatManifest(manifest));
  }
  std::map<int64_t, std::string> TakeUp() { return RecoverCommitted(folder_.path(), past_, options_); }

  base::TempFolder folder_;
  JournalState past_;
  broker::RunOptions options_{.start_step = 5, .start_checkpoint = "earlier"};
};

TEST_F(FailoverTest, ACheckpointThatIsThereIsTakenUp) {
  past_.shards = {Shard(10, 0), Shard(10, 1), Shard(20, 0)};
  WriteCheckpoint(10, {Shard(10, 0), Shard(10, 1)});
  EXPECT_THAT(TakeUp(), ElementsAre(Pair(10, absl::StrCat(folder_.path(), "/step-000010"))));
  EXPECT_EQ(options_.start_step, 10);
  EXPECT_EQ(options_.start_checkpoint, absl::StrCat(folder_.path(), "/step-000010"));
  ASSERT_EQ(past_.shards.size(), 1u) << "those of step 20 go on waiting for the others";
  EXPECT_EQ(past_.shards[0].step, 20);
}

// Made again after the first was given up: the same bits, and only the later ones are known to be where they should.
TEST_F(FailoverTest, ACheckpointWithFilesInAnotherFolderOfTheSiteIsNotTheOne) {
  broker::ShardWritten before = Shard(10, 1), now = Shard(10, 1);
  before.files[0].site = now.files[0].site = "paris";
  before.files[0].site_folder = "0123456789abcdef/b/step-000010.0000000000000001";
  now.files[0].site_folder = "0123456789abcdef/b/step-000010.0000000000000002";
  past_.shards = {Shard(10, 0), now};
  WriteCheckpoint(10, {Shard(10, 0), before});
  EXPECT_THAT(TakeUp(), IsEmpty());
  WriteCheckpoint(10, {Shard(10, 0), now});
  EXPECT_THAT(TakeUp(), ElementsAre(Pair(10, absl::StrCat(folder_.path(), "/step-000010"))));
}

TEST_F(FailoverTest, TheRunDoesNotGoBackBehindTheCheckpointThatItHas) {
  past_.shards = {Shard(10, 0), Shard(10, 1)};
  past_.checkpoint_step = 20;
  past_.checkpoint_path = options_.start_checkpoint = "step-000020";
  options_.start_step = 20;
  WriteCheckpoint(10, {Shard(10, 0), Shard(10, 1)});
  EXPECT_THAT(TakeUp(), IsEmpty());
  EXPECT_EQ(options_.start_step, 20);
  EXPECT_EQ(options_.start_checkpoint, "step-000020");
}

TEST_F(FailoverTest, OfStepsBeforeTheOneThatIsTakenUpNothingIsLeft) {
  past_.shards = {Shard(10, 0), Shard(10, 1), Shard(20, 0), Shard(20, 1), Shard(30, 0)};
  WriteCheckpoint(20, {Shard(20, 0), Shard(20, 1)});  // that of step 10 has been pruned
  EXPECT_THAT(TakeUp(), ElementsAre(Pair(20, HasSubstr("step-000020"))));
  ASSERT_EQ(past_.shards.size(), 1u);
  EXPECT_EQ(past_.shards[0].step, 30);
}

TEST_F(FailoverTest, ACommitThatFailedLeavesNothingToRestore) {
  past_.shards = {Shard(10, 0), Shard(10, 1)};  // all are there, and their staging folder was removed: the disk was full
  EXPECT_THAT(TakeUp(), IsEmpty());
  EXPECT_EQ(options_.start_step, 5);
  EXPECT_EQ(options_.start_checkpoint, "earlier");
  EXPECT_EQ(past_.shards.size(), 2u);
}

TEST_F(FailoverTest, AShardReportedTwiceIsNotTwoStages) {
  past_.shards = {Shard(10, 0), Shard(10, 0)};
  WriteCheckpoint(10, {Shard(10, 0)});
  EXPECT_THAT(TakeUp(), IsEmpty());
}

TEST_F(FailoverTest, OfReplicasTheShardsOfOneAreAllThatThereAre) {
  past_.plan.devices = {"a", "b", "c", "d"};
  past_.plan.plan.replicas = 2;
  past_.shards = {Shard(10, 0), Shard(10, 1), Shard(20, 0)};
  WriteCheckpoint(10, {Shard(10, 0), Shard(10, 1)});
  WriteCheckpoint(20, {Shard(20, 0)});
  EXPECT_THAT(TakeUp(), ElementsAre(Pair(10, HasSubstr("step-000010"))));
}

TEST_F(FailoverTest, ACheckpointOfAnEarlierRunIsNotTheOneThatWasWritten) {
  past_.shards = {Shard(10, 0), Shard(10, 1)};
  WriteCheckpoint(10, {Shard(10, 0, 'b'), Shard(10, 1, 'b')});
  EXPECT_THAT(TakeUp(), IsEmpty());
  EXPECT_EQ(options_.start_step, 5);
}

}  // namespace
}  // namespace fusionllm::services
