// Kernels of the CPU back end, for tests of single ops.
#pragma once

#include <utility>

#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/testing/op_case.h"

namespace fusionllm::kernels::testing {

// On so many threads.
inline KernelMaker Cpu(int threads) {
  return [pool = cpu::WorkerPool::Create(threads).value()](PreparedOp op) { return cpu::MakeKernel(std::move(op), pool); };
}

}  // namespace fusionllm::kernels::testing
