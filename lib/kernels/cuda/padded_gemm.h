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

// The matrix of a product that is copied to rows of `leading` elements, a stretch of `rows_at_once` of its `rows` at a time. Rows are of
// `width` elements of bf16, which lie without gaps; as many as m says, or, where the product sums over them, k.
struct RowPadding {
  enum class Of { kA, kB, kC } of;
  int64_t rows, width, leading, rows_at_once;
};

// Of a copy of at most `max_bytes` (but one row at least). Nothing where rows begin at whole 16 bytes already, where more than one matrix
// would have to be copied, and where stretches could not be multiplied one by one: batches, products with extras, and sums over rows with a
// bias, of a second factor that is transposed, or with a result in bf16.
std::optional<RowPadding> PaddingOf(const GemmShape& shape, int64_t max_bytes);

// Of a padding by PaddingOf(shape). Takes the copy as workspace. A sum over rows is made of those over stretches, each added in fp32.
// `device` must outlive it. Errors: PrepareGemm's.
absl::StatusOr<std::unique_ptr<Gemm>> PreparePaddedGemm(Device& device, const GemmShape& shape, const RowPadding& padding);

// As PrepareGemm; where algorithms are chosen by measurement the padded product if that is faster. That is measured once for a shape and
// kept for the process; meanwhile it blocks, and takes as much memory of the device as factors, result and workspace have. `device` must
// outlive it.
absl::StatusOr<std::unique_ptr<Gemm>> PrepareProduct(Device& device, const GemmShape& shape);

}  // namespace fusionllm::kernels::cuda
