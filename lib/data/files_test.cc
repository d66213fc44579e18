#include "lib/data/files.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ExpandPathsTest, ReadsAFolderInSortedOrderWithoutHiddenOrSpecialFiles) {
  const base::TempFolder folder;
  folder.Write("docs/b.txt", "b");
  folder.Write("docs/a/z.txt", "z");
  folder.Write("docs/a-b/y.txt", "y");
  folder.Write("docs/.hidden", "h");
  folder.Write("docs/.git/config", "g");
  std::filesystem::create_symlink(folder / "docs", folder / "docs/loop");
  std::filesystem::create_symlink("nowhere", folder / "docs/broken");
  const auto files = ExpandPaths(std::vector<std::string>{"docs"}, folder.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, ElementsAre(folder / "docs/a/z.txt", folder / "docs/a-b/y.txt", folder / "docs/b.txt"));
}

TEST(ExpandPathsTest, FollowsLinksToFilesAsConfigMapsHaveThem) {
  const base::TempFolder folder;
  folder.Write("..data/corpus.txt", "text");
  std::filesystem::create_symlink("..data/corpus.txt", folder / "corpus.txt");
  const auto files = ExpandPaths(std::vector<std::string>{folder.path()}, "");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, ElementsAre(folder / "corpus.txt"));
}

TEST(ExpandPathsTest, KeepsTheOrderOfTheListAndTakesNamedFilesWhateverTheirName) {
  const base::TempFolder folder;
  folder.Write("z", "z");
  folder.Write(".a", "a");
  const FileFilter none = [](absl::string_view) { return false; };
  const auto files = ExpandPaths(std::vector<std::string>{"z", ".a"}, folder.path(), none);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, ElementsAre(folder / "z", folder / ".a"));
}

TEST(ExpandPathsTest, NamesThePathThatIsMissingEmptyOrNoFile) {
  const base::TempFolder folder;
  std::filesystem::create_directory(folder / "empty");
  const auto error = [&](std::vector<std::string> paths) { return ExpandPaths(paths, folder.path()).status(); };
  EXPECT_EQ(error({"missing.txt"}).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(error({"missing.txt"}).message(), HasSubstr(folder / "missing.txt"));
  EXPECT_THAT(error({"empty"}).message(), HasSubstr("holds no fitting file"));
  EXPECT_THAT(error({"/dev/null"}).message(), HasSubstr("/dev/null is neither a file nor a folder"));
  EXPECT_THAT(error({}).message(), HasSubstr("no path"));
}

TEST(ExpandPathsTest, RefusesAFolderTooDeepToBeMeant) {
  const base::TempFolder folder;
  std::string deep = "d";
  for (int i = 0; i < kMaxFolderDepth; ++i) deep += "/d";
  folder.Write(absl::StrCat(deep, "/file"), "x");
  EXPECT_THAT(ExpandPaths(std::vector<std::string>{"d"}, folder.path()).status().message(), HasSubstr("levels deep"));
}

}  // namespace
}  // namespace fusionllm::data
