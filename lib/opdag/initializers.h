// How the parameters of an op start by default, as PyTorch's layers start theirs.
//
// linear, conv2d: weights and biases uniform in +-1/sqrt(fan_in) (kaiming_uniform with a = sqrt(5)); embedding tables normal(0.02), as
// GPT-2; layer_norm and batch_norm: weight ones, bias zeros; running mean zeros, running variance ones, counter zero, not trainable.
#pragma once

#include <vector>

#include "lib/opdag/graph.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::opdag {

struct ParameterInit {
  Initializer initializer;
  bool trainable = true;
  bool operator==(const ParameterInit&) const = default;
};

// Start of parameter `slot` of an op of this schema; `types` are those of all its parameters.
ParameterInit DefaultInit(const OpSchema& schema, const Attributes& attributes, const std::vector<tensor::TensorType>& types, size_t slot);

}  // namespace fusionllm::opdag
