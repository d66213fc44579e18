// Kernels for a row of ops (Backend::PrepareFused) against the kernels of each. GoogleTest expectations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/kernels/testing/conformance.h"

namespace fusionllm::kernels::testing {

using FusedMaker = std::function<absl::StatusOr<std::unique_ptr<Kernel>>(std::vector<PreparedFusedOp> row)>;

// An op of a row: its input `through` is what the one before hands on.
struct LinkedCase {
  OpCase op_case;
  int through = 0;
};
using RowCase = std::vector<LinkedCase>;

// Normally distributed, f32 or rounded to bf16.
Array RandomFloats(const tensor::TensorType& type, uint64_t seed);
// bf16 as f32; others as they are.
Array UpcastToF32(const Array& array);

OpCase CaseOf(std::string type, std::vector<Array> inputs, std::vector<Array> parameters, std::vector<tensor::TensorType> outputs);

// `wanted`: by op, whether others than the next one want output 0. Ops that it does not reach: they do.
std::vector<PreparedFusedOp> PreparedRow(const RowCase& row, const std::vector<bool>& wanted = {});
// All ops as a fused kernel takes them. What one hands on to the next comes as a pattern of NaNs.
OpCase Together(const RowCase& row);

// That one kernel for all has the bits of one for each, in outputs and parameters: with what each hands on wanted and not, in all
// combinations, for each way in `accumulate` (by output of all) of adding up gradients, and wherever the kernel says that an output may
// lie.
void ExpectFusedSameBits(const Target& target, const FusedMaker& make_fused, const RowCase& row,
                         const std::vector<std::vector<bool>>& accumulate, Mode mode = Mode::kTrain);

}  // namespace fusionllm::kernels::testing
