#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;  // Hendrycks & Gimpel, arXiv 1606.08415, section 2
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kInverseSqrt2Pi = 0.39894228040143267794;

template <typename Function>
absl::Status Map(const PreparedOp& op, const KernelArguments& arguments, Function function) {
  const float* x = arguments.inputs[0].f32();
  float* y = arguments.outputs[0].f32();
  const int64_t count = op.out(0).elements();
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(function(static_cast<double>(x[i])));
  return absl::OkStatus();
}

// For two inputs of the output's shape.
template <typename Function>
absl::Status Zip(const PreparedOp& op, const KernelArguments& arguments, Function function) {
  const float* a = arguments.inputs[0].f32();
  const float* b = arguments.inputs[1].f32();
  float* y = arguments.outputs[0].f32();
  const int64_t count = op.out(0).elements();
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(function(static_cast<double>(a[i]), static_cast<double>(b[i])));
  return absl::OkStatus();
}

template <typename Function>
absl::Status Broadcast(const PreparedOp& op, const KernelArguments& arguments, Function function) {
  const tensor::Shape& shape = op.out(0);
  const std::vector<int64_t> a_strides = BroadcastStrides(op.in(0), shape);
  const std::vector<int64_t> b_strides = BroadcastStrides(op.in(1), shape);
  const int64_t count = shape.elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, a = 0, b = 0;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      a += rest % shape.dim(axis) * a_strides[axis];
      b += rest % shape.dim(axis) * b_strides[axis];
      rest /= shape.dim(axis);
    }
    arguments.outputs[0].f32()[i] = function(arguments.inputs[0].f32()[a], arguments.inputs[1].f32()[b]);
  }
  return absl::OkStatus();
}

absl::Status Add(const PreparedOp& op, const KernelArguments& arguments) {
  return Broadcast(op, arguments, [](float a, float b) { return a + b; });
}
absl::Status Sub(const PreparedOp& op, const KernelArguments& arguments) {
  return Broadcast(op, arguments, [](float a, float b) { return a - b; });
}
absl::Status Mul(const PreparedOp& op, const KernelArguments& arguments) {
  return Broadcast(op, arguments, [](float a, float b) { return a * b; });
}
absl::Status Div(const PreparedOp& op, const KernelArguments& arguments) {
  return Broadcast(op, arguments, [](float a, float b) { return a / b; });
}

absl::Status Relu(const PreparedOp& op, const KernelArguments& arguments) {
  return Map(op, arguments, [](double x) { return x > 0 || std::isnan(x) ? x : 0; });
}
absl::Status ReluGrad(const PreparedOp& op, const KernelArguments& arguments) {
  return Zip(op, arguments, [](double y, double dy) { return y > 0 ? dy : 0; });
}
absl::Status Tanh(const PreparedOp& op, const KernelArguments& arguments) {
  return Map(op, arguments, [](double x) { return std::tanh(x); });
}
absl::Status TanhGrad(const PreparedOp& op, const KernelArguments& arguments) {
  return Zip(op, arguments, [](double y, double dy) { return dy * (1 - y * y); });
}
absl::Status Sigmoid(const PreparedOp& op, const KernelArguments& arguments) {
  return Map(op, arguments, [](double x) { return 1 / (1 + std::exp(-x)); });
}
absl::Status SigmoidGrad(const PreparedOp& op, const KernelArguments& arguments) {
  return Zip(op, arguments, [](double y, double dy) { return dy * y * (1 - y); });
}
absl::Status Exp(const PreparedOp& op, const KernelArguments& arguments) {
  return Map(op, arguments, [](double x) { return std::exp(x); });
}
absl::Status Log(const PreparedOp& op, const KernelArguments& arguments) {
  return Map(op, arguments, [](double x) { return std::log(x); });
}
absl::Status Sqrt(const PreparedOp& op, const KernelArguments& arguments) {
  return Map(op, arguments, [](double x) { return std::sqrt(x); });
}
absl::Status Neg(const PreparedOp& op, const KernelArguments& arguments) {
  return Map(op, arguments, [](double x) { return -x; });
}
absl::Status Square(const PreparedOp& op, const KernelArguments& arguments) {
  return Map(op, arguments, [](double x) { return x * x; });
}
// In float: it commonly scales integers and gradients exactly.
absl::Status Scale(const PreparedOp& op, const KernelArguments& arguments) {
  const auto factor = static_cast<float>(op.attributes.Number("factor", 1));
  const auto shift = static_cast<float>(op.attributes.Number("shift", 0));
  return Map(op, arguments, [=](double x) { return factor * static_cast<float>(x) + shift; });
}

bool UsesTanh(const PreparedOp& op) { return op.attributes.Text("approximate", "tanh") == "tanh"; }

absl::Status Gelu(const PreparedOp& op, const KernelArguments& arguments) {
  if (!UsesTanh(op)) {
    return Map(op, arguments, [](double x) { return 0.5 * x * (1 + std::erf(x * kSqrtHalf)); });
  }
  return Map(op, arguments, [](double x) { return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x))); });
}

absl::Status GeluGrad(const PreparedOp& op, const KernelArguments& arguments) {
  if (!UsesTanh(op)) {
    return Zip(op, arguments, [](double x, double dy) {
      return dy * (0.5 * (1 + std::erf(x * kSqrtHalf)) + x * kInverseSqrt2Pi * std::exp(-0.5 * x * x));
    });
  }
  return Zip(op, arguments, [](double x, double dy) {
    const double t = std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x));
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kCubic * x * x));
  });
}

// The mask of element i of a sample depends on (seed, name, step, sample's index in the global batch, i): the same on any number of stages.
absl::Status Drop(const PreparedOp& op, const KernelArguments& arguments) {
  const double rate = op.attributes.Number("rate", 0);
  const float* x = arguments.inputs[0].f32();
  float* y = arguments.outputs[0].f32();
  const int64_t count = op.out(0).elements();
  if (arguments.mode == Mode::kEvaluate || rate <= 0) {
    if (x != y) std::copy_n(x, count, y);
    return absl::OkStatus();
  }
  const int64_t samples = op.out(0).rank() > 0 ? op.out(0).dim(0) : 1;
  const int64_t of_sample = samples > 0 ? count / samples : 0;
  const base::CounterRng rng(arguments.random.seed,
                             absl::StrCat("dropout/", op.attributes.Text("name", op.name), "/step ", arguments.random.step));
  const auto kept_scale = static_cast<float>(1 / (1 - rate));
  const auto threshold = static_cast<float>(rate);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = arguments.random.first_sample + i / of_sample;
    y[i] = rng.Uniform(static_cast<uint64_t>(sample * of_sample + i % of_sample)) < threshold ? 0.f : x[i] * kept_scale;
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> ElementwiseKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kAdd, Add, true},         {OpKind::kSub, Sub, true},
      {OpKind::kMul, Mul, true},         {OpKind::kDiv, Div, true},
      {OpKind::kRelu, Relu, true},       {OpKind::kReluGrad, ReluGrad, true},
      {OpKind::kTanh, Tanh, true},       {OpKind::kTanhGrad, TanhGrad, true},
      {OpKind::kSigmoid, Sigmoid, true}, {OpKind::kSigmoidGrad, SigmoidGrad, true},
      {OpKind::kGelu, Gelu, true},       {OpKind::kGeluGrad, GeluGrad, true},
      {OpKind::kExp, Exp, true},         {OpKind::kLog, Log, true},
      {OpKind::kSqrt, Sqrt, true},       {OpKind::kNeg, Neg, true},
      {OpKind::kSquare, Square, true},   {OpKind::kScale, Scale, true},
      {OpKind::kDropout, Drop, true},    {OpKind::kDropoutGrad, Drop, true},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
