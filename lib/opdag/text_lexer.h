// Cuts the text form of a graph into tokens. Private to lib/opdag; text.h describes the language.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::opdag::text {

inline constexpr size_t kMaxText = 64 << 20;
inline constexpr size_t kMaxName = 512;

// Where a token begins, both counted from 1; columns are bytes.
struct Position {
  int line = 1;
  int column = 1;
};

enum class TokenKind {
  kWord,         // a name, a keyword or a number: what it is depends on where it stands
  kString,       // `text` is unescaped
  kPunctuation,  // one of { } ( ) [ ] = , ; : @
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  Position position;
};

// "file:line:column: reason".
absl::Status ErrorAt(absl::string_view file, Position position, absl::string_view reason);

// The last token is kEnd. Errors: InvalidArgument for a byte outside the language, an open string, or text over the limits.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view text, absl::string_view file);

// Whether a name may stand without quotes.
bool IsPlainName(absl::string_view name);

}  // namespace fusionllm::opdag::text
