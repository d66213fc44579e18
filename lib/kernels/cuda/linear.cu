#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/column_sums.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/gemm.h"

namespace fusionllm::kernels::cuda {
namespace {

bool IsInputOutput(const PreparedOp& op) { return op.attributes.Text("layout", "io") == "io"; }

// y = x W (+ bias)
GemmShape LinearShape(const PreparedOp& op) {
  const int64_t in = op.in(0).dim(-1), out = op.out(0).dim(-1);
  const bool io = IsInputOutput(op);
  return {.transpose_b = !io,
          .m = op.in(0).rows(),
          .n = out,
          .k = in,
          .lda = in,
          .ldb = io ? out : in,
          .ldc = out,
          .bias = op.parameters.size() > 1};
}

// dx = dy W'
GemmShape GradInputShape(const PreparedOp& op) {
  const int64_t out = op.in(0).dim(-1), in = op.out(0).dim(-1);
  const bool io = IsInputOutput(op);
  return {.transpose_b = io, .m = op.in(0).rows(), .n = in, .k = out, .lda = out, .ldb = io ? out : in, .ldc = in};
}

// dW = x' dy, or dy' x where the weight lies the other way round.
GemmShape GradWeightShape(const PreparedOp& op) {
  const int64_t in = op.in(0).dim(-1), out = op.in(1).dim(-1);
  const bool io = IsInputOutput(op);
  return {.transpose_a = true,
          .m = io ? in : out,
          .n = io ? out : in,
          .k = op.in(0).rows(),
          .lda = io ? in : out,
          .ldb = io ? out : in,
          .ldc = io ? out : in};
}

GemmShape MatMulShape(const PreparedOp& op) {
  const bool transpose_a = op.attributes.Bool("transpose_a"), transpose_b = op.attributes.Bool("transpose_b");
  const int64_t m = op.out(0).dim(-2), n = op.out(0).dim(-1), k = op.in(0).dim(transpose_a ? -2 : -1);
  return {.transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .m = m,
          .n = n,
          .k = k,
          .lda = transpose_a ? m : k,
          .ldb = transpose_b ? k : n,
          .ldc = n,
          .batch = m * n == 0 ? 0 : op.out(0).elements() / (m * n),
          .stride_a = m * k,
          .stride_b = op.in(1).rank() == 2 ? 0 : k * n,
          .stride_c = m * n};
}

class ProductKernel : public DeviceKernel {
 public:
  ProductKernel(PreparedOp op, Device& device, std::unique_ptr<Gemm> gemm) : DeviceKernel(std::move(op), device), gemm_(std::move(gemm)) {}
  size_t workspace_bytes() const override { return gemm_->workspace_bytes(); }

 protected:
  const std::unique_ptr<Gemm> gemm_;
};

template <typename K, GemmShape (*ShapeOf)(const PreparedOp&)>
MadeKernel MakeProduct(PreparedOp op, Device& device) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> gemm, PrepareGemm(device, ShapeOf(op)));
  return std::make_unique<K>(std::move(op), device, std::move(gemm));
}

class Linear : public ProductKernel {
 public:
  using ProductKernel::ProductKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return gemm_->Run({.a = arguments.inputs[0].f32(),
                       .b = arguments.parameters[0].f32(),
                       .c = arguments.outputs[0].f32(),
                       .bias = op_.parameters.size() > 1 ? arguments.parameters[1].f32() : nullptr},
                      arguments.workspace.data());
  }
};

class LinearGradInput : public ProductKernel {
 public:
  using ProductKernel::ProductKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return gemm_->Run({.a = arguments.inputs[0].f32(), .b = arguments.parameters[0].f32(), .c = arguments.outputs[0].f32()},
                      arguments.workspace.data());
  }
};

class LinearGradWeight : public ProductKernel {
 public:
  using ProductKernel::ProductKernel;
  // Its two parts follow each other and may use the same workspace.
  size_t workspace_bytes() const override { return std::max(gemm_->workspace_bytes(), ColumnSumsWorkspaceBytes(rows(), out())); }

  absl::Status Run(const KernelArguments& arguments) override {
    const float* x = arguments.inputs[0].f32();
    const float* dy = arguments.inputs[1].f32();
    const bool io = IsInputOutput(op_);
    if (float* dw = OutputOrNull(arguments, 0); dw != nullptr) {
      FUSIONLLM_RETURN_IF_ERROR(gemm_->Run({.a = io ? x : dy, .b = io ? dy : x, .c = dw, .beta = Accumulates(arguments, 0) ? 1.0f : 0.0f},
                                           arguments.workspace.data()));
    }
    if (float* dbias = op_.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr; dbias != nullptr) {
      return Launched(SumColumns(stream(), dy, rows(), out(), Accumulates(arguments, 1), arguments.workspace.data(), dbias));
    }
    return absl::OkStatus();
  }

 private:
  int64_t rows() const { return op_.in(0).rows(); }
  int64_t out() const { return op_.in(1).dim(-1); }
};

class MatMul : public ProductKernel {
 public:
  using ProductKernel::ProductKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return gemm_->Run({.a = arguments.inputs[0].f32(), .b = arguments.inputs[1].f32(), .c = arguments.outputs[0].f32()},
                      arguments.workspace.data());
  }
};

}  // namespace

std::span<const Entry> LinearKernels() {
  static constexpr Entry kEntries[] = {{"linear", MakeProduct<Linear, LinearShape>},
                                       {"linear_grad_input", MakeProduct<LinearGradInput, GradInputShape>},
                                       {"linear_grad_weight", MakeProduct<LinearGradWeight, GradWeightShape>},
                                       {"matmul", MakeProduct<MatMul, MatMulShape>}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
