#include "lib/job/scalar.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::job {
namespace {

struct Invisible {
  int first, last;
  absl::string_view name;
};

// Blanks, and characters of no width, of Unicode's categories Zs and Cf.
constexpr Invisible kInvisible[] = {
    {0x00A0, 0x00A0, "no-break space"},
    {0x00AD, 0x00AD, "soft hyphen"},
    {0x061C, 0x061C, "mark of writing direction"},
    {0x1680, 0x1680, "Ogham space"},
    {0x180E, 0x180E, "Mongolian vowel separator"},
    {0x2000, 0x200A, "typographic space"},
    {0x200B, 0x200B, "zero-width space"},
    {0x200C, 0x200C, "zero-width non-joiner"},
    {0x200D, 0x200D, "zero-width joiner"},
    {0x200E, 0x200F, "mark of writing direction"},
    {0x2028, 0x2028, "line separator"},
    {0x2029, 0x2029, "paragraph separator"},
    {0x202A, 0x202E, "mark of writing direction"},
    {0x202F, 0x202F, "narrow no-break space"},
    {0x205F, 0x205F, "mathematical space"},
    {0x2060, 0x2060, "word joiner"},
    {0x2061, 0x2064, "invisible operator"},
    {0x2066, 0x2069, "mark of writing direction"},
    {0x3000, 0x3000, "ideographic space"},
    {0xFEFF, 0xFEFF, "byte order mark"},
    {0xFFF9, 0xFFFB, "interlinear mark"},
};

// Of one well-formed sequence.
int RuneOf(absl::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0);
  int rune = byte(0) & (0xFF >> (sequence.size() + 1));
  for (size_t i = 1; i < sequence.size(); ++i) rune = rune << 6 | (byte(i) & 0x3F);
  return rune;
}

const Invisible* FindInvisible(int rune) {
  const auto* found = std::find_if(std::begin(kInvisible), std::end(kInvisible), [&](const Invisible& one) { return rune <= one.last; });
  return found != std::end(kInvisible) && rune >= found->first ? found : nullptr;
}

}  // namespace

PathStep NextPathStep(absl::string_view& path) {
  PathStep step;
  if (path[0] == '[') {
    const size_t close = path.find(']');
    int64_t index = 0;
    const bool ok = close != absl::string_view::npos && absl::SimpleAtoi(path.substr(1, close - 1), &index) && index >= 0;
    if (ok) step.index = index;
    path.remove_prefix(ok ? close + 1 : path.size());
  } else {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    step.key = path.substr(0, end);
    path.remove_prefix(end);
  }
  if (!path.empty() && path[0] == '.') {
    path.remove_prefix(1);
    if (path.empty()) step = {};  // "spec." names nothing
  }
  return step;
}

size_t Utf8SequenceLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and code points past U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

int UnprintableCharacter(absl::string_view sequence) {
  if (sequence.empty() || sequence.size() > 3) return 0;
  const int rune = RuneOf(sequence);
  const bool control = rune >= 0x80 && rune < 0xA0;  // C1 controls, NEL
  return control || rune == 0x2028 || rune == 0x2029 || rune == 0xFEFF || rune == 0xFFFE || rune == 0xFFFF ? rune : 0;
}

InvisibleCharacter FirstInvisible(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = std::max<size_t>(Utf8SequenceLength(text.substr(i)), 1);
    if (length > 1 && FindInvisible(RuneOf(text.substr(i, length))) != nullptr) return {i, text.substr(i, length)};
    i += length;
  }
  return {};
}

std::string CharacterName(absl::string_view sequence) {
  const int rune = RuneOf(sequence);
  const Invisible* const invisible = FindInvisible(rune);
  return absl::StrFormat("U+%04X%s", rune, invisible == nullptr ? "" : absl::StrCat(" (", invisible->name, ")"));
}

std::string NumberText(double value) {
  if (value == std::floor(value) && std::abs(value) < 9007199254740992.0 && !std::signbit(value)) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  char buffer[64];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
  return text;
}

}  // namespace fusionllm::job
