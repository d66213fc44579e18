// What files hold, in a few digits: to tell whether they are still what they were.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace fusionllm::base {

// Sixteen hex digits (FNV-1a) of the lengths and contents of files, one after another; names do not count. Of files that have more than 64
// MiB together it reads that much, in blocks spread evenly over each. Not for those who fear forgery. Blocks. Errors: SourceFile's.
absl::StatusOr<std::string> ContentDigest(std::span<const std::string> paths);

}  // namespace fusionllm::base
