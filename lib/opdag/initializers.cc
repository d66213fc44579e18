#include "lib/opdag/initializers.h"

#include <cmath>

namespace fusionllm::opdag {
namespace {

// How many inputs one output element sums over.
double FanIn(const OpSchema& schema, const Attributes& attributes, const tensor::Shape& weight) {
  if (schema.kind == OpKind::kLinear) return static_cast<double>(weight[attributes.Text("layout", "io") == "io" ? 0 : 1]);
  return static_cast<double>(weight[1]) * static_cast<double>(weight[2]) * static_cast<double>(weight[3]);
}

}  // namespace

ParameterInit DefaultInit(const OpSchema& schema, const Attributes& attributes, const std::vector<tensor::TensorType>& types, size_t slot) {
  using Kind = Initializer::Kind;
  const std::string& name = schema.parameters[slot];
  if (schema.kind == OpKind::kLinear || schema.kind == OpKind::kConv2d) {
    return {{Kind::kUniform, 1 / std::sqrt(FanIn(schema, attributes, types[0].shape))}, true};
  }
  if (schema.kind == OpKind::kEmbedding) return {{Kind::kNormal, 0.02}, true};
  const bool state = name == "running_mean" || name == "running_var" || name == "num_batches_tracked";
  const bool ones = name == "weight" || name == "running_var";
  return {{ones ? Kind::kOnes : Kind::kZeros, 0}, !state};
}

}  // namespace fusionllm::opdag
