#include "tests/tidy/variables.h"

#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace fusionllm::tidy {
namespace {

// The name at the front of what follows a "${"; empty: an argument, a variable of the script's own, or one that must be there.
absl::string_view TakenName(absl::string_view text) {
  if (text.empty() || absl::ascii_isdigit(text[0])) return "";
  size_t length = 0;
  while (length < text.size() && (absl::ascii_isupper(text[length]) || absl::ascii_isdigit(text[length]) || text[length] == '_')) ++length;
  const absl::string_view after = text.substr(length);
  return absl::StartsWith(after, ":-") || absl::StartsWith(after, "-") ? text.substr(0, length) : absl::string_view();
}

}  // namespace

std::vector<Finding> CheckVariables(const SourceFile& page, const std::vector<SourceFile>& scripts) {
  std::vector<Finding> findings;
  std::set<std::string> seen = {"", "HOME"};
  for (const SourceFile& script : scripts) {
    int number = 0;
    for (absl::string_view line : absl::StrSplit(script.text, '\n')) {
      ++number;
      const std::vector<absl::string_view> parts = absl::StrSplit(line, "${");
      for (size_t i = 1; i < parts.size(); ++i) {
        const std::string name(TakenName(parts[i]));
        if (!seen.insert(name).second || absl::StrContains(page.text, absl::StrCat("`", name, "`"))) continue;
        findings.push_back({script.path, number, "variables", absl::StrCat("takes ", name, ", which ", page.path, " does not name")});
      }
    }
  }
  return findings;
}

}  // namespace fusionllm::tidy
