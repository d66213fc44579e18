// The repository's pages, for tests that look at all of them.
#pragma once

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/tidy/finding.h"
#include "tests/tidy/repository.h"

namespace fusionllm::docs {

class DocumentationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("FUSIONLLM_SOURCE_DIR");
    ASSERT_NE(root, nullptr) << "set FUSIONLLM_SOURCE_DIR to the root of the repository (ctest does)";
    absl::StatusOr<std::set<std::string>> files = tidy::ListFiles(root);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    for (const std::string& path : files_) {
      if (!absl::EndsWith(path, ".md")) continue;
      absl::StatusOr<tidy::SourceFile> page = tidy::ReadFile(root, path);
      ASSERT_TRUE(page.ok()) << page.status();
      pages_.emplace(path, *std::move(page));
    }
    ASSERT_TRUE(pages_.contains("README.md")) << root << " is not this repository";
  }

  static void Report(const std::vector<tidy::Finding>& findings) {
    for (const tidy::Finding& finding : findings) {
      ADD_FAILURE_AT(finding.path.c_str(), finding.line) << finding.message << " [" << finding.rule << "]";
    }
  }

  std::set<std::string> files_;                    // all that git tracks or would add
  std::map<std::string, tidy::SourceFile> pages_;  // those that end in .md
};

}  // namespace fusionllm::docs
