#include "tests/tidy/identifiers.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::tidy {
namespace {

bool ContinuesName(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Behind the first `mark` from `at` on, or the end of the text.
size_t Behind(absl::string_view text, absl::string_view mark, size_t at) {
  const size_t found = text.find(mark, at);
  return found == absl::string_view::npos ? text.size() : found + mark.size();
}

// `at` is the opening quote. Without a closing one in the line it ends with the line.
size_t EndOfQuoted(absl::string_view text, size_t at) {
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[at]) {
      return i + 1;
    } else if (text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

size_t EndOfRawString(absl::string_view text, size_t at) {
  const size_t open = text.find('(', at);
  if (open == absl::string_view::npos) return text.size();
  return Behind(text, absl::StrCat(")", text.substr(at + 1, open - at - 1), "\""), open);
}

size_t EndOfName(absl::string_view text, size_t at) {
  while (at < text.size() && ContinuesName(text[at])) ++at;
  return at;
}

// No character begins in 1'000.
size_t EndOfNumber(absl::string_view text, size_t at) {
  while (at < text.size() && (ContinuesName(text[at]) || (text[at] == '\'' && at + 1 < text.size() && ContinuesName(text[at + 1])))) ++at;
  return at;
}

bool IsUpper(char c) { return absl::ascii_isupper(static_cast<unsigned char>(c)); }
bool IsLower(char c) { return absl::ascii_islower(static_cast<unsigned char>(c)); }

}  // namespace

std::vector<Identifier> IdentifiersOf(absl::string_view text) {
  std::vector<Identifier> identifiers;
  int line = 1;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = at + 1;
    const absl::string_view rest = text.substr(at);
    if (absl::StartsWith(rest, "//")) {
      end = std::min(text.find('\n', at), text.size());
    } else if (absl::StartsWith(rest, "/*")) {
      end = Behind(text, "*/", at + 2);
    } else if (rest[0] == '"' || rest[0] == '\'') {
      end = EndOfQuoted(text, at);
    } else if (absl::ascii_isdigit(static_cast<unsigned char>(rest[0]))) {
      end = EndOfNumber(text, at);
    } else if (ContinuesName(rest[0])) {
      end = EndOfName(text, at);
      if (text[end - 1] == 'R' && end < text.size() && text[end] == '"') {
        end = EndOfRawString(text, end);
      } else {
        identifiers.push_back({text.substr(at, end - at), line});
      }
    }
    line += static_cast<int>(std::count(text.begin() + at, text.begin() + end, '\n'));
    at = end;
  }
  return identifiers;
}

std::vector<absl::string_view> PartsOf(absl::string_view name) {
  std::vector<absl::string_view> parts;
  size_t start = 0;
  for (size_t i = 0; i <= name.size(); ++i) {
    const bool letter = i < name.size() && absl::ascii_isalpha(static_cast<unsigned char>(name[i]));
    const bool begins = letter && i > start && IsUpper(name[i]) && (IsLower(name[i - 1]) || (i + 1 < name.size() && IsLower(name[i + 1])));
    if (letter && !begins) continue;
    if (i > start) parts.push_back(name.substr(start, i - start));
    start = begins ? i : i + 1;
  }
  return parts;
}

}  // namespace fusionllm::tidy
