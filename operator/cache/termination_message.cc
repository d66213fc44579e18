#include "operator/cache/termination_message.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "lib/base/log.h"
#include "lib/kube/api/json_fields.h"

namespace fusionllm::op::cache {
namespace {

using nlohmann::json;

struct Line {
  bool of_log = false;
  std::string reason;  // empty: none
};

bool IsTime(absl::string_view word) {
  return word.size() >= 20 && absl::ascii_isdigit(static_cast<unsigned char>(word.front())) && word[10] == 'T' && word.back() == 'Z';
}

bool IsBad(absl::string_view level) {
  const auto known = base::ParseLogLevel(level);
  return known.has_value() && *known >= base::LogLevel::kWarning;
}

// TIME LEVEL PROGRAM: SENTENCE, or an object of JSON: a line of a log, a line of a run's record, or neither.
Line Read(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, absl::MaxSplits(' ', 3));
  if (words.size() == 4 && IsTime(words[0]) && base::ParseLogLevel(words[1]).has_value()) {
    return {.of_log = true, .reason = IsBad(words[1]) ? std::string(words[3]) : ""};
  }
  const json line = text.front() == '{' ? kube::ParseJson(text) : json();
  const std::string level = kube::TextAt(line, "level"), type = kube::TextAt(line, "type");
  if (level.empty() && type.empty()) return {.reason = std::string(text)};
  return {.of_log = true, .reason = IsBad(level) || type == "error" ? kube::TextAt(line, "message") : ""};
}

}  // namespace

std::string TerminationSummary(absl::string_view termination_message) {
  std::string reason;
  bool any_of_log = false;
  for (absl::string_view text : absl::StrSplit(termination_message, '\n')) {
    text = absl::StripAsciiWhitespace(text);
    if (text.empty()) continue;
    Line line = Read(text);
    // What stands before a log of ours is the rest of a line that was cut, or an information of the program's start.
    if (line.of_log && !any_of_log) reason.clear();
    any_of_log = any_of_log || line.of_log;
    if (!line.reason.empty()) reason = std::move(line.reason);
  }
  return reason;
}

}  // namespace fusionllm::op::cache
