// Bound by memory, and rare in the built-in models: the reference kernels copy whole runs already, except for transpose.
#include "lib/kernels/cpu/cpu.h"

namespace fusionllm::kernels::cpu {

std::span<const Entry> MovementKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kPlaceholder, MakeReference}, {OpKind::kConstant, MakeReference},  {OpKind::kReshape, MakeReference},
      {OpKind::kFlatten, MakeReference},     {OpKind::kTranspose, MakeReference}, {OpKind::kConcat, MakeReference},
      {OpKind::kSplit, MakeReference},       {OpKind::kSlice, MakeReference},     {OpKind::kPadSlice, MakeReference},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
