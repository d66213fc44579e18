#include "lib/job/scalar.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::job {

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

int OddCharacter(absl::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 2 && byte(0) == 0xC2 && byte(1) < 0xA0) return byte(1);  // C1 controls, NEL
  if (sequence.size() != 3) return 0;
  const int rune = (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  return rune == 0x2028 || rune == 0x2029 || rune == 0xFEFF || rune >= 0xFFFE ? rune : 0;
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
