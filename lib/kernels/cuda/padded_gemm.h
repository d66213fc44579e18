// Products of bf16 matrices whose rows do not begin at whole 16 bytes, as those of a head over GPT-2's 50,257 tokens do not: what loads and
// stores whole vectors, the tensor memory accelerator among it, cannot take them (CUDA Driver API, cuTensorMapEncodeTiled: strides are
// multiples of 16 bytes).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "lib/kernels/cuda/gemm.h"

namespace fusionllm::kernels::cuda {

// The matrix of a product that is copied to rows of `leading` elements, a stretch of `rows_at_once` of its `rows` at a time.
struct RowPadding {
  enum class Of { kA, kB, kC } of;
  int64_t rows, width, leading, rows_at_once;
};

// Of a copy of at most `most_bytes` (but one row at least). Nothing where rows begin at whole 16 bytes already, where more than one matrix
// would have to be copied, and where stretches could not be multiplied one by one: batches, products with extras, and sums over rows whose
// result is bf16.
std::optional<RowPadding> PaddingOf(const GemmShape& shape, int64_t most_bytes);

// Takes the copy as workspace. A sum over rows is made of those over stretches, each added in fp32. Errors: PrepareGemm's.
absl::StatusOr<std::unique_ptr<Gemm>> PreparePaddedGemm(Device& device, const GemmShape& shape, const RowPadding& padding);

// As PrepareGemm; where algorithms are chosen by measurement the padded product if that is faster, measured once for a shape and kept for
// the process.
absl::StatusOr<std::unique_ptr<Gemm>> PrepareProduct(Device& device, const GemmShape& shape);

}  // namespace fusionllm::kernels::cuda
