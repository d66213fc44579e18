#include "tests/tidy/registration.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace fusionllm::tidy {
namespace {

bool NamesFile(absl::string_view build_file, absl::string_view name) {
  for (absl::string_view word : absl::StrSplit(build_file, absl::ByAnyChar(" \t\n()"))) {
    if (word == name) return true;
  }
  return false;
}

}  // namespace

std::vector<Finding> CheckHeaderLists(const std::map<std::string, std::string>& build_files, const std::set<std::string>& files) {
  std::vector<Finding> findings;
  for (const std::string& path : files) {
    if (!absl::StartsWith(path, "lib/") || !absl::EndsWith(path, ".h")) continue;
    size_t slash = path.rfind('/');
    auto build_file = build_files.end();
    for (; slash != std::string::npos; slash = slash == 0 ? std::string::npos : path.rfind('/', slash - 1)) {
      build_file = build_files.find(absl::StrCat(path.substr(0, slash), "/CMakeLists.txt"));
      if (build_file != build_files.end()) break;
    }
    if (build_file == build_files.end()) {
      findings.push_back(
          {path, 0, "unlisted-header", "no CMakeLists.txt at or above the header: it is not part of the build", Severity::kWarning});
    } else if (!NamesFile(build_file->second, path.substr(slash + 1))) {
      findings.push_back({path, 0, "unlisted-header", absl::StrCat("name the header in ", build_file->first)});
    }
  }
  return findings;
}

}  // namespace fusionllm::tidy
