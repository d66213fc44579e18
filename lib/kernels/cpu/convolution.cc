#include "lib/kernels/cpu/cpu.h"

namespace fusionllm::kernels::cpu {

std::span<const Entry> ConvolutionKernels() {
  static constexpr Entry kEntries[] = {
      {"conv2d", MakeReference}, {"conv2d_grad_input", MakeReference}, {"conv2d_grad_weight", MakeReference}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
