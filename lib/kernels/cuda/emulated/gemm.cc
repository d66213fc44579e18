// In place of cuBLASLt: plain loops that sum in double.
#include "lib/kernels/cuda/gemm.h"

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/element.h"

namespace fusionllm::kernels::cuda {
namespace {

class PlainGemm final : public Gemm {
 public:
  explicit PlainGemm(const GemmShape& shape) : s_(shape) {}
  size_t workspace_bytes() const override { return 0; }
  absl::Status Run(const GemmData& data, void*) const override {
    emulated::RunOnDevice([&] {
      if (s_.factors == tensor::DType::kF32) return MultiplyAll<float, float>(data);
      if (s_.result == tensor::DType::kF32) return MultiplyAll<Bf16, float>(data);
      MultiplyAll<Bf16, Bf16>(data);
    });
    return absl::OkStatus();
  }

 private:
  template <typename Factor, typename Result>
  void MultiplyAll(const GemmData& data) const {
    const auto* const a = static_cast<const Factor*>(data.a);
    const auto* const b = static_cast<const Factor*>(data.b);
    auto* const c = static_cast<Result*>(data.c);
    for (int64_t i = 0; i < s_.batch; ++i) Multiply(a + i * s_.stride_a, b + i * s_.stride_b, data, c + i * s_.stride_c);
  }

  template <typename Factor, typename Result>
  void Multiply(const Factor* a, const Factor* b, const GemmData& data, Result* c) const {
    for (int64_t row = 0; row < s_.m; ++row) {
      for (int64_t column = 0; column < s_.n; ++column) {
        double sum = 0;
        for (int64_t l = 0; l < s_.k; ++l) {
          sum += static_cast<double>(s_.transpose_a ? a[l * s_.lda + row] : a[row * s_.lda + l]) *
                 (s_.transpose_b ? b[column * s_.ldb + l] : b[l * s_.ldb + column]);
        }
        Result& out = c[row * s_.ldc + column];
        out = static_cast<float>(sum) + (s_.bias ? data.bias[column] : 0.0f) + (data.beta != 0 ? static_cast<float>(out) : 0.0f);
      }
    }
  }

  const GemmShape s_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gemm>> PrepareGemm(Device&, const GemmShape& shape) {
  FUSIONLLM_RETURN_IF_ERROR(CheckTypes(shape));
  return std::make_unique<PlainGemm>(shape);
}

}  // namespace fusionllm::kernels::cuda
