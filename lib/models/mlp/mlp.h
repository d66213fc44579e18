// Family mlp: the fields it has in jobs, and the object (lib/models/family.h). graph.h has the network.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lib/models/family.h"

namespace fusionllm::models {

enum class Activation { kRelu, kGelu, kTanh, kSigmoid };

constexpr std::array<std::pair<const char*, Activation>, 4> NamesOf(Activation) {
  return {{{"relu", Activation::kRelu}, {"gelu", Activation::kGelu}, {"tanh", Activation::kTanh}, {"sigmoid", Activation::kSigmoid}}};
}

struct MlpSettings {
  std::vector<int64_t> layers;  // widths, input first
  std::optional<Activation> activation;
  bool operator==(const MlpSettings&) const = default;
};

template <class V>
void Visit(V& v, MlpSettings& s) {
  v.Field("layers", s.layers, {.min = 1, .max = 1e7}, "mlp: widths, input first; at least two. Required for mlp.");
  v.Field("activation", s.activation, {}, "mlp: between layers, not after the last. Omitted: relu.");
}

const Family& MlpFamily();

}  // namespace fusionllm::models
