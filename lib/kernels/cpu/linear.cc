#include <algorithm>

#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/cpu/gemm.h"
#include "lib/kernels/cpu/row_sums.h"
#include "lib/kernels/cpu/vector/spans.h"

namespace fusionllm::kernels::cpu {
namespace {

float* Floats(const KernelArguments& arguments) { return reinterpret_cast<float*>(arguments.workspace.data()); }

bool IsInputOutput(const PreparedOp& op) { return op.attributes.Text("layout", "io") == "io"; }

class Linear : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;

  size_t workspace_bytes() const override { return sizeof(float) * TransposeWorkspaceFloats(Product()); }

  absl::Status Run(const KernelArguments& arguments) override {
    const float* bias = op_.parameters.size() > 1 ? arguments.parameters[1].f32() : nullptr;
    Gemm gemm = Product();
    gemm.a = arguments.inputs[0].f32();
    gemm.b = arguments.parameters[0].f32();
    gemm.c = arguments.outputs[0].f32();
    Multiply(*pool_, TransposeB(*pool_, gemm, Floats(arguments)), [&](int64_t first, int64_t rows) {
      for (int64_t row = first; bias != nullptr && row < first + rows; ++row) AddTo(bias, gemm.c + row * gemm.n, gemm.n);
    });
    return absl::OkStatus();
  }

 private:
  // y = x W, without the data.
  Gemm Product() const {
    const int64_t in = op_.in(0).dim(-1);
    const int64_t out = op_.out(0).dim(-1);
    const bool io = IsInputOutput(op_);
    return {.transpose_b = !io, .m = op_.in(0).rows(), .n = out, .k = in, .lda = in, .ldb = io ? out : in, .ldc = out};
  }
};

class LinearGradInput : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;

  size_t workspace_bytes() const override { return sizeof(float) * TransposeWorkspaceFloats(Product()); }

  absl::Status Run(const KernelArguments& arguments) override {
    Gemm gemm = Product();
    gemm.a = arguments.inputs[0].f32();
    gemm.b = arguments.parameters[0].f32();
    gemm.c = arguments.outputs[0].f32();
    Multiply(*pool_, TransposeB(*pool_, gemm, Floats(arguments)));
    return absl::OkStatus();
  }

 private:
  // dx = dy W', without the data.
  Gemm Product() const {
    const int64_t out = op_.in(0).dim(-1);
    const int64_t in = op_.out(0).dim(-1);
    const bool io = IsInputOutput(op_);
    return {.transpose_b = io, .m = op_.in(0).rows(), .n = in, .k = out, .lda = out, .ldb = io ? out : in, .ldc = in};
  }
};

class LinearGradWeight : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;

  size_t workspace_bytes() const override { return RowSumsWorkspaceBytes(rows(), out()); }

  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t in = op_.in(0).dim(-1);
    const float* x = arguments.inputs[0].f32();
    const float* dy = arguments.inputs[1].f32();
    if (float* dw = OutputOrNull(arguments, 0); dw != nullptr) {
      const bool io = IsInputOutput(op_);
      Multiply(*pool_, {.transpose_a = true,
                        .m = io ? in : out(),
                        .n = io ? out() : in,
                        .k = rows(),
                        .a = io ? x : dy,
                        .lda = io ? in : out(),
                        .b = io ? dy : x,
                        .ldb = io ? out() : in,
                        .beta = Accumulates(arguments, 0) ? 1.f : 0.f,
                        .c = dw,
                        .ldc = io ? out() : in});
    }
    if (float* dbias = op_.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr; dbias != nullptr) {
      SumRows(*pool_, dy, rows(), out(), Accumulates(arguments, 1), Floats(arguments), dbias);
    }
    return absl::OkStatus();
  }

 private:
  int64_t rows() const { return op_.in(0).rows(); }
  int64_t out() const { return op_.in(1).dim(-1); }
};

class MatMul : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const bool transpose_a = op_.attributes.Bool("transpose_a");
    const bool transpose_b = op_.attributes.Bool("transpose_b");
    const bool shared = op_.in(1).rank() == 2;
    const int64_t m = op_.out(0).dim(-2);
    const int64_t n = op_.out(0).dim(-1);
    const int64_t k = op_.in(0).dim(transpose_a ? -2 : -1);
    pool_->Run(m * n == 0 ? 0 : op_.out(0).elements() / (m * n), [&](int64_t i, int) {
      Multiply({.transpose_a = transpose_a,
                .transpose_b = transpose_b,
                .m = m,
                .n = n,
                .k = k,
                .a = arguments.inputs[0].f32() + i * m * k,
                .lda = transpose_a ? m : k,
                .b = arguments.inputs[1].f32() + (shared ? 0 : i * k * n),
                .ldb = transpose_b ? k : n,
                .c = arguments.outputs[0].f32() + i * m * n,
                .ldc = n});
    });
    return absl::OkStatus();
  }
};

}  // namespace

std::span<const Entry> LinearKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kLinear, Make<Linear>},
                                       {OpKind::kLinearGradInput, Make<LinearGradInput>},
                                       {OpKind::kLinearGradWeight, Make<LinearGradWeight>},
                                       {OpKind::kMatmul, Make<MatMul>}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
