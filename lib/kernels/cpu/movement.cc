// Bound by memory, and rare in the built-in models: the reference kernels copy whole runs already, except for transpose.
#include "lib/kernels/cpu/cpu.h"

namespace fusionllm::kernels::cpu {

std::span<const Entry> MovementKernels() {
  static constexpr Entry kEntries[] = {
      {"placeholder", MakeReference}, {"constant", MakeReference},  {"reshape", MakeReference},
      {"flatten", MakeReference},     {"transpose", MakeReference}, {"concat", MakeReference},
      {"split", MakeReference},       {"slice", MakeReference},     {"pad_slice", MakeReference},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
