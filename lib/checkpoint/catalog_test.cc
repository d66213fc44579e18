#include "lib/checkpoint/catalog.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/testing/sample.h"

namespace fusionllm::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CatalogTest, ListsCheckpointsNewestFirst) {
  const base::TempFolder folder;
  for (const int64_t step : {10, 20}) ASSERT_TRUE(SaveSample(folder.path(), step, 2).ok());
  folder.Write("notes.txt", "x");
  fs::create_directory(folder / "step-x");
  const auto all = ListCheckpoints(folder.path());
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].step, 20);
  EXPECT_TRUE((*all)[0].is_latest);
  EXPECT_FALSE((*all)[1].is_latest);
  EXPECT_GT((*all)[1].bytes, 0);
  EXPECT_THAT((*all)[0].problem, IsEmpty());
  EXPECT_THAT(ListCheckpoints(folder / "none").value(), IsEmpty());
}

TEST(CatalogTest, ReportsCheckpointBehindDanglingLink) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 10, 1).ok());
  fs::create_directory_symlink(folder / "not-mounted", folder / "step-000020");
  const auto newest = FindLatestComplete(folder.path());
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->path, folder / "step-000010");
  ASSERT_EQ(newest->skipped.size(), 1u);
  EXPECT_THAT(newest->skipped[0].path, HasSubstr("step-000020"));
  EXPECT_FALSE(SiteFoldersOf(folder.path()).ok()) << "what it has in sites is not known";
}

TEST(CatalogTest, SkipsBrokenOnesAndSaysWhy) {
  const base::TempFolder folder;
  for (const int64_t step : {10, 20, 30, 40}) ASSERT_TRUE(SaveSample(folder.path(), step, 1).ok());
  fs::remove(folder / "step-000040/manifest.json");
  fs::resize_file(folder / "step-000030/model.safetensors", 9);
  std::string bytes = base::ReadWholeFile(folder / "step-000020/model.safetensors");
  bytes.back() ^= 4;
  folder.Write("step-000020/model.safetensors", bytes);
  const auto newest = FindLatestComplete(folder.path());
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->path, folder / "step-000010");
  ASSERT_EQ(newest->skipped.size(), 3u);
  EXPECT_THAT(newest->skipped[0].reason, HasSubstr("has 9 bytes instead of"));
  EXPECT_THAT(newest->skipped[1].reason, HasSubstr("checksum"));
  EXPECT_THAT(newest->skipped[2].path, HasSubstr("step-000040")) << "how old it is its manifest would tell";
  EXPECT_THAT(newest->skipped[2].reason, HasSubstr("manifest.json"));
  fs::remove_all(folder / "step-000010");
  const auto none = FindLatestComplete(folder.path());
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->path.has_value());
  ASSERT_EQ(none->skipped.size(), 3u);
  EXPECT_THAT(none->skipped[2].reason, HasSubstr("manifest.json"));
}

TEST(CatalogTest, ReportsLatestThatIsAFolderWithRemedy) {
  const base::TempFolder folder;
  const auto latest_problem = [&] { return std::string(CheckLatestIsNoFolder(folder.path()).message()); };
  EXPECT_EQ(latest_problem(), "");
  ASSERT_TRUE(SaveSample(folder.path(), 10, 1).ok());
  EXPECT_EQ(latest_problem(), "") << "a link";
  fs::remove(folder / "latest");
  folder.Write("latest", "step-000010\n");
  EXPECT_EQ(latest_problem(), "") << "a file gives way to a link";
  fs::remove(folder / "latest");
  fs::copy(folder / "step-000010", folder / "latest");
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckLatestIsNoFolder(folder.path())));
  EXPECT_THAT(latest_problem(), HasSubstr(absl::StrCat(folder / "latest", " is a folder where the link to the newest checkpoint belongs")));
  EXPECT_THAT(latest_problem(), HasSubstr(absl::StrCat("(rm -r ", folder / "latest", ")")));
  fs::remove_all(folder / "step-000010");
  EXPECT_THAT(latest_problem(), HasSubstr(absl::StrCat("(mv ", folder / "latest", " ", folder / "step-000010", ")")))
      << "it is the only one";
  fs::create_directory(folder / "step-000010");
  EXPECT_THAT(latest_problem(), HasSubstr("; move it away")) << "another has its name";
}

}  // namespace
}  // namespace fusionllm::checkpoint
