// The small lexical rules that reading, printing and messages share: paths, numbers. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::job {

// One step of a path: a key, or an index into a list (then key is empty).
struct PathStep {
  absl::string_view key;
  int64_t index = -1;
};

// Takes the first step off a path such as "pins[0].device". A malformed path gives a step with neither key nor index.
PathStep NextPathStep(absl::string_view& path);

// Bytes of the UTF-8 sequence at the start of text, which is not empty; 0 when it is malformed.
size_t Utf8SequenceLength(absl::string_view text);
// Of one such sequence, the character where it is one that YAML 1.1 takes for the end of a line, or does not allow (U+0085, U+2028, a byte
// order mark); else 0.
int UnprintableCharacter(absl::string_view sequence);

// The first character of well-formed UTF-8 that is invisible, or that looks like a space and is none to YAML; the text is empty where there
// is none.
struct InvisibleCharacter {
  size_t at = 0;
  absl::string_view text;
};
InvisibleCharacter FirstInvisible(absl::string_view text);
// "U+00A0 (no-break space)", for messages; `sequence` is one character of UTF-8.
std::string CharacterName(absl::string_view sequence);

// The shortest text that reads back as the same number, always with a decimal point when there is an exponent ("3.0e-04"), because some
// YAML readers take 3e-04 for text. Whole numbers below 2^53 come out as such.
std::string NumberText(double value);

}  // namespace fusionllm::job
