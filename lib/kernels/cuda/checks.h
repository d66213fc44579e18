// Checks that kernels make of ids, and how they tell: the first position out of range is left on the device (Device::Synchronize). For .cu
// files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "lib/kernels/cuda/device.h"

namespace fusionllm::kernels::cuda {

// A check as kernels get it.
struct RangeCheck {
  DeviceFault* fault;
  int32_t number;
  int64_t limit;
};

// Whether `value` lies in [0, limit). Of several values out of range one is reported: the first to be seen.
__device__ inline bool InRange(const RangeCheck& check, int32_t value, int64_t position) {
  if (value >= 0 && value < check.limit) return true;
  if (atomicCAS(&check.fault->found, 0, check.number + 1) == 0) {
    check.fault->value = value;
    check.fault->position = position;
  }
  return false;
}

}  // namespace fusionllm::kernels::cuda
