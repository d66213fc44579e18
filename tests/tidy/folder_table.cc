#include "tests/tidy/folder_table.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace fusionllm::tidy {
namespace {

std::set<std::string> FoldersOf(const std::set<std::string>& files) {
  std::set<std::string> folders;
  for (const std::string& path : files) {
    const size_t first = path.find('/');
    if (first == std::string::npos || absl::StartsWith(path, ".")) continue;
    const std::string top = path.substr(0, first + 1);
    folders.insert(top);
    const size_t second = path.find('/', first + 1);
    if (second != std::string::npos && (top == "lib/" || top == "services/")) folders.insert(path.substr(0, second + 1));
  }
  return folders;
}

}  // namespace

std::vector<Finding> CheckFolderTable(const SourceFile& readme, const std::set<std::string>& files) {
  std::vector<Finding> findings;
  const auto add = [&](int line, const std::string& message) { findings.push_back({readme.path, line, "folder-table", message}); };
  std::set<std::string> missing = FoldersOf(files);
  const std::set<std::string> folders = missing;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(readme.text, '\n')) {
    ++number;
    if (!absl::StartsWith(line, "| `")) continue;
    const std::vector<absl::string_view> columns = absl::StrSplit(line, '|');
    absl::string_view name = absl::StripAsciiWhitespace(columns[1]);
    name = name.substr(1, name.size() < 2 ? 0 : name.size() - 2);
    if (!absl::EndsWith(name, "/")) continue;  // a row of another table
    const std::string folder(name);
    if (!folders.contains(folder)) {
      add(number, absl::StrCat("there is no folder ", folder));
    } else if (missing.erase(folder) == 0) {
      add(number, absl::StrCat(folder, " has two rows"));
    } else if (columns.size() < 3 || absl::StripAsciiWhitespace(columns[2]).empty()) {
      add(number, absl::StrCat(folder, " has a row that does not say what is in it"));
    }
  }
  for (const std::string& folder : missing) add(0, absl::StrCat("the table of folders has no row for ", folder));
  return findings;
}

}  // namespace fusionllm::tidy
