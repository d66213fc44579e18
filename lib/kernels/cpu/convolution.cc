// Convolutions of NHWC images. Kernels of one pixel are matrix products; the rest are oneDNN's (direct_convolution.h).
#include <algorithm>
#include <cstring>

#include "lib/kernels/convolution_shape.h"
#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/cpu/direct_convolution.h"
#include "lib/kernels/cpu/gemm.h"
#include "lib/kernels/cpu/row_sums.h"
#include "lib/kernels/cpu/vector/spans.h"

namespace fusionllm::kernels::cpu {
namespace {

bool IsPointwise(const ConvolutionShape& s) {
  return s.kernel[0] == 1 && s.kernel[1] == 1 && s.padding[0] == 0 && s.padding[1] == 0 && s.groups == 1;
}

// The pixels that a strided one-pixel kernel sees, and the matrix [pixels, channels] of them.
class Pixels {
 public:
  explicit Pixels(const ConvolutionShape& s) : s_(s) {}

  int64_t count() const { return s_.batch * s_.out_height * s_.out_width; }
  bool all() const { return s_.stride[0] == 1 && s_.stride[1] == 1; }
  // Floats of workspace for Gather or before Scatter: none when every pixel is seen.
  int64_t workspace() const { return all() ? 0 : count() * s_.in_channels; }

  void Gather(WorkerPool& pool, const float* x, float* seen) const {
    ForEachRow(pool, [&](int64_t pixel, int64_t in_pixel, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(seen + (pixel + i) * s_.in_channels, x + (in_pixel + i * s_.stride[1]) * s_.in_channels,
                    sizeof(float) * s_.in_channels);
      }
    });
  }

  void Scatter(WorkerPool& pool, const float* seen, float* dx) const {
    const int64_t plane = s_.in_height * s_.in_width * s_.in_channels;
    pool.Run(s_.batch, [&](int64_t b, int) { std::fill_n(dx + b * plane, plane, 0.f); });
    ForEachRow(pool, [&](int64_t pixel, int64_t in_pixel, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(dx + (in_pixel + i * s_.stride[1]) * s_.in_channels, seen + (pixel + i) * s_.in_channels,
                    sizeof(float) * s_.in_channels);
      }
    });
  }

 private:
  void ForEachRow(WorkerPool& pool, absl::FunctionRef<void(int64_t pixel, int64_t in_pixel, int64_t count)> body) const {
    pool.Run(s_.batch, [&](int64_t b, int) {
      for (int64_t h = 0; h < s_.out_height; ++h) {
        body((b * s_.out_height + h) * s_.out_width, (b * s_.in_height + h * s_.stride[0]) * s_.in_width, s_.out_width);
      }
    });
  }

  const ConvolutionShape s_;
};

float* Floats(const KernelArguments& arguments) { return reinterpret_cast<float*>(arguments.workspace.data()); }

class Pointwise : public PooledKernel {
 public:
  Pointwise(PreparedOp op, std::shared_ptr<WorkerPool> pool)
      : PooledKernel(std::move(op), std::move(pool)), s_(ConvolutionShapeOf(op_, op_.in(0), op_.out(0))), pixels_(s_) {}

  size_t workspace_bytes() const override { return sizeof(float) * (pixels_.workspace() + TransposeWorkspaceFloats(Product())); }

  absl::Status Run(const KernelArguments& arguments) override {
    const float* bias = op_.parameters.size() > 1 ? arguments.parameters[1].f32() : nullptr;
    Gemm gemm = Product();
    gemm.a = arguments.inputs[0].f32();
    gemm.b = arguments.parameters[0].f32();
    gemm.c = arguments.outputs[0].f32();
    if (!pixels_.all()) {
      pixels_.Gather(*pool_, gemm.a, Floats(arguments));
      gemm.a = Floats(arguments);
    }
    Multiply(*pool_, TransposeB(*pool_, gemm, Floats(arguments) + pixels_.workspace()), [&](int64_t first, int64_t rows) {
      for (int64_t row = first; bias != nullptr && row < first + rows; ++row) AddTo(bias, gemm.c + row * gemm.n, gemm.n);
    });
    return absl::OkStatus();
  }

 private:
  // y = x W' over the pixels seen, without the data.
  Gemm Product() const {
    return {.transpose_b = true,
            .m = pixels_.count(),
            .n = s_.out_channels,
            .k = s_.in_channels,
            .lda = s_.in_channels,
            .ldb = s_.in_channels,
            .ldc = s_.out_channels};
  }

  const ConvolutionShape s_;
  const Pixels pixels_;
};

class PointwiseGradInput : public PooledKernel {
 public:
  PointwiseGradInput(PreparedOp op, std::shared_ptr<WorkerPool> pool)
      : PooledKernel(std::move(op), std::move(pool)), s_(ConvolutionShapeOf(op_, op_.out(0), op_.in(0))), pixels_(s_) {}

  size_t workspace_bytes() const override { return sizeof(float) * pixels_.workspace(); }

  absl::Status Run(const KernelArguments& arguments) override {
    float* dx = arguments.outputs[0].f32();
    Multiply(*pool_, {.m = pixels_.count(),
                      .n = s_.in_channels,
                      .k = s_.out_channels,
                      .a = arguments.inputs[0].f32(),
                      .lda = s_.out_channels,
                      .b = arguments.parameters[0].f32(),
                      .ldb = s_.in_channels,
                      .c = pixels_.all() ? dx : Floats(arguments),
                      .ldc = s_.in_channels});
    if (!pixels_.all()) pixels_.Scatter(*pool_, Floats(arguments), dx);
    return absl::OkStatus();
  }

 private:
  const ConvolutionShape s_;
  const Pixels pixels_;
};

class PointwiseGradWeight : public PooledKernel {
 public:
  PointwiseGradWeight(PreparedOp op, std::shared_ptr<WorkerPool> pool)
      : PooledKernel(std::move(op), std::move(pool)), s_(ConvolutionShapeOf(op_, op_.in(0), op_.in(1))), pixels_(s_) {}

  size_t workspace_bytes() const override {
    return std::max(sizeof(float) * pixels_.workspace(), RowSumsWorkspaceBytes(pixels_.count(), s_.out_channels));
  }

  absl::Status Run(const KernelArguments& arguments) override {
    const float* x = arguments.inputs[0].f32();
    const float* dy = arguments.inputs[1].f32();
    if (float* dw = OutputOrNull(arguments, 0); dw != nullptr) {
      if (!pixels_.all()) {
        pixels_.Gather(*pool_, x, Floats(arguments));
        x = Floats(arguments);
      }
      Multiply(*pool_, {.transpose_a = true,
                        .m = s_.out_channels,
                        .n = s_.in_channels,
                        .k = pixels_.count(),
                        .a = dy,
                        .lda = s_.out_channels,
                        .b = x,
                        .ldb = s_.in_channels,
                        .beta = Accumulates(arguments, 0) ? 1.f : 0.f,
                        .c = dw,
                        .ldc = s_.in_channels});
    }
    if (float* dbias = op_.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr; dbias != nullptr) {
      SumRows(*pool_, dy, pixels_.count(), s_.out_channels, Accumulates(arguments, 1), Floats(arguments), dbias);
    }
    return absl::OkStatus();
  }

 private:
  const ConvolutionShape s_;
  const Pixels pixels_;
};

KernelOrError MakeForward(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  if (IsPointwise(ConvolutionShapeOf(op, op.in(0), op.out(0)))) return Make<Pointwise>(std::move(op), std::move(pool));
  return MakeDirectConvolution(std::move(op), std::move(pool));
}
KernelOrError MakeGradInput(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  if (IsPointwise(ConvolutionShapeOf(op, op.out(0), op.in(0)))) return Make<PointwiseGradInput>(std::move(op), std::move(pool));
  return MakeDirectConvolutionGradInput(std::move(op), std::move(pool));
}
KernelOrError MakeGradWeight(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  if (IsPointwise(ConvolutionShapeOf(op, op.in(0), op.in(1)))) return Make<PointwiseGradWeight>(std::move(op), std::move(pool));
  return MakeDirectConvolutionGradWeight(std::move(op), std::move(pool));
}

}  // namespace

std::span<const Entry> ConvolutionKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kConv2d, MakeForward}, {OpKind::kConv2dGradInput, MakeGradInput}, {OpKind::kConv2dGradWeight, MakeGradWeight}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
