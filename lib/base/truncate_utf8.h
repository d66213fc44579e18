#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::base {

// The beginning of `text`, no longer than `max_bytes` and never ending inside a UTF-8 sequence: JSON and Protobuf take nothing else.
std::string TruncateUtf8(absl::string_view text, size_t max_bytes);

}  // namespace fusionllm::base
