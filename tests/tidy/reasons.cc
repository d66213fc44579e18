#include "tests/tidy/reasons.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fusionllm::tidy {
namespace {

constexpr char kRule[] = "reasons";

// Where a word stands first.
struct Place {
  std::string path;
  int line = 0;
};

bool IsWord(absl::string_view text) {
  if (text.size() < 2 || !absl::ascii_isupper(text[0]) || !absl::ascii_islower(text[1])) return false;
  for (const char c : text) {
    if (!absl::ascii_isalpha(c)) return false;
  }
  return true;
}

void CollectWords(const SourceFile& source, std::map<std::string, Place>& words) {
  int number = 0;
  for (absl::string_view line : absl::StrSplit(source.text, '\n')) {
    ++number;
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "//")) continue;
    // Between two quotes that follow each other stands a text, or what is between two texts, which is no word.
    const std::vector<absl::string_view> parts = absl::StrSplit(line, '"');
    for (size_t i = 1; i + 1 < parts.size(); ++i) {
      if (IsWord(parts[i])) words.try_emplace(std::string(parts[i]), Place{source.path, number});
    }
  }
}

std::set<std::string> ListedWords(const SourceFile& list) {
  std::set<std::string> words;
  for (absl::string_view line : absl::StrSplit(list.text, '\n')) {
    const absl::string_view word = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (!word.empty()) words.emplace(word);
  }
  return words;
}

// The names in the first column of a row, with the row's line.
std::map<std::string, int> ExplainedReasons(const SourceFile& page, std::vector<Finding>& findings) {
  std::map<std::string, int> reasons;
  bool in_table = false;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(page.text, '\n')) {
    ++number;
    if (absl::StartsWith(line, "| reason |")) in_table = true;
    if (!absl::StartsWith(line, "|")) in_table = false;
    if (!in_table || !absl::StartsWith(line, "| `")) continue;
    const std::vector<absl::string_view> columns = absl::StrSplit(line, '|');
    if (absl::StripAsciiWhitespace(columns[columns.size() - 2]).empty()) {
      findings.push_back({page.path, number, kRule, "a row of reasons that explains nothing"});
    }
    for (absl::string_view name : absl::StrSplit(columns[1], ',')) {
      name = absl::StripAsciiWhitespace(name);
      if (absl::ConsumePrefix(&name, "`") && absl::ConsumeSuffix(&name, "`")) reasons.try_emplace(std::string(name), number);
    }
  }
  return reasons;
}

}  // namespace

bool MaySetReasons(absl::string_view path) {
  if (path == "services/broker/run_events.cc") return true;
  if (!absl::StartsWith(path, "operator/") || !(absl::EndsWith(path, ".cc") || absl::EndsWith(path, ".h"))) return false;
  if (absl::EndsWith(path, "_test.cc") || absl::EndsWith(path, "_fuzz.cc")) return false;
  return !absl::StrContains(path, "/testing/");
}

std::vector<Finding> CheckReasons(const SourceFile& page, const std::vector<SourceFile>& sources, const SourceFile& other_words) {
  std::vector<Finding> findings;
  std::map<std::string, Place> words;
  for (const SourceFile& source : sources) CollectWords(source, words);
  const std::set<std::string> listed = ListedWords(other_words);
  const std::map<std::string, int> explained = ExplainedReasons(page, findings);
  for (const auto& [word, place] : words) {
    if (explained.contains(word) || listed.contains(word)) continue;
    findings.push_back(
        {place.path, place.line, kRule,
         absl::StrCat("\"", word, "\": ", page.path, " does not explain it, nor does ", other_words.path, " say that it is no reason")});
  }
  for (const auto& [name, line] : explained) {
    absl::string_view word = name;
    absl::ConsumeSuffix(&word, "...");
    if (!words.contains(std::string(word))) {
      findings.push_back({page.path, line, kRule, absl::StrCat("explains ", name, ", which nothing says")});
    } else if (word == name && listed.contains(name)) {
      findings.push_back({page.path, line, kRule, absl::StrCat("explains ", name, ", which is no reason by ", other_words.path)});
    }
  }
  for (const std::string& word : listed) {
    if (!words.contains(word)) findings.push_back({other_words.path, 0, kRule, absl::StrCat(word, " is in no source")});
  }
  return findings;
}

}  // namespace fusionllm::tidy
