#include <algorithm>

#include "absl/functional/function_ref.h"
#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/cpu/vector/rows.h"
#include "lib/kernels/cpu/vector/spans.h"

namespace fusionllm::kernels::cpu {
namespace {

class RowKernel : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;

 protected:
  void ForEachRow(absl::FunctionRef<void(int64_t row)> body) const {
    const int64_t rows = op_.in(0).rows();
    const int64_t step = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width()));
    pool_->Run(ChunkCount(rows, step), [&](int64_t chunk, int) {
      for (int64_t row = chunk * step; row < std::min(rows, (chunk + 1) * step); ++row) body(row);
    });
  }
  int64_t width() const { return op_.in(0).dim(-1); }
};

class Softmax : public RowKernel {
 public:
  using RowKernel::RowKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    ForEachRow([&](int64_t row) {
      const float* x = arguments.inputs[0].f32() + row * width();
      float* y = arguments.outputs[0].f32() + row * width();
      const float sum = RowExp(x, RowMax(x, width()), y, width());
      ScaleShift(y, 1 / sum, 0, y, width());
    });
    return absl::OkStatus();
  }
};

class SoftmaxGrad : public RowKernel {
 public:
  using RowKernel::RowKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    ForEachRow([&](int64_t row) {
      const float* y = arguments.inputs[0].f32() + row * width();
      const float* dy = arguments.inputs[1].f32() + row * width();
      SoftmaxRowGrad(y, dy, RowDot(y, dy, width()), 1, arguments.outputs[0].f32() + row * width(), width());
    });
    return absl::OkStatus();
  }
};

}  // namespace

std::span<const Entry> SoftmaxKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kSoftmax, Make<Softmax>},
                                       {OpKind::kSoftmaxGrad, Make<SoftmaxGrad>},
                                       {OpKind::kLogSoftmax, MakeReference},
                                       {OpKind::kLogSoftmaxGrad, MakeReference}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
