#include "lib/kube/testing/selectors.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"

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

const json* Labels(const json& object) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return nullptr;
  const auto labels = metadata->find("labels");
  return labels == metadata->end() || !labels->is_object() ? nullptr : &*labels;
}

std::string FieldAt(const json& object, const std::vector<std::string>& path) {
  const json* at = &object;
  for (const std::string& part : path) {
    if (!at->is_object()) return "";
    const auto found = at->find(part);
    if (found == at->end()) return "";
    at = &*found;
  }
  if (at->is_string()) return at->get<std::string>();
  return at->is_null() ? "" : at->dump();
}

std::string Trim(absl::string_view text) { return std::string(absl::StripAsciiWhitespace(text)); }

absl::Status Unreadable(const std::string& requirement) {
  return absl::InvalidArgumentError(absl::StrCat("unable to parse requirement: ", requirement));
}

}  // namespace

absl::StatusOr<Selector::Requirement> Selector::ParseLabel(const std::string& text) {
  if (const size_t open = text.find('('); open != std::string::npos) {
    if (text.back() != ')') return Unreadable(text);
    const std::vector<std::string> words = absl::StrSplit(text.substr(0, open), absl::ByAnyChar(" "), absl::SkipEmpty());
    if (words.size() != 2 || (words[1] != "in" && words[1] != "notin")) return Unreadable(text);
    Requirement among{.name = words[0], .negated = words[1] == "notin"};
    for (const absl::string_view one : absl::StrSplit(text.substr(open + 1, text.size() - open - 2), ',')) {
      among.values.push_back(Trim(one));
    }
    return among;
  }
  if (const size_t at = text.find("!="); at != std::string::npos) {
    return Requirement{.name = Trim(text.substr(0, at)), .values = {Trim(text.substr(at + 2))}, .negated = true};
  }
  if (const size_t at = text.find('='); at != std::string::npos) {
    return Requirement{.name = Trim(text.substr(0, at)), .values = {Trim(absl::StripPrefix(text.substr(at + 1), "="))}};
  }
  if (text.find(' ') != std::string::npos) return Unreadable(text);
  if (text[0] == '!') return Requirement{.name = Trim(text.substr(1)), .negated = true, .presence = true};
  return Requirement{.name = text, .presence = true};
}

absl::StatusOr<Selector::Requirement> Selector::ParseField(const std::string& text) {
  if (const size_t at = text.find("!="); at != std::string::npos) {
    return Requirement{.name = Trim(text.substr(0, at)), .values = {Trim(text.substr(at + 2))}, .negated = true};
  }
  if (const size_t at = text.find('='); at != std::string::npos) {
    return Requirement{.name = Trim(text.substr(0, at)), .values = {Trim(absl::StripPrefix(text.substr(at + 1), "="))}};
  }
  return absl::InvalidArgumentError(absl::StrCat("invalid field selector: ", text));
}

absl::StatusOr<Selector> Selector::Parse(absl::string_view labels, absl::string_view fields) {
  Selector selector;
  for (const std::string& text : Requirements(labels)) {
    FUSIONLLM_ASSIGN_OR_RETURN(Requirement requirement, ParseLabel(text));
    selector.labels_.push_back(std::move(requirement));
  }
  for (const std::string& text : Requirements(fields)) {
    FUSIONLLM_ASSIGN_OR_RETURN(Requirement requirement, ParseField(text));
    selector.paths_.push_back(absl::StrSplit(requirement.name, '.'));
    selector.fields_.push_back(std::move(requirement));
  }
  return selector;
}

bool Selector::Holds(const json& object) const {
  const auto among = [](const Requirement& requirement, const std::string& value) {
    return std::find(requirement.values.begin(), requirement.values.end(), value) != requirement.values.end();
  };
  const json* const labels = labels_.empty() ? nullptr : Labels(object);
  for (const Requirement& requirement : labels_) {
    bool holds = false;
    if (labels != nullptr) {
      const auto label = labels->find(requirement.name);
      holds = label != labels->end() && (requirement.presence || among(requirement, label->get_ref<const std::string&>()));
    }
    if (holds == requirement.negated) return false;
  }
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (among(fields_[i], FieldAt(object, paths_[i])) == fields_[i].negated) return false;
  }
  return true;
}

}  // namespace fusionllm::kube::testing
