#include "services/executor/checkpoint_io.h"

#include <filesystem>

#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/shared_folder.h"
#include "services/machine_identity.h"

namespace fusionllm::services {
namespace {

class SharedFilesTest : public ::testing::Test {
 protected:
  v1::Welcome Welcome(const std::string& token, const std::string& machine) const {
    v1::Welcome welcome;
    welcome.set_shared_token_file(mark_.file());
    welcome.set_shared_token(token);
    welcome.set_machine(machine);
    return welcome;
  }

  const base::TempFolder folder_;
  const std::string checkpoints_ = folder_ / "run/checkpoints";
  const SharedFolder mark_ = *SharedFolder::Mark(checkpoints_);
};

TEST_F(SharedFilesTest, WhoReadsTheTokenSharesTheFolderAndNothingElse) {
  const SharedFiles shared(Welcome(mark_.token(), "another kernel"));
  EXPECT_TRUE(shared.HasCheckpoints(checkpoints_));
  EXPECT_TRUE(shared.Has(checkpoints_ + "/step-000010"));
  EXPECT_FALSE(shared.Has(checkpoints_ + "-of-others/step-000010"));
  EXPECT_FALSE(shared.Has(folder_ / "model")) << "the network file system may hold the run's folder only";
}

TEST_F(SharedFilesTest, PathsAreWhereTheyLeadAndNotHowTheyAreSpelt) {
  const SharedFiles shared(Welcome(mark_.token(), "another kernel"));
  folder_.Write("secret/key", "x");
  std::filesystem::create_symlink(folder_ / "secret", checkpoints_ + "/way-out");
  EXPECT_FALSE(shared.Has(checkpoints_ + "/../../secret/key"));
  EXPECT_FALSE(shared.Has(checkpoints_ + "/way-out/key"));
  EXPECT_FALSE(shared.HasCheckpoints(folder_ / "secret")) << "shards would be written there";
  EXPECT_FALSE(shared.HasCheckpoints(checkpoints_ + "/../../secret"));
  std::filesystem::remove(checkpoints_ + "/way-out");
}

TEST_F(SharedFilesTest, AnEmptyFileIsNoMarkOfAnEmptyToken) {
  v1::Welcome welcome;
  folder_.Write("home/.hushlogin", "");
  welcome.set_shared_token_file(folder_ / "home/.hushlogin");
  const SharedFiles shared(welcome);
  EXPECT_FALSE(shared.Has(folder_ / "home/.ssh/id_ed25519"));
  EXPECT_FALSE(shared.HasCheckpoints(folder_ / "home"));
}

TEST_F(SharedFilesTest, WhoJoinedByHimselfSharesNoMoreThanTheFolderOnTheSameMachineToo) {
  const SharedFiles shared(Welcome(mark_.token(), MachineIdentity()), /*of_the_run=*/false);
  EXPECT_FALSE(shared.Has("/anywhere"));
  EXPECT_TRUE(shared.HasCheckpoints(checkpoints_));
}

TEST_F(SharedFilesTest, WhoSeesTheSameMountsSharesAllFiles) {
  ASSERT_NE(MachineIdentity(), "");
  EXPECT_TRUE(SharedFiles(Welcome(mark_.token(), MachineIdentity())).Has("/anywhere"));
}

TEST_F(SharedFilesTest, AnotherTokenNoFileOrNoRightToWriteIsNotShared) {
  EXPECT_FALSE(SharedFiles(Welcome("other words", "another kernel")).HasCheckpoints(checkpoints_));
  EXPECT_FALSE(SharedFiles(Welcome("", "another kernel")).HasCheckpoints(checkpoints_));
  EXPECT_FALSE(SharedFiles(v1::Welcome()).HasCheckpoints(checkpoints_));
  EXPECT_FALSE(SharedFiles(v1::Welcome()).Has("/anywhere"));
  { const SharedFolder removes = *SharedFolder::Mark(checkpoints_); }
  EXPECT_FALSE(SharedFiles(Welcome(mark_.token(), "another kernel")).HasCheckpoints(checkpoints_));
  EXPECT_TRUE(std::filesystem::is_empty(checkpoints_)) << "the mark goes with its broker";
}

}  // namespace
}  // namespace fusionllm::services
