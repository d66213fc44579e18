// Matrix products on the device, by cuBLASLt where there is one. Row-major, as everything here.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kernels/cuda/device.h"

namespace fusionllm::kernels::cuda {

// c[m, n] = op(a)[m, k] op(b)[k, n] + beta c, `batch` times with the strides between one and the next; op transposes where its flag says
// so.
struct GemmShape {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements from one row to the next, of the matrix as it lies in memory
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;  // elements; 0: the same matrix each time
  bool bias = false;                                 // after the product, `n` floats are added to each row
  bool operator==(const GemmShape&) const = default;
};

struct GemmData {
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  const float* bias = nullptr;
  float beta = 0;  // 0 or 1
};

// Prepared once for a shape; holds what the library wants to keep of it.
class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual size_t workspace_bytes() const = 0;
  // `workspace`: of the device, aligned to 256 bytes. fp32 throughout.
  virtual absl::Status Run(const GemmData& data, void* workspace) const = 0;
};

// Errors: FailedPrecondition, naming the library, where cuBLASLt cannot be loaded; Unimplemented where it knows no way for this shape.
absl::StatusOr<std::unique_ptr<Gemm>> PrepareGemm(Device& device, const GemmShape& shape);

}  // namespace fusionllm::kernels::cuda
