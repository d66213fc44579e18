// The instruction set that the vector code of cpu/vector chose on this machine ("AVX3", "AVX2", "SSE2").
#pragma once

#include "absl/strings/string_view.h"

namespace fusionllm::kernels::cpu {

absl::string_view VectorTarget();

}  // namespace fusionllm::kernels::cpu
