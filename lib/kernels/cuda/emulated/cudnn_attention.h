// In place of cuDNN's attention, for tests of who computes what.
#pragma once

#include <cstdint>

namespace fusionllm::kernels::cuda::emulated {

enum class CudnnAttention {
  kAbsent,       // there is none: what any process begins with
  kPresent,      // our own kernels, with a workspace that they check
  kIdle,         // so fast that it does nothing
  kFails,        // plans, and does not run
  kNoAlgorithm,  // it knows no way for anything
  kBroken,       // the card fails while it plans
};
void EmulateCudnn(CudnnAttention what);

// How often it ran since it was last asked.
int64_t TakeCudnnAttentionRuns();

}  // namespace fusionllm::kernels::cuda::emulated
