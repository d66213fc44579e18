// Which way every ReLU and every maximum of a forward pass went. Two parameter values with equal choices lie on the same smooth piece of
// the loss, as far as these ops go.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/numerics/evaluator.h"

namespace fusionllm::numerics {

using Choices = std::vector<int32_t>;

// Of the last forward pass: for a relu whether each element was above zero, for max_pool2d the place that won each window, for a reduce of
// kind max whether each element was a largest one. Ops from `forward_ops` on are not looked at.
Choices ChoicesOf(Evaluator& evaluator, int forward_ops);

}  // namespace fusionllm::numerics
