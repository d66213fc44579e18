// bf16 and back over n consecutive elements, dispatched at run time to the best instruction set: the bits of lib/tensor/bf16.h.
//
// Input and output must not overlap. No alignment is needed. Thread-safe.
#pragma once

#include <cstdint>

namespace fusionllm::kernels::cpu {

void UpcastBf16(const uint16_t* from, float* to, int64_t n);
void RoundToBf16(const float* from, uint16_t* to, int64_t n);
// Rounded and widened again.
void RoundFloatsToBf16(const float* from, float* to, int64_t n);

}  // namespace fusionllm::kernels::cpu
