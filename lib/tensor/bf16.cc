#include "lib/tensor/bf16.h"

#include <cstddef>

namespace fusionllm::tensor {

void UpcastBf16(std::span<const uint16_t> from, float* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = UpcastBf16(from[i]);
}

void RoundToBf16(std::span<const float> from, uint16_t* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = RoundToBf16(from[i]);
}

}  // namespace fusionllm::tensor
