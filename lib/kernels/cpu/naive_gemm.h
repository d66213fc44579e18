// A matrix product in plain loops: what gemm.h is made of where there is no oneDNN (without_onednn.cc). Every build compiles and tests it.
#pragma once

#include "lib/kernels/cpu/gemm.h"

namespace fusionllm::kernels::cpu {

// c = alpha op(a) op(b) + beta c, in the calling thread. Sums run over ascending k, in fp32.
void NaiveGemm(const Gemm& gemm);

}  // namespace fusionllm::kernels::cpu
