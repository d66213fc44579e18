// In place of cuBLASLt: plain loops that sum in double.
#include "lib/kernels/cuda/gemm.h"

namespace fusionllm::kernels::cuda {
namespace {

class PlainGemm final : public Gemm {
 public:
  explicit PlainGemm(const GemmShape& shape) : s_(shape) {}
  size_t workspace_bytes() const override { return 0; }
  absl::Status Run(const GemmData& data, void*) const override {
    emulated::RunOnDevice([&] {
      for (int64_t i = 0; i < s_.batch; ++i) {
        Multiply(data.a + i * s_.stride_a, data.b + i * s_.stride_b, data, data.c + i * s_.stride_c);
      }
    });
    return absl::OkStatus();
  }

 private:
  void Multiply(const float* a, const float* b, const GemmData& data, float* c) const {
    for (int64_t row = 0; row < s_.m; ++row) {
      for (int64_t column = 0; column < s_.n; ++column) {
        double sum = 0;
        for (int64_t l = 0; l < s_.k; ++l) {
          sum += static_cast<double>(s_.transpose_a ? a[l * s_.lda + row] : a[row * s_.lda + l]) *
                 (s_.transpose_b ? b[column * s_.ldb + l] : b[l * s_.ldb + column]);
        }
        float& out = c[row * s_.ldc + column];
        out = static_cast<float>(sum) + (s_.bias ? data.bias[column] : 0.0f) + (data.beta != 0 ? out : 0.0f);
      }
    }
  }

  const GemmShape s_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gemm>> PrepareGemm(Device&, const GemmShape& shape) { return std::make_unique<PlainGemm>(shape); }

}  // namespace fusionllm::kernels::cuda
