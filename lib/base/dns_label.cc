#include "lib/base/dns_label.h"

#include <algorithm>
#include <cstddef>

namespace fusionllm::base {
namespace {

constexpr size_t kMaxBytes = 63;

bool IsPlain(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

bool IsDnsLabel(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxBytes && IsPlain(text.front()) && IsPlain(text.back()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return IsPlain(c) || c == '-'; });
}

}  // namespace fusionllm::base
