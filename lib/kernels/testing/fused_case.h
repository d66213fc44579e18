// Kernels for two ops (Backend::PrepareFused) against the kernels of both. GoogleTest expectations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/kernels/testing/conformance.h"

namespace fusionllm::kernels::testing {

// Of a kernel for two ops; arguments as FusedFactory's.
using FusedMaker = std::function<absl::StatusOr<std::unique_ptr<Kernel>>(PreparedOp first, PreparedOp second, int through)>;

// Normally distributed, f32 or rounded to bf16.
Array RandomFloats(const tensor::TensorType& type, uint64_t seed);
// bf16 as f32; others as they are.
Array Widened(const Array& array);

OpCase CaseOf(std::string type, std::vector<Array> inputs, std::vector<Array> parameters, std::vector<tensor::TensorType> outputs);

// Both ops as a fused kernel takes them. What the first hands on, input `through` of the second, comes as a pattern of NaNs.
OpCase Together(const OpCase& first, const OpCase& second, int through);

// That one kernel for both has the bits of two, in outputs and parameters: with what the first hands on wanted and not, for each way in
// `accumulate` (by output of both) of adding up gradients, and wherever the kernel says that an output of the second may lie.
void ExpectFusedSameBits(const Target& target, const FusedMaker& make_fused, const OpCase& first, OpCase second, int through,
                         const std::vector<std::vector<bool>>& accumulate, Mode mode = Mode::kTrain);

}  // namespace fusionllm::kernels::testing
