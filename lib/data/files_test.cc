#include "lib/data/files.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::data {
namespace {

using ::testing::ContainsRegex;
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
  std::filesystem::create_symlink("nowhere", folder / "docs/.broken");
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

TEST(ExpandPathsTest, LinksToFoldersAreFollowedAndEachFolderIsReadOnce) {
  const base::TempFolder folder;
  folder.Write("elsewhere/part/x.txt", "x");
  folder.Write("docs/z/y.txt", "y");
  std::filesystem::create_symlink(folder / "elsewhere", folder / "docs/b");
  std::filesystem::create_symlink(folder / "elsewhere/part", folder / "docs/c");  // already below b
  std::filesystem::create_symlink("z", folder / "docs/a");                        // has a place of its own
  std::filesystem::create_symlink("..", folder / "elsewhere/up");                 // leads to all of it again
  std::filesystem::create_symlink(folder / "docs", folder / "elsewhere/part/loop");
  const auto files = ExpandPaths(std::vector<std::string>{"docs"}, folder.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, ElementsAre(folder / "docs/b/part/x.txt", folder / "docs/z/y.txt"));
}

TEST(ExpandPathsTest, ALinkThatLeadsNowhereIsRefusedByItsName) {
  const base::TempFolder folder;
  folder.Write("docs/a.txt", "a");
  for (const char* target : {"nowhere", "b.txt"}) {
    std::filesystem::create_symlink(target, folder / "docs/b.txt");
    const absl::Status refused = ExpandPaths(std::vector<std::string>{"docs"}, folder.path()).status();
    EXPECT_EQ(absl::IsInvalidArgument(refused), target == std::string("nowhere")) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(folder / "docs/b.txt")) << target;
    std::filesystem::remove(folder / "docs/b.txt");
  }
}

TEST(ExpandPathsTest, KeepsTheOrderOfTheListAndTakesNamedFilesWhateverTheirName) {
  const base::TempFolder folder;
  folder.Write("z", "z");
  folder.Write(".a", "a");
  const FileFilter none = {[](absl::string_view) { return false; }, ""};
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
  EXPECT_THAT(std::string(error({"empty"}).message()), ContainsRegex("empty holds no file$"));
  folder.Write("texts/a.txt", "a");
  const FileFilter bin = {[](absl::string_view name) { return name == "x.bin"; }, "file of token ids (*.bin)"};
  EXPECT_THAT(ExpandPaths(std::vector<std::string>{"texts"}, folder.path(), bin).status().message(),
              HasSubstr("texts holds no file of token ids (*.bin): is spec.data.kind what lies there?"));
  EXPECT_THAT(error({"/dev/null"}).message(), HasSubstr("/dev/null is neither a file nor a folder"));
  EXPECT_THAT(error({}).message(), HasSubstr("no path"));
}

TEST(ExpandPathsTest, MissingPathNamesWhatItsFolderHas) {
  const base::TempFolder folder;
  const auto error = [&](const std::string& path) {
    return std::string(ExpandPaths(std::vector<std::string>{path}, folder.path()).status().message());
  };
  const auto missing = [&](const std::string& path) { return absl::StrCat("data path ", folder.path(), "/", path, " does not exist"); };
  EXPECT_EQ(error("README.txt"), absl::StrCat(missing("README.txt"), "; ", folder.path(), " is empty"));
  folder.Write("README.md", "text");
  folder.Write("..data", "as a mounted ConfigMap has it");
  folder.Write("books/b", "text");
  const std::string has = absl::StrCat("; ", folder.path(), " has: README.md, books/");
  EXPECT_EQ(error("README.txt"), missing("README.txt") + has);
  EXPECT_EQ(error("texts/a/b"), missing("texts/a/b") + has) << "of the nearest folder that is there";
  for (const char* more : {"c", "d", "e", "f"}) folder.Write(more, "text");
  EXPECT_EQ(error("README.txt"), missing("README.txt") + has + ", c, d, e and 1 more");
  EXPECT_EQ(std::string(ExpandPaths(std::vector<std::string>{"/no-such-file-at-all"}, "").status().message()),
            "data path /no-such-file-at-all does not exist");
}

TEST(ExpandPathsTest, RefusesAFolderTooDeepToBeMeant) {
  const base::TempFolder folder;
  std::string deep = "d";
  for (int i = 0; i < kMaxFolderDepth; ++i) deep += "/d";
  folder.Write(absl::StrCat(deep, "/file"), "x");
  EXPECT_THAT(ExpandPaths(std::vector<std::string>{"d"}, folder.path()).status().message(), HasSubstr("levels deep"));
}

FilesRead ReadOf(const std::vector<std::string>& paths) {
  FilesRead read;
  for (const std::string& path : paths) read.Add(*base::SourceFile::Open(path, /*keep_open=*/false));
  return read;
}

TEST(FilesReadTest, FilesOfEqualContentAreCopiesAndLinksAreNot) {
  const base::TempFolder folder;
  const std::string text(200'000, 'a');
  std::string other = text;
  other.back() = 'b';
  const FilesRead training = ReadOf({folder.Write("a.txt", text), folder.Write("b.txt", other), folder.Write("c.txt", text),
                                     folder.Write("empty", ""), folder.Write("void", "")});
  const std::vector<Copy> copies = CopiedFiles(training);
  ASSERT_EQ(copies.size(), 1);
  EXPECT_EQ(copies[0].name, "c.txt");
  EXPECT_EQ(copies[0].of, "a.txt");
  EXPECT_EQ(copies[0].bytes, 200'000);
  std::filesystem::create_symlink(folder / "a.txt", folder / "link.txt");
  const FilesRead validation = ReadOf({folder.Write("val/v.txt", other), folder / "link.txt", folder.Write("val/w.txt", "new")});
  const std::vector<Copy> trained = CopiesOf(validation, training);
  ASSERT_EQ(trained.size(), 2);
  EXPECT_EQ(trained[0].name, "val/v.txt");
  EXPECT_EQ(trained[0].of, "b.txt");
  EXPECT_EQ(trained[1].of, "c.txt") << "the link to a.txt, of which that is a copy";
}

TEST(FilesReadTest, NamesAreThoseBelowTheFolderThatHoldsAll) {
  const base::TempFolder folder;
  FilesRead read = ReadOf({folder.Write("docs/a/x.txt", "12"), folder.Write("docs/a-b/y.txt", "3")});
  EXPECT_EQ(read.folder, folder / "docs");
  EXPECT_EQ(read.NameOf(folder / "docs/a/x.txt"), "a/x.txt");
  read.Skip(folder / "notes.gz", "why");
  EXPECT_EQ(read.folder, folder.path());
  EXPECT_EQ(ReadOf({folder / "docs/a/x.txt"}).folder, folder / "docs/a");
}

TEST(FilesReadTest, AFileIsTheSameUnderAnyName) {
  const base::TempFolder folder;
  const std::string a = folder.Write("a", "1"), b = folder.Write("b", "2"), link = folder / "link";
  std::filesystem::create_symlink(a, link);
  const FileSample shared = SharedFiles(ReadOf({link, b}), ReadOf({a}));
  EXPECT_EQ(shared.count, 1);
  EXPECT_THAT(shared.names, ElementsAre("link"));
  EXPECT_EQ(SharedFiles(ReadOf({b}), ReadOf({a})).count, 0);
  const FileSample repeated = RepeatedFiles(ReadOf({a, b, a, link, folder.path() + "/./b"}));
  EXPECT_EQ(repeated.count, 2) << "each is told once";
  EXPECT_EQ(RepeatedFiles(ReadOf({a, b})).count, 0);
}

TEST(FilesReadTest, FilesThatHaveGoneAreLikeNoOther) {
  const base::TempFolder folder;
  const auto read_and_remove = [&](const char* name) {
    FilesRead files;
    const auto file = base::SourceFile::Open(folder.Write(name, "1"), /*keep_open=*/false);
    EXPECT_TRUE(file.ok()) << file.status();
    std::filesystem::remove(folder / name);
    files.Add(*file);
    return files;
  };
  EXPECT_EQ(SharedFiles(read_and_remove("a"), read_and_remove("b")).count, 0) << "each the first of its list";
}

}  // namespace
}  // namespace fusionllm::data
