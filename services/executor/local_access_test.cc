#include "services/executor/local_access.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;

class LocalAccessTest : public ::testing::Test {
 protected:
  LocalAccessTest() {
    for (const char* name : {"mine/corpus.txt", "mine/deep/more.txt", "secret/id_ed25519", "mineral/text.txt"}) folder_.Write(name, "x");
    std::filesystem::create_symlink(folder_ / "secret", folder_ / "mine/way-out");
    workload_.base_directory = folder_ / "mine";
  }
  absl::Status Reads(const LocalAccess& access, const std::string& path) {
    workload_.data.paths = {path};
    return CheckDataAccess(access, workload_);
  }
  LocalAccess Below(const std::string& folder) const { return {.closed = true, .data_folder = folder_ / folder}; }

  const base::TempFolder folder_;
  workload::Workload workload_;
};

TEST_F(LocalAccessTest, AnExecutorOfTheRunItselfReadsWhatTheJobNames) {
  for (const char* path : {"corpus.txt", "/etc/hostname", "s3://bucket/corpus"}) EXPECT_TRUE(Reads({}, path).ok()) << path;
}

TEST_F(LocalAccessTest, AClosedOneReadsNoData) {
  for (const char* path : {"corpus.txt", "/etc/hostname", "s3://bucket/corpus"}) {
    EXPECT_EQ(Reads({.closed = true}, path).code(), absl::StatusCode::kPermissionDenied) << path;
  }
  EXPECT_THAT(std::string(Reads({.closed = true}, "/etc/hostname").message()), HasSubstr("--data DIR"));
  EXPECT_THAT(std::string(Reads({.closed = true}, "s3://bucket/corpus").message()), HasSubstr("--object-stores"));
}

TEST_F(LocalAccessTest, BelowTheFolderThatIsOpenedAllIsReadAndNothingElse) {
  const LocalAccess access = Below("mine");
  for (const std::string& path : {std::string("corpus.txt"), std::string("deep"), std::string("deep/../corpus.txt"), folder_ / "mine",
                                  folder_ / "mine/deep/more.txt"}) {
    EXPECT_TRUE(Reads(access, path).ok()) << path;
  }
  for (const std::string& path :
       {std::string("../secret/id_ed25519"), std::string("way-out/id_ed25519"), std::string("way-out"), folder_ / "mineral/text.txt",
        folder_.path(), std::string("/"), std::string("not-there/../../secret/id_ed25519"), std::string("s3://bucket/corpus")}) {
    EXPECT_EQ(Reads(access, path).code(), absl::StatusCode::kPermissionDenied) << path;
  }
}

TEST_F(LocalAccessTest, ValidationDataAreData) {
  workload_.data.paths = {"corpus.txt"};
  workload_.data.validation_paths = {"../secret/id_ed25519"};
  EXPECT_EQ(CheckDataAccess(Below("mine"), workload_).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(LocalAccessTest, GraphFilesAreReadWhereDataAre) {
  job::FusionJob job;
  job.spec.model.graph = job::GraphSource{.file = "../secret/id_ed25519"};
  EXPECT_TRUE(CheckGraphAccess({}, job, folder_ / "mine").ok());
  EXPECT_EQ(CheckGraphAccess({.closed = true}, job, folder_ / "mine").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CheckGraphAccess(Below("mine"), job, folder_ / "mine").code(), absl::StatusCode::kPermissionDenied);
  job.spec.model.graph->file = "corpus.txt";
  EXPECT_TRUE(CheckGraphAccess(Below("mine"), job, folder_ / "mine").ok());
}

TEST_F(LocalAccessTest, ASharedFolderIsSoughtOnlyWhereOneWasOpened) {
  EXPECT_TRUE(MayUseSharedFolder({}, folder_ / "secret/id_ed25519"));
  EXPECT_FALSE(MayUseSharedFolder({.closed = true}, folder_ / "mine/corpus.txt"));
  const LocalAccess access{.closed = true, .shared_folder = folder_ / "mine"};
  EXPECT_TRUE(MayUseSharedFolder(access, folder_ / "mine/deep/more.txt"));
  EXPECT_FALSE(MayUseSharedFolder(access, folder_ / "mine/way-out/id_ed25519"));
}

}  // namespace
}  // namespace fusionllm::services
