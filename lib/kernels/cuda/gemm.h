// Matrix products on the device, by cuBLASLt where there is one. Row-major, as everything here.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/kernels/cuda/device.h"
#include "lib/tensor/dtype.h"

namespace fusionllm::kernels::cuda {

// What a product does besides.
enum class GemmExtra {
  kNone,
  kGelu,      // c = gelu(product + bias) in its tanh form; product + bias goes to `aux`, which lies as c does
  kGeluGrad,  // c = product * gelu'(aux), likewise
  kSumsOfA,   // sums[i] = the sum of row i of a, which is [m, k] once transposed; m floats
  kSumsOfB,   // sums[j] = the sum of column j of b, which is [k, n]; n floats
};

// c[m, n] = op(a)[m, k] op(b)[k, n] + beta c, `batch` times with the strides between one and the next; op transposes where its flag says
// so. Sums are fp32 whatever the factors are, and a bf16 result is rounded once.
struct GemmShape {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements from one row to the next, of the matrix as it lies in memory
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;  // elements; 0: the same matrix each time
  // After the product, `n` numbers of the result's type are added to each row: cuBLASLt's biases have it (cublasLt.h,
  // CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE).
  bool bias = false;
  GemmExtra extra = GemmExtra::kNone;
  tensor::DType factors = tensor::DType::kF32;  // of a and b: f32, or bf16
  tensor::DType result = tensor::DType::kF32;   // of c: f32, or bf16 where the factors are
  auto operator<=>(const GemmShape&) const = default;
};

struct GemmData {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;
  void* aux = nullptr;
  float* sums = nullptr;
  float beta = 0;  // 0 or 1
};

// Prepared once for a shape; holds what the library wants to keep of it.
class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual size_t workspace_bytes() const = 0;
  // `workspace`: of the device, aligned to 256 bytes; the matrices and the bias to tensor::kAlignment.
  virtual absl::Status Run(const GemmData& data, void* workspace) const = 0;
};

// By the algorithm that the device's AlgorithmChoice asks for; a measured one is kept for the process, and shared by ops of one shape.
// Errors: FailedPrecondition, naming the library, where cuBLASLt cannot be loaded; Unimplemented where it knows no way for this
// shape; InvalidArgument for types that are not said above to go together.
absl::StatusOr<std::unique_ptr<Gemm>> PrepareGemm(Device& device, const GemmShape& shape);

// Of every PrepareGemm: whether the types go together.
inline absl::Status CheckTypes(const GemmShape& shape) {
  const auto f32_or_bf16 = [](tensor::DType type) { return type == tensor::DType::kF32 || type == tensor::DType::kBF16; };
  const bool fit = f32_or_bf16(shape.factors) && (shape.result == tensor::DType::kF32 || shape.result == shape.factors);
  if (fit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("no product of ", tensor::Name(shape.factors), " factors is ", tensor::Name(shape.result)));
}

}  // namespace fusionllm::kernels::cuda
