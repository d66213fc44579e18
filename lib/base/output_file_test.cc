#include "lib/base/output_file.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::base {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(OutputFileTest, LeavesNothingWhenItIsNotFinished) {
  const TempFolder folder;
  {
    auto file = OutputFile::Create(folder / "f");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write(std::as_bytes(std::span("abc"))).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

TEST(OutputFileTest, NamesThePathThatCannotBeWritten) {
  const TempFolder folder;
  const absl::Status missing = OutputFile::Create(folder / "no/f").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(folder / "no/f"));
}

TEST(ReplaceFileTest, PutsTheWholeTextInPlaceAndKeepsLinksAndRights) {
  const TempFolder folder;
  folder.Write("old", "long before");
  fs::permissions(folder / "old", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("old", folder / "link");
  EXPECT_TRUE(ReplaceFile(folder / "link", "now").ok());
  EXPECT_TRUE(ReplaceFile(folder / "new", "now").ok());
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(ReadWholeFile(folder / "old"), "now");
  EXPECT_EQ(ReadWholeFile(folder / "new"), "now");
  EXPECT_EQ(fs::status(folder / "old").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 3) << "nothing is left aside";
}

TEST(ReplaceFileTest, LeavesTheOldFileAndNothingAsideWhenTheDiskIsFull) {
  const TempFolder folder;
  folder.Write("f", "old");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const absl::Status status = ReplaceFile(folder / "f", std::string(2000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message(), absl::StrCat("cannot write ", folder / "f", ": File too large"));
  EXPECT_EQ(ReadWholeFile(folder / "f"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(ReplaceFileTest, WritesToDevicesAndRefusesFolders) {
  const TempFolder folder;
  fs::create_symlink("/dev/null", folder / "null");
  EXPECT_TRUE(ReplaceFile(folder / "null", "gone").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_TRUE(absl::IsResourceExhausted(ReplaceFile("/dev/full", "text")));
  EXPECT_TRUE(absl::IsInvalidArgument(ReplaceFile(folder.path(), "text")));
  EXPECT_TRUE(absl::IsNotFound(ReplaceFile(folder / "no/f", "text")));
}

}  // namespace
}  // namespace fusionllm::base
