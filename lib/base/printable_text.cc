#include "lib/base/printable_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::base {
namespace {

// The bytes of the UTF-8 sequence that `text` begins with; 0: it begins with none.
size_t SequenceBytes(absl::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0x80                    ? 1
                       : first >= 0xc2 && first < 0xe0 ? 2
                       : first >= 0xe0 && first < 0xf0 ? 3
                       : first >= 0xf0 && first < 0xf5 ? 4
                                                       : 0;
  if (text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

}  // namespace

std::string PrintableText(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = SequenceBytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    // U+0080 to U+009F are control characters, too.
    const bool control = first < 0x20 || first == 0x7f || (bytes == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (first == '\n' || first == '\r' || first == '\t') {
      absl::StrAppend(&out, first == '\n' ? "\\n" : first == '\r' ? "\\r" : "\\t");
    } else if (bytes == 0 || control) {
      for (const char c : text.substr(0, std::max<size_t>(bytes, 1))) absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      absl::StrAppend(&out, text.substr(0, bytes));
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

}  // namespace fusionllm::base
