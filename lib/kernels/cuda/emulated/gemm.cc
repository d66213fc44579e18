// In place of cuBLASLt: plain loops that sum in double.
#include "lib/kernels/cuda/gemm.h"

#include <cmath>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/element.h"

namespace fusionllm::kernels::cuda {
namespace {

// Hendrycks & Gimpel, arXiv 1606.08415, section 2.
constexpr double kSqrt2OverPi = 0.79788456080286535588, kCubic = 0.044715;
float Gelu(double x) { return static_cast<float>(0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x)))); }
float GeluSlope(double x) {
  const double t = std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x));
  return static_cast<float>(0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kCubic * x * x));
}

template <typename Factor, typename Result>
void Multiply(const GemmShape& s, const Factor* a, const Factor* b, const GemmData& data, Result* c) {
  for (int64_t row = 0; row < s.m; ++row) {
    for (int64_t column = 0; column < s.n; ++column) {
      double sum = 0;
      for (int64_t l = 0; l < s.k; ++l) {
        sum += static_cast<double>(s.transpose_a ? a[l * s.lda + row] : a[row * s.lda + l]) *
               (s.transpose_b ? b[column * s.ldb + l] : b[l * s.ldb + column]);
      }
      Result& out = c[row * s.ldc + column];
      auto* const aux = static_cast<Result*>(data.aux) + row * s.ldc + column;
      const float bias = s.bias ? static_cast<float>(static_cast<const Result*>(data.bias)[column]) : 0.0f;
      const float product = static_cast<float>(sum) + bias;
      if (s.extra == GemmExtra::kGelu) {
        *aux = product;
        out = Gelu(product);
      } else if (s.extra == GemmExtra::kGeluGrad) {
        out = product * GeluSlope(*aux);
      } else {
        out = product + (data.beta != 0 ? static_cast<float>(out) : 0.0f);
      }
    }
  }
}

// Of a and b as they are once transposed.
template <typename Factor>
void Sum(const GemmShape& s, const Factor* a, const Factor* b, float* sums) {
  const bool of_a = s.extra == GemmExtra::kSumsOfA;
  for (int64_t i = 0; i < (of_a ? s.m : s.n); ++i) {
    double sum = 0;
    for (int64_t l = 0; l < s.k; ++l) {
      if (of_a) sum += static_cast<double>(s.transpose_a ? a[l * s.lda + i] : a[i * s.lda + l]);
      if (!of_a) sum += static_cast<double>(s.transpose_b ? b[i * s.ldb + l] : b[l * s.ldb + i]);
    }
    sums[i] = static_cast<float>(sum);
  }
}

template <typename Factor, typename Result>
void MultiplyAll(const GemmShape& s, const GemmData& data) {
  const auto* const a = static_cast<const Factor*>(data.a);
  const auto* const b = static_cast<const Factor*>(data.b);
  auto* const c = static_cast<Result*>(data.c);
  if (s.extra == GemmExtra::kSumsOfA || s.extra == GemmExtra::kSumsOfB) Sum(s, a, b, data.sums);
  for (int64_t i = 0; i < s.batch; ++i) Multiply(s, a + i * s.stride_a, b + i * s.stride_b, data, c + i * s.stride_c);
}

class PlainGemm final : public Gemm {
 public:
  PlainGemm(Device& device, const GemmShape& shape) : device_(device), s_(shape) {}
  size_t workspace_bytes() const override { return 0; }
  absl::Status Run(const GemmData& data, void*) const override {
    return ToStatus(emulated::RunOnDevice(device_.stream(),
                                          [s = s_, data] {
                                            if (s.factors == tensor::DType::kF32) return MultiplyAll<float, float>(s, data);
                                            if (s.result == tensor::DType::kF32) return MultiplyAll<Bf16, float>(s, data);
                                            MultiplyAll<Bf16, Bf16>(s, data);
                                          }),
                    "a matrix product");
  }

 private:
  Device& device_;
  const GemmShape s_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gemm>> PrepareGemm(Device& device, const GemmShape& shape) {
  FUSIONLLM_RETURN_IF_ERROR(CheckTypes(shape));
  return std::make_unique<PlainGemm>(device, shape);
}

}  // namespace fusionllm::kernels::cuda
