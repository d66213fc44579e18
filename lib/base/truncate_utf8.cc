#include "lib/base/truncate_utf8.h"

namespace fusionllm::base {

std::string TruncateUtf8(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  return std::string(text.substr(0, max_bytes));
}

}  // namespace fusionllm::base
