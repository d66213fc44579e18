#include "lib/report/testing/xml_check.h"

#include <regex>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace fusionllm::report::testing {
namespace {

bool EntitiesAreFine(absl::string_view text) {
  for (size_t at = text.find('&'); at != absl::string_view::npos; at = text.find('&', at + 1)) {
    const absl::string_view rest = text.substr(at + 1);
    bool known = false;
    for (const absl::string_view entity : {"amp;", "lt;", "gt;", "quot;", "#39;"}) known |= absl::StartsWith(rest, entity);
    if (!known) return false;
  }
  return true;
}

// NAME ATTRIBUTE="VALUE" ..., without brackets and the slash of an empty element.
bool TagIsFine(absl::string_view tag, std::string& name) {
  static const std::regex kName("^[A-Za-z][A-Za-z0-9]*"), kAttribute("^\\s+([A-Za-z][A-Za-z0-9:-]*)=\"([^\"<]*)\"");
  std::match_results<absl::string_view::const_iterator> match;
  if (!std::regex_search(tag.begin(), tag.end(), match, kName)) return false;
  name = match.str();
  tag.remove_prefix(static_cast<size_t>(match.length()));
  std::set<std::string> seen;
  while (std::regex_search(tag.begin(), tag.end(), match, kAttribute)) {
    if (!seen.insert(match.str(1)).second || !EntitiesAreFine(match.str(2))) return false;
    tag.remove_prefix(static_cast<size_t>(match.length()));
  }
  return absl::StripAsciiWhitespace(tag).empty();
}

}  // namespace

std::string XmlProblem(absl::string_view text) {
  const size_t size = text.size();
  if (absl::StartsWith(text, "<?xml ")) text.remove_prefix(text.find("?>") + 2);
  std::vector<std::string> open;
  bool rooted = false;
  while (!text.empty()) {
    const size_t at = text.find('<');
    const absl::string_view between = text.substr(0, at);
    const std::string where = absl::StrCat(" at byte ", size - text.size());
    if (!EntitiesAreFine(between)) return absl::StrCat("unknown entity", where);
    if (open.empty() && !absl::StripAsciiWhitespace(between).empty()) return absl::StrCat("text outside the root", where);
    if (at == absl::string_view::npos) break;
    const size_t end = text.find('>', at);
    if (end == absl::string_view::npos) return absl::StrCat("a tag without end", where);
    absl::string_view tag = text.substr(at + 1, end - at - 1);
    text.remove_prefix(end + 1);
    if (absl::ConsumePrefix(&tag, "/")) {
      if (open.empty() || open.back() != tag) return absl::StrCat("</", tag, "> closes nothing", where);
      open.pop_back();
      continue;
    }
    const bool empty = absl::ConsumeSuffix(&tag, "/");
    if (open.empty() && rooted) return absl::StrCat("a second root", where);
    rooted = true;
    std::string name;
    if (!TagIsFine(tag, name)) return absl::StrCat("bad tag <", tag, ">", where);
    if (!empty) open.push_back(name);
  }
  if (!open.empty()) return absl::StrCat("<", open.back(), "> is not closed");
  return rooted ? "" : "no element";
}

}  // namespace fusionllm::report::testing
