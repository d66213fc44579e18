// Lines of job files that families have in common (Family::Template). Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::models {

// `line` up to the column where remarks begin.
std::string BeforeRemark(std::string line);

// How a network on images is trained. `micro_batch_remark`: behind that on micro-batches, ", of which ..".
std::string ImageTraining(absl::string_view micro_batch_remark);

}  // namespace fusionllm::models
