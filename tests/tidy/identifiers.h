// The names in C++ text, and the words that they are made of. Pure functions.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace fusionllm::tidy {

struct Identifier {
  absl::string_view name;
  int line = 0;  // from 1
};

// Names and keywords in the order of the text; none of comments, of strings (raw ones too) and of characters.
std::vector<Identifier> IdentifiersOf(absl::string_view text);

// The parts of a name in CamelCase or snake_case: "k", "Max", "Bytes" of kMaxBytes; "left", "bytes" of left_bytes; "URL", "Of" of URLOf.
// Digits separate parts, too.
std::vector<absl::string_view> PartsOf(absl::string_view name);

}  // namespace fusionllm::tidy
