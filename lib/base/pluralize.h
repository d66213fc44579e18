#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::base {

// "1 stage", "2 stages", "0 stages"; of a noun with another plural that is given: Pluralize(2, "micro-batch", "micro-batches").
std::string Pluralize(int64_t count, absl::string_view noun, absl::string_view plural = "");

}  // namespace fusionllm::base
