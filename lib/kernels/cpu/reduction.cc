#include "lib/kernels/cpu/cpu.h"

namespace fusionllm::kernels::cpu {

std::span<const Entry> ReductionKernels() {
  static constexpr Entry kEntries[] = {
      {"reduce", MakeReference}, {"reduce_max_grad", MakeReference}, {"broadcast_to", MakeReference}, {"sum_to", MakeReference}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
