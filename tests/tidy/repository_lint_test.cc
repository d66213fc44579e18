// The repository lints itself. Every finding is printed; warnings do not fail the test.
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/tidy/bans.h"
#include "tests/tidy/folder_table.h"
#include "tests/tidy/includes.h"
#include "tests/tidy/reasons.h"
#include "tests/tidy/registration.h"
#include "tests/tidy/repository.h"
#include "tests/tidy/variables.h"

namespace fusionllm::tidy {
namespace {

class RepositoryLint : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("FUSIONLLM_SOURCE_DIR");
    ASSERT_NE(root, nullptr) << "set FUSIONLLM_SOURCE_DIR to the root of the repository (ctest does)";
    root_ = root;
    absl::StatusOr<std::set<std::string>> files = ListFiles(root_);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    ASSERT_TRUE(files_.contains("tests/tidy/layers.txt")) << root_ << " is not this repository";
  }

  std::string Read(const std::string& path) const {
    absl::StatusOr<SourceFile> file = ReadFile(root_, path);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->text : "";
  }

  static void Report(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      if (finding.severity == Severity::kWarning) {
        std::printf("warning: %s: %s [%s]\n", finding.path.c_str(), finding.message.c_str(), finding.rule.c_str());
      } else {
        ADD_FAILURE_AT(finding.path.c_str(), finding.line) << finding.message << " [" << finding.rule << "]";
      }
    }
  }

  std::string root_;
  std::set<std::string> files_;
};

TEST_F(RepositoryLint, NoFileHoldsWhatIsBanned) {
  for (const std::string& path : files_) {
    if (IsText(path)) Report(CheckBans({path, Read(path)}));
  }
}

TEST_F(RepositoryLint, IncludesFollowTheLayers) {
  const absl::StatusOr<LayerTable> layers = LayerTable::Parse(Read("tests/tidy/layers.txt"));
  ASSERT_TRUE(layers.ok()) << layers.status();
  for (const std::string& path : files_) {
    if (absl::EndsWith(path, ".h") || absl::EndsWith(path, ".cc")) Report(CheckIncludes({path, Read(path)}, *layers, files_));
  }
}

TEST_F(RepositoryLint, EveryLibraryHeaderIsInABuildFile) {
  std::map<std::string, std::string> build_files;
  for (const std::string& path : files_) {
    if (absl::EndsWith(path, "/CMakeLists.txt")) build_files[path] = Read(path);
  }
  Report(CheckHeaderLists(build_files, files_));
}

TEST_F(RepositoryLint, ReasonsPageExplainsEveryReason) {
  std::vector<SourceFile> sources;
  for (const std::string& path : files_) {
    if (MaySetReasons(path)) sources.push_back({path, Read(path)});
  }
  const std::string page = "docs/reference/conditions-and-reasons.md", words = "tests/tidy/other_words.txt";
  Report(CheckReasons({page, Read(page)}, sources, {words, Read(words)}));
}

TEST_F(RepositoryLint, TheEndToEndPageNamesEveryVariable) {
  std::vector<SourceFile> scripts;
  for (const std::string& path : files_) {
    if (absl::StartsWith(path, "e2e/") && absl::EndsWith(path, ".sh")) scripts.push_back({path, Read(path)});
  }
  Report(CheckVariables({"e2e/README.md", Read("e2e/README.md")}, scripts));
}

TEST_F(RepositoryLint, FoldersPageListsTheFoldersThatExist) {
  Report(CheckFolderTable({"docs/design/folders.md", Read("docs/design/folders.md")}, files_));
}

}  // namespace
}  // namespace fusionllm::tidy
