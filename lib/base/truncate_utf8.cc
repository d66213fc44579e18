#include "lib/base/truncate_utf8.h"

namespace fusionllm::base {

std::string TruncateUtf8(absl::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  while (most_bytes > 0 && (static_cast<unsigned char>(text[most_bytes]) & 0xC0) == 0x80) --most_bytes;
  return std::string(text.substr(0, most_bytes));
}

}  // namespace fusionllm::base
