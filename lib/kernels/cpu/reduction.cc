#include "lib/kernels/cpu/cpu.h"

namespace fusionllm::kernels::cpu {

std::span<const Entry> ReductionKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kReduce, MakeReference},
                                       {OpKind::kReduceMaxGrad, MakeReference},
                                       {OpKind::kBroadcastTo, MakeReference},
                                       {OpKind::kSumTo, MakeReference}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
