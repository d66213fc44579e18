#include "lib/kernels/cpu/cpu.h"

namespace fusionllm::kernels::cpu {

std::span<const Entry> PoolingKernels() {
  static constexpr Entry kEntries[] = {
      {"max_pool2d", MakeReference},      {"max_pool2d_grad", MakeReference}, {"avg_pool2d", MakeReference},
      {"avg_pool2d_grad", MakeReference}, {"global_avg_pool", MakeReference}, {"global_avg_pool_grad", MakeReference},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
