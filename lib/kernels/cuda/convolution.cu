// Convolutions around what computes them (convolution_plan.h): weights in its order and precision, factors in its types, biases, and
// gradients that are added to what is there.
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/convolution_shape.h"
#include "lib/kernels/cuda/bf16.h"
#include "lib/kernels/cuda/column_sums.h"
#include "lib/kernels/cuda/convolution_plan.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"
#include "lib/kernels/upcast_kernel.h"

namespace fusionllm::kernels::cuda {
namespace {

// Weights lie as [out, in, places] in a graph, where places are those of the window and in those of a group, and as [out, places, in] in
// plans.
struct WeightOrder {
  int64_t in, places, count;
  static WeightOrder Of(const ConvolutionShape& s) { return {s.in_channels / s.groups, s.kernel[0] * s.kernel[1], s.weights()}; }
  // Of element i of a plan's weights, in the graph's.
  __device__ int64_t InGraph(int64_t i) const { return (i / (in * places) * in + i % in) * places + i / in % places; }
  __device__ int64_t InPlan(int64_t i) const { return (i / (in * places) * places + i % places) * in + i / places % in; }
};

// Each weight as a `Through` on its way.
template <typename Through, typename T>
__global__ void ReorderWeights(const float* weight, T* to, WeightOrder order) {
  for (int64_t i = FirstElement(); i < order.count; i += ElementStride()) to[i] = static_cast<float>(Through(weight[order.InGraph(i)]));
}

template <typename T>
__global__ void AddWeightGradient(const T* of_plan, float* dweight, WeightOrder order, bool accumulate) {
  for (int64_t i = FirstElement(); i < order.count; i += ElementStride()) {
    dweight[i] = static_cast<float>(of_plan[order.InPlan(i)]) + (accumulate ? dweight[i] : 0.0f);
  }
}

// `y` may be `sums`. Where factors are bf16 the bias is rounded as they are (upcast_kernel.h).
template <typename T>
__global__ void AddBias(const float* sums, const float* bias, T* y, int64_t count, int64_t channels, bool rounded) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) {
    const float b = bias[i % channels];
    y[i] = sums[i] + (rounded ? static_cast<float>(Bf16(b)) : b);
  }
}

// What an op of these types computes with, unless MakeGradWeight takes bf16. A bf16 result that is not final, because a bias is added or a
// gradient is summed up, stays f32.
ConvolutionPrecision PrecisionOf(const PreparedOp& op) {
  if (!NeedsUpcast(op)) return ConvolutionPrecision::kFloat;
  const bool final_bf16 = op.outputs[0].dtype == tensor::DType::kBF16 && op.parameters.size() < 2;
  return final_bf16 ? ConvolutionPrecision::kBf16 : ConvolutionPrecision::kBf16InFloat;
}

class ConvolutionKernel : public DeviceKernel {
 public:
  ConvolutionKernel(PreparedOp op, Device& device, const ConvolutionSpec& spec, std::unique_ptr<ConvolutionPlan> plan)
      : DeviceKernel(std::move(op), device), spec_(spec), plan_(std::move(plan)) {
    Take(plan_->workspace_bytes());
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

 protected:
  // An input of the op as a factor of the plan: itself, or a copy in the workspace.
  struct Factor {
    int input = 0;
    bool copied = false;
    size_t offset = 0;
  };

  Factor FactorOf(int input) {
    const tensor::TensorType& type = op_.inputs[input];
    // Even floats are copied where the op has bf16 tensors: they are rounded.
    if (spec_.precision == ConvolutionPrecision::kFloat || (type.dtype == spec_.dtype() && type.dtype == tensor::DType::kBF16))
      return {input};
    return {input, true, TakeElements(type.elements())};
  }

  // The data of `factor`, once the stream is there.
  absl::StatusOr<const void*> Get(const Factor& factor, const KernelArguments& arguments) const {
    const tensor::ConstTensorView& given = arguments.inputs[factor.input];
    if (!factor.copied) return given.data;
    void* const copy = At(arguments, factor.offset);
    const int64_t count = op_.inputs[factor.input].elements();
    if (op_.inputs[factor.input].dtype == tensor::DType::kBF16) {
      FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(UpcastBf16(stream(), given.as<uint16_t>(), static_cast<float*>(copy), count)));
    } else if (spec_.dtype() == tensor::DType::kBF16) {
      FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(RoundToBf16(stream(), given.f32(), static_cast<uint16_t*>(copy), count)));
    } else {
      FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(RoundFloatsToBf16(stream(), given.f32(), static_cast<float*>(copy), count)));
    }
    return copy;
  }

  // The weights as the plan has them, at `offset` of the workspace.
  absl::StatusOr<const void*> CopyWeights(size_t offset, const KernelArguments& arguments) const {
    switch (spec_.precision) {
      case ConvolutionPrecision::kFloat:
        return CopyWeightsAs<float, float>(offset, arguments);
      case ConvolutionPrecision::kBf16:
        return CopyWeightsAs<Bf16, Bf16>(offset, arguments);
      case ConvolutionPrecision::kBf16InFloat:
        return CopyWeightsAs<Bf16, float>(offset, arguments);
    }
    return absl::InternalError("no such precision");
  }

  absl::Status Convolve(const void* first, const void* second, void* result, const KernelArguments& arguments) const {
    return plan_->Run(first, second, result, arguments.workspace.data());
  }

  // Behind what is taken already.
  size_t Take(size_t bytes) {
    const size_t begin = workspace_bytes_;
    workspace_bytes_ += (bytes + tensor::kAlignment - 1) / tensor::kAlignment * tensor::kAlignment;
    return begin;
  }
  // Of the plan's type.
  size_t TakeElements(int64_t count) { return Take(tensor::SizeOf(spec_.dtype()) * static_cast<size_t>(count)); }
  static void* At(const KernelArguments& arguments, size_t offset) { return arguments.workspace.data() + offset; }
  const ConvolutionShape& shape() const { return spec_.shape; }

  const ConvolutionSpec spec_;

 private:
  template <typename Through, typename T>
  absl::StatusOr<const void*> CopyWeightsAs(size_t offset, const KernelArguments& arguments) const {
    auto* const copy = static_cast<T*>(At(arguments, offset));
    FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(Launch(stream(), BlocksFor(shape().weights()), kThreads, 0, ReorderWeights<Through, T>,
                                                  arguments.parameters[0].f32(), copy, WeightOrder::Of(shape()))));
    return copy;
  }

  const std::unique_ptr<ConvolutionPlan> plan_;
  size_t workspace_bytes_ = 0;
};

class Convolution : public ConvolutionKernel {
 public:
  static constexpr ConvolutionPass kPass = ConvolutionPass::kForward;
  static ConvolutionShape ShapeOf(const PreparedOp& op) { return ConvolutionShapeOf(op, op.in(0), op.out(0)); }

  Convolution(PreparedOp op, Device& device, const ConvolutionSpec& spec, std::unique_ptr<ConvolutionPlan> plan)
      : ConvolutionKernel(std::move(op), device, spec, std::move(plan)),
        x_(FactorOf(0)),
        weights_(TakeElements(shape().weights())),
        sums_apart_(spec.dtype() != op_.outputs[0].dtype),
        sums_(sums_apart_ ? TakeElements(shape().outputs()) : 0) {}

  absl::Status Run(const KernelArguments& arguments) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const void* const x, Get(x_, arguments));
    FUSIONLLM_ASSIGN_OR_RETURN(const void* const weights, CopyWeights(weights_, arguments));
    void* const sums = sums_apart_ ? At(arguments, sums_) : arguments.outputs[0].data;
    FUSIONLLM_RETURN_IF_ERROR(Convolve(x, weights, sums, arguments));
    if (op_.parameters.size() < 2) return absl::OkStatus();
    const auto* const floats = static_cast<const float*>(sums);
    return LaunchStatus(sums_apart_ ? AddBiases(floats, arguments.outputs[0].as<Bf16>(), arguments)
                                    : AddBiases(floats, arguments.outputs[0].f32(), arguments));
  }

 private:
  template <typename T>
  cudaError_t AddBiases(const float* sums, T* y, const KernelArguments& arguments) const {
    return Launch(stream(), BlocksFor(shape().outputs()), kThreads, 0, AddBias<T>, sums, arguments.parameters[1].f32(), y,
                  shape().outputs(), shape().out_channels, PrecisionOf(op_) != ConvolutionPrecision::kFloat);
  }

  const Factor x_;
  const size_t weights_;
  const bool sums_apart_;  // f32, and y bf16
  const size_t sums_;
};

class ConvolutionGradInput : public ConvolutionKernel {
 public:
  static constexpr ConvolutionPass kPass = ConvolutionPass::kGradInput;
  static ConvolutionShape ShapeOf(const PreparedOp& op) { return ConvolutionShapeOf(op, op.out(0), op.in(0)); }

  ConvolutionGradInput(PreparedOp op, Device& device, const ConvolutionSpec& spec, std::unique_ptr<ConvolutionPlan> plan)
      : ConvolutionKernel(std::move(op), device, spec, std::move(plan)), dy_(FactorOf(0)), weights_(TakeElements(shape().weights())) {}

  absl::Status Run(const KernelArguments& arguments) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const void* const dy, Get(dy_, arguments));
    FUSIONLLM_ASSIGN_OR_RETURN(const void* const weights, CopyWeights(weights_, arguments));
    return Convolve(dy, weights, arguments.outputs[0].data, arguments);
  }

 private:
  const Factor dy_;
  const size_t weights_;
};

class ConvolutionGradWeight : public ConvolutionKernel {
 public:
  static constexpr ConvolutionPass kPass = ConvolutionPass::kGradWeight;
  static ConvolutionShape ShapeOf(const PreparedOp& op) { return ConvolutionShapeOf(op, op.in(0), op.in(1)); }

  ConvolutionGradWeight(PreparedOp op, Device& device, const ConvolutionSpec& spec, std::unique_ptr<ConvolutionPlan> plan)
      : ConvolutionKernel(std::move(op), device, spec, std::move(plan)),
        x_(FactorOf(0)),
        dy_(FactorOf(1)),
        gradient_(TakeElements(shape().weights())),
        column_sums_(Take(op_.outputs.size() > 1 ? ColumnSumsWorkspaceBytes(op_.in(1).rows(), shape().out_channels) : 0)) {}

  absl::Status Run(const KernelArguments& arguments) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const void* const dy, Get(dy_, arguments));
    if (float* dweight = OutputOrNull(arguments, 0); dweight != nullptr) {
      FUSIONLLM_ASSIGN_OR_RETURN(const void* const x, Get(x_, arguments));
      void* const gradient = At(arguments, gradient_);
      FUSIONLLM_RETURN_IF_ERROR(Convolve(x, dy, gradient, arguments));
      FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(in_bf16() ? Add(static_cast<const Bf16*>(gradient), dweight, arguments)
                                                       : Add(static_cast<const float*>(gradient), dweight, arguments)));
    }
    float* dbias = op_.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr;
    if (dbias == nullptr) return absl::OkStatus();
    return LaunchStatus(in_bf16() ? SumUp(static_cast<const Bf16*>(dy), dbias, arguments)
                                  : SumUp(static_cast<const float*>(dy), dbias, arguments));
  }

 private:
  bool in_bf16() const { return spec_.dtype() == tensor::DType::kBF16; }

  template <typename T>
  cudaError_t Add(const T* gradient, float* dweight, const KernelArguments& arguments) const {
    return Launch(stream(), BlocksFor(shape().weights()), kThreads, 0, AddWeightGradient<T>, gradient, dweight, WeightOrder::Of(shape()),
                  Accumulates(arguments, 0));
  }
  template <typename T>
  cudaError_t SumUp(const T* dy, float* dbias, const KernelArguments& arguments) const {
    return SumColumns(stream(), dy, op_.in(1).rows(), shape().out_channels, Accumulates(arguments, 1), At(arguments, column_sums_), dbias);
  }

  const Factor x_, dy_;
  const size_t gradient_;
  const size_t column_sums_;
};

template <typename K>
KernelOrError MakeConvolution(PreparedOp op, Device& device) {
  const ConvolutionSpec spec{.pass = K::kPass, .precision = PrecisionOf(op), .shape = K::ShapeOf(op)};
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<ConvolutionPlan> plan, PrepareConvolution(device, spec));
  return std::make_unique<K>(std::move(op), device, spec, std::move(plan));
}

// Where bits may depend on algorithms each gradient of bf16 factors is rounded to bf16 before it is added, if the library has a way: that
// reads half the bytes, and its units multiply twice as fast by their data sheets (adr/0018).
KernelOrError MakeGradWeight(PreparedOp op, Device& device) {
  const ConvolutionSpec rounded{
      .pass = ConvolutionPass::kGradWeight, .precision = ConvolutionPrecision::kBf16, .shape = ConvolutionGradWeight::ShapeOf(op)};
  if (device.algorithm_choice() == AlgorithmChoice::kMeasured && NeedsUpcast(op)) {
    ConvolutionPlanOrError plan = PrepareCudnnConvolution(device, rounded);
    if (plan.ok()) return std::make_unique<ConvolutionGradWeight>(std::move(op), device, rounded, *std::move(plan));
    if (!absl::IsUnimplemented(plan.status()) && !absl::IsFailedPrecondition(plan.status())) return plan.status();
  }
  return MakeConvolution<ConvolutionGradWeight>(std::move(op), device);
}

template <typename K>
constexpr Entry EntryOf(opdag::OpKind kind, absl::string_view inputs, absl::string_view outputs) {
  return {kind, MakeConvolution<K>, {MakeConvolution<K>, inputs, outputs}};
}

}  // namespace

std::span<const Entry> ConvolutionKernels() {
  static constexpr Entry kEntries[] = {EntryOf<Convolution>(OpKind::kConv2d, "e", "e"),
                                       EntryOf<ConvolutionGradInput>(OpKind::kConv2dGradInput, "e", "e"),
                                       {OpKind::kConv2dGradWeight, MakeGradWeight, {MakeGradWeight, "ee", "ff"}}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
