// The time and cost of what cannot be.
#pragma once

#include <limits>

namespace fusionllm::scheduler {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace fusionllm::scheduler
