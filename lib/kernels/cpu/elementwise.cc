#include <algorithm>

#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/cpu/vector/spans.h"

namespace fusionllm::kernels::cpu {
namespace {

constexpr int64_t kStep = 16384;  // elements of a chunk

class Elementwise : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;
  bool CanRunInPlace(int output, int input) const override { return output == 0 && op_.inputs[input] == op_.outputs[0]; }

 protected:
  void ForEachSpan(absl::FunctionRef<void(int64_t first, int64_t count)> body) const {
    const int64_t count = op_.out(0).elements();
    pool_->Run(ChunkCount(count, kStep), [&](int64_t chunk, int) { body(chunk * kStep, std::min(kStep, count - chunk * kStep)); });
  }
};

template <UnaryFunction kFunction>
class Unary : public Elementwise {
 public:
  using Elementwise::Elementwise;
  absl::Status Run(const KernelArguments& arguments) override {
    ForEachSpan([&](int64_t first, int64_t count) {
      Apply(kFunction, arguments.inputs[0].f32() + first, arguments.outputs[0].f32() + first, count);
    });
    return absl::OkStatus();
  }
};

template <BinaryFunction kFunction>
class Binary : public Elementwise {
 public:
  using Elementwise::Elementwise;
  absl::Status Run(const KernelArguments& arguments) override {
    ForEachSpan([&](int64_t first, int64_t count) {
      Apply(kFunction, arguments.inputs[0].f32() + first, arguments.inputs[1].f32() + first, arguments.outputs[0].f32() + first, count);
    });
    return absl::OkStatus();
  }
};

class Scale : public Elementwise {
 public:
  using Elementwise::Elementwise;
  absl::Status Run(const KernelArguments& arguments) override {
    const auto factor = static_cast<float>(op_.attributes.Number("factor", 1));
    const auto shift = static_cast<float>(op_.attributes.Number("shift", 0));
    ForEachSpan([&](int64_t first, int64_t count) {
      ScaleShift(arguments.inputs[0].f32() + first, factor, shift, arguments.outputs[0].f32() + first, count);
    });
    return absl::OkStatus();
  }
};

// Broadcasting is rare in the built-in models (biases are part of linear), so only equal shapes have a fast path.
template <BinaryFunction kFunction>
KernelOrError MakeArithmetic(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  if (op.in(0) == op.in(1)) return Make<Binary<kFunction>>(std::move(op), std::move(pool));
  return MakeReference(std::move(op), std::move(pool));
}

// The exact form needs erf, which only the reference has.
template <typename Fast>
KernelOrError MakeGelu(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  if (op.attributes.Text("approximate", "tanh") == "tanh") return Make<Fast>(std::move(op), std::move(pool));
  return MakeReference(std::move(op), std::move(pool));
}

}  // namespace

std::span<const Entry> ElementwiseKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kAdd, MakeArithmetic<BinaryFunction::kAdd>},
      {OpKind::kSub, MakeArithmetic<BinaryFunction::kSub>},
      {OpKind::kMul, MakeArithmetic<BinaryFunction::kMul>},
      {OpKind::kDiv, MakeArithmetic<BinaryFunction::kDiv>},
      {OpKind::kRelu, Make<Unary<UnaryFunction::kRelu>>},
      {OpKind::kReluGrad, Make<Binary<BinaryFunction::kReluGrad>>},
      {OpKind::kTanh, Make<Unary<UnaryFunction::kTanh>>},
      {OpKind::kTanhGrad, Make<Binary<BinaryFunction::kTanhGrad>>},
      {OpKind::kSigmoid, Make<Unary<UnaryFunction::kSigmoid>>},
      {OpKind::kSigmoidGrad, Make<Binary<BinaryFunction::kSigmoidGrad>>},
      {OpKind::kGelu, MakeGelu<Unary<UnaryFunction::kGeluTanh>>},
      {OpKind::kGeluGrad, MakeGelu<Binary<BinaryFunction::kGeluTanhGrad>>},
      {OpKind::kNeg, Make<Unary<UnaryFunction::kNeg>>},
      {OpKind::kSquare, Make<Unary<UnaryFunction::kSquare>>},
      {OpKind::kScale, Make<Scale>},
      {OpKind::kExp, MakeReference},
      {OpKind::kLog, MakeReference},
      {OpKind::kSqrt, MakeReference},
      {OpKind::kDropout, MakeReference},
      {OpKind::kDropoutGrad, MakeReference},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
