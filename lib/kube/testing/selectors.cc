#include "lib/kube/testing/selectors.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fusionllm::kube::testing {
namespace {

using nlohmann::json;

// At commas that are in no parentheses.
std::vector<std::string> Requirements(absl::string_view selector) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : selector) {
    depth += (c == '(') - (c == ')');
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  for (std::string& part : parts) absl::StripAsciiWhitespace(&part);
  parts.erase(std::remove(parts.begin(), parts.end(), ""), parts.end());
  return parts;
}

std::optional<std::string> Label(const json& object, const std::string& name) {
  const json* const labels = object.contains("/metadata/labels"_json_pointer) ? &object["metadata"]["labels"] : nullptr;
  if (labels == nullptr || !labels->is_object() || !labels->contains(name)) return std::nullopt;
  return (*labels)[name].get<std::string>();
}

std::string Field(const json& object, const std::string& path) {
  const json* at = &object;
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    const auto found = at->find(std::string(part));
    if (!at->is_object() || found == at->end()) return "";
    at = &*found;
  }
  if (at->is_string()) return at->get<std::string>();
  return at->is_null() ? "" : at->dump();
}

std::string Trim(absl::string_view text) { return std::string(absl::StripAsciiWhitespace(text)); }

absl::StatusOr<bool> HoldsLabel(const std::string& requirement, const json& object) {
  const size_t open = requirement.find('(');
  if (open != std::string::npos) {
    if (requirement.back() != ')') return absl::InvalidArgumentError(absl::StrCat("unable to parse requirement: ", requirement));
    const std::vector<std::string> words = absl::StrSplit(requirement.substr(0, open), absl::ByAnyChar(" "), absl::SkipEmpty());
    if (words.size() != 2 || (words[1] != "in" && words[1] != "notin")) {
      return absl::InvalidArgumentError(absl::StrCat("unable to parse requirement: ", requirement));
    }
    const std::optional<std::string> value = Label(object, words[0]);
    bool among = false;
    for (const absl::string_view one : absl::StrSplit(requirement.substr(open + 1, requirement.size() - open - 2), ',')) {
      among |= value == Trim(one);
    }
    return words[1] == "in" ? among : !among;
  }
  if (const size_t at = requirement.find("!="); at != std::string::npos) {
    return Label(object, Trim(requirement.substr(0, at))) != Trim(requirement.substr(at + 2));
  }
  if (const size_t at = requirement.find('='); at != std::string::npos) {
    const std::string value = Trim(absl::StripPrefix(requirement.substr(at + 1), "="));
    return Label(object, Trim(requirement.substr(0, at))) == value;
  }
  if (requirement.find(' ') != std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat("unable to parse requirement: ", requirement));
  if (requirement[0] == '!') return !Label(object, Trim(requirement.substr(1))).has_value();
  return Label(object, requirement).has_value();
}

absl::StatusOr<bool> HoldsField(const std::string& requirement, const json& object) {
  if (const size_t at = requirement.find("!="); at != std::string::npos) {
    return Field(object, Trim(requirement.substr(0, at))) != Trim(requirement.substr(at + 2));
  }
  if (const size_t at = requirement.find('='); at != std::string::npos) {
    return Field(object, Trim(requirement.substr(0, at))) == Trim(absl::StripPrefix(requirement.substr(at + 1), "="));
  }
  return absl::InvalidArgumentError(absl::StrCat("invalid field selector: ", requirement));
}

}  // namespace

absl::StatusOr<bool> Selects(const std::string& labels, const std::string& fields, const json& object) {
  for (const std::string& requirement : Requirements(labels)) {
    const absl::StatusOr<bool> holds = HoldsLabel(requirement, object);
    if (!holds.ok() || !*holds) return holds;
  }
  for (const std::string& requirement : Requirements(fields)) {
    const absl::StatusOr<bool> holds = HoldsField(requirement, object);
    if (!holds.ok() || !*holds) return holds;
  }
  return true;
}

}  // namespace fusionllm::kube::testing
