// In place of cuBLASLt: plain loops that sum in double.
#include "lib/kernels/cuda/gemm.h"

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/element.h"

namespace fusionllm::kernels::cuda {
namespace {

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
      const float bias = s.bias ? static_cast<float>(static_cast<const Result*>(data.bias)[column]) : 0.0f;
      out = static_cast<float>(sum) + bias + (data.beta != 0 ? static_cast<float>(out) : 0.0f);
    }
  }
}

template <typename Factor, typename Result>
void MultiplyAll(const GemmShape& s, const GemmData& data) {
  const auto* const a = static_cast<const Factor*>(data.a);
  const auto* const b = static_cast<const Factor*>(data.b);
  auto* const c = static_cast<Result*>(data.c);
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
