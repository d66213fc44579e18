// Both ends of one edge between two stages, and what crosses it, for tests of its codecs and guard.
#pragma once

#include <cstdint>

#include "lib/base/philox.h"
#include "lib/runtime/edge_codec.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::runtime::testing {

// Value 5 crosses from stage 0 to stage 1; value 9 is its gradient.
inline constexpr CutEdge kForwardAtSender = {.value = 5, .peer = 1, .of = 5};
inline constexpr CutEdge kForwardAtReceiver = {.value = 5, .peer = 0, .of = 5};
inline constexpr CutEdge kGradientAtSender = {.value = 9, .peer = 0, .gradient = true, .of = 5};
inline constexpr CutEdge kGradientAtReceiver = {.value = 9, .peer = 1, .gradient = true, .of = 5};

inline tensor::Tensor RandomTensor(uint64_t seed, int64_t elements) {
  tensor::Tensor tensor({tensor::DType::kF32, {elements}});
  const base::CounterRng rng(seed, "values");
  for (int64_t i = 0; i < elements; ++i) tensor.f32()[i] = rng.Normal(i);
  return tensor;
}

}  // namespace fusionllm::runtime::testing
