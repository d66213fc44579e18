#include "services/executor/checkpoint_io.h"

#include <filesystem>

#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
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
  EXPECT_TRUE(shared.checkpoints());
  EXPECT_TRUE(shared.Has(checkpoints_ + "/step-000010"));
  EXPECT_FALSE(shared.Has(checkpoints_ + "-of-others/step-000010"));
  EXPECT_FALSE(shared.Has(folder_ / "model")) << "the network file system may hold the run's folder only";
}

TEST_F(SharedFilesTest, WhoSeesTheSameMountsSharesAllFiles) {
  ASSERT_NE(MachineIdentity(), "");
  EXPECT_TRUE(SharedFiles(Welcome(mark_.token(), MachineIdentity())).Has("/anywhere"));
}

TEST_F(SharedFilesTest, AnotherTokenNoFileOrNoRightToWriteIsNotShared) {
  EXPECT_FALSE(SharedFiles(Welcome("other words", "another kernel")).checkpoints());
  EXPECT_FALSE(SharedFiles(Welcome("", "another kernel")).checkpoints());
  EXPECT_FALSE(SharedFiles(v1::Welcome()).checkpoints());
  EXPECT_FALSE(SharedFiles(v1::Welcome()).Has("/anywhere"));
  { const SharedFolder removes = *SharedFolder::Mark(checkpoints_); }
  EXPECT_FALSE(SharedFiles(Welcome(mark_.token(), "another kernel")).checkpoints());
  EXPECT_TRUE(std::filesystem::is_empty(checkpoints_)) << "the mark goes with its broker";
}

}  // namespace
}  // namespace fusionllm::services
