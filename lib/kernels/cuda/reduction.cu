#include <utility>
#include <vector>

#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/indexing.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

// ---- Softmax over the last axis: a block for each row
// -------------------------------------------------------------------------------------

constexpr unsigned kMostBlocks = 65535;

unsigned BlocksForRows(int64_t rows) { return static_cast<unsigned>(std::clamp<int64_t>(rows, 1, kMostBlocks)); }

template <bool kLog>
__global__ void SoftmaxRows(const float* x, float* y, int64_t rows, int64_t width) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* in = x + row * width;
    float* out = y + row * width;
    float top = -INFINITY;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) top = fmaxf(top, in[i]);
    top = MaxOverBlock(top);
    float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += expf(in[i] - top);
    sum = SumOverBlock(sum);
    const float log_sum = logf(sum), factor = 1.0f / sum;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) out[i] = kLog ? in[i] - top - log_sum : expf(in[i] - top) * factor;
  }
}

template <bool kLog>
__global__ void SoftmaxGradRows(const float* y, const float* dy, float* dx, int64_t rows, int64_t width) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t first = row * width;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += kLog ? dy[first + i] : dy[first + i] * y[first + i];
    sum = SumOverBlock(sum);
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      dx[first + i] = kLog ? dy[first + i] - expf(y[first + i]) * sum : y[first + i] * (dy[first + i] - sum);
    }
  }
}

template <bool kLog>
class Softmax : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return Launched(Launch(stream(), BlocksForRows(op_.in(0).rows()), kThreads, 0, SoftmaxRows<kLog>, arguments.inputs[0].f32(),
                           arguments.outputs[0].f32(), op_.in(0).rows(), op_.in(0).dim(-1)));
  }
};

template <bool kLog>
class SoftmaxGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return Launched(Launch(stream(), BlocksForRows(op_.in(0).rows()), kThreads, 0, SoftmaxGradRows<kLog>, arguments.inputs[0].f32(),
                           arguments.inputs[1].f32(), arguments.outputs[0].f32(), op_.in(0).rows(), op_.in(0).dim(-1)));
  }
};

// ---- Reductions over any axes: a block for each result
// --------------------------------------------------------------------------------------

// The elements that belong to result r are base.IndexOf(r) + each.IndexOf(0), each.IndexOf(1), .. of the input.
struct Groups {
  Walk base, each;
  int64_t results = 1, elements = 1;  // elements of each result

  // `reduced[axis]`: the axis goes.
  static Groups Of(const tensor::Shape& shape, const std::vector<bool>& reduced) {
    std::vector<int64_t> kept_dims, kept_strides, gone_dims, gone_strides;
    int64_t stride = 1;
    std::vector<int64_t> strides(shape.rank());
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      strides[axis] = stride;
      stride *= shape.dim(axis);
    }
    for (int axis = 0; axis < shape.rank(); ++axis) {
      (reduced[axis] ? gone_dims : kept_dims).push_back(shape.dim(axis));
      (reduced[axis] ? gone_strides : kept_strides).push_back(strides[axis]);
    }
    Groups groups{.base = Walk::Of(tensor::Shape(kept_dims), kept_strides), .each = Walk::Of(tensor::Shape(gone_dims), gone_strides)};
    groups.results = groups.base.elements();
    groups.elements = groups.each.elements();
    return groups;
  }
};

enum class Kind { kSum, kMean, kMax };

template <Kind kKind>
__global__ void ReduceGroups(const float* x, float* y, Groups groups) {
  for (int64_t r = blockIdx.x; r < groups.results; r += gridDim.x) {
    const float* base = x + groups.base.IndexOf(r);
    float value = kKind == Kind::kMax ? -INFINITY : 0.0f;
    for (int64_t i = threadIdx.x; i < groups.elements; i += blockDim.x) {
      const float element = base[groups.each.IndexOf(i)];
      value = kKind == Kind::kMax ? fmaxf(value, element) : value + element;
    }
    value = kKind == Kind::kMax ? MaxOverBlock(value) : SumOverBlock(value);
    if (threadIdx.x == 0) y[r] = kKind == Kind::kMean ? value / static_cast<float>(groups.elements) : value;
  }
}

__global__ void MaxGradOfGroups(const float* x, const float* y, const float* dy, float* dx, Groups groups) {
  for (int64_t r = blockIdx.x; r < groups.results; r += gridDim.x) {
    const int64_t base = groups.base.IndexOf(r);
    int ties = 0;
    for (int64_t i = threadIdx.x; i < groups.elements; i += blockDim.x) ties += x[base + groups.each.IndexOf(i)] == y[r] ? 1 : 0;
    ties = SumOverBlock(ties);
    for (int64_t i = threadIdx.x; i < groups.elements; i += blockDim.x) {
      const int64_t place = base + groups.each.IndexOf(i);
      dx[place] = x[place] == y[r] ? dy[r] / static_cast<float>(ties) : 0.0f;
    }
  }
}

__global__ void BroadcastElements(const float* x, float* y, Walk walk, int64_t count) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) y[i] = x[walk.IndexOf(i)];
}

std::vector<bool> ReducedAxes(const PreparedOp& op) {
  const std::vector<int64_t> axes = op.attributes.Ints("axes");
  std::vector<bool> reduced(op.in(0).rank(), axes.empty());
  for (const int64_t axis : axes) reduced[NormalizeAxis(axis, op.in(0).rank())] = true;
  return reduced;
}

unsigned ThreadsFor(int64_t elements) { return elements <= 32 ? 32 : elements <= 128 ? 128 : kThreads; }

class Reduce : public DeviceKernel {
 public:
  Reduce(PreparedOp op, Device& device)
      : DeviceKernel(std::move(op), device), groups_(Groups::Of(op_.in(0), ReducedAxes(op_))), kind_(op_.attributes.Text("kind", "sum")) {}
  absl::Status Run(const KernelArguments& arguments) override {
    const auto kernel = kind_ == "max" ? ReduceGroups<Kind::kMax> : kind_ == "mean" ? ReduceGroups<Kind::kMean> : ReduceGroups<Kind::kSum>;
    return Launched(Launch(stream(), BlocksForRows(groups_.results), ThreadsFor(groups_.elements), 0, kernel, arguments.inputs[0].f32(),
                           arguments.outputs[0].f32(), groups_));
  }

 private:
  const Groups groups_;
  const std::string kind_;
};

class ReduceMaxGrad : public DeviceKernel {
 public:
  ReduceMaxGrad(PreparedOp op, Device& device) : DeviceKernel(std::move(op), device), groups_(Groups::Of(op_.in(0), ReducedAxes(op_))) {}
  absl::Status Run(const KernelArguments& arguments) override {
    return Launched(Launch(stream(), BlocksForRows(groups_.results), ThreadsFor(groups_.elements), 0, MaxGradOfGroups,
                           arguments.inputs[0].f32(), arguments.inputs[1].f32(), arguments.inputs[2].f32(), arguments.outputs[0].f32(),
                           groups_));
  }

 private:
  const Groups groups_;
};

class BroadcastTo : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t count = op_.out(0).elements();
    return Launched(Launch(stream(), BlocksFor(count), kThreads, 0, BroadcastElements, arguments.inputs[0].f32(),
                           arguments.outputs[0].f32(), Walk::Broadcast(op_.in(0), op_.out(0)), count));
  }
};

// Which axes of the input were repeated from the output's shape.
std::vector<bool> RepeatedAxes(const PreparedOp& op) {
  const int missing = op.in(0).rank() - op.out(0).rank();
  std::vector<bool> repeated(op.in(0).rank());
  for (int axis = 0; axis < op.in(0).rank(); ++axis) repeated[axis] = axis < missing || op.out(0).dim(axis - missing) != op.in(0).dim(axis);
  return repeated;
}

class SumTo : public DeviceKernel {
 public:
  SumTo(PreparedOp op, Device& device) : DeviceKernel(std::move(op), device), groups_(Groups::Of(op_.in(0), RepeatedAxes(op_))) {}
  absl::Status Run(const KernelArguments& arguments) override {
    return Launched(Launch(stream(), BlocksForRows(groups_.results), ThreadsFor(groups_.elements), 0, ReduceGroups<Kind::kSum>,
                           arguments.inputs[0].f32(), arguments.outputs[0].f32(), groups_));
  }

 private:
  const Groups groups_;
};

template <typename K>
MadeKernel MakeWalking(PreparedOp op, Device& device) {
  if (!Walk::Fits(op.in(0)) || !Walk::Fits(op.out(0))) return TooManyAxes(op);
  return Make<K>(std::move(op), device);
}

}  // namespace

std::span<const Entry> ReductionKernels() {
  static constexpr Entry kEntries[] = {
      {"softmax", Make<Softmax<false>>},
      {"log_softmax", Make<Softmax<true>>},
      {"softmax_grad", Make<SoftmaxGrad<false>>},
      {"log_softmax_grad", Make<SoftmaxGrad<true>>},
      {"reduce", MakeWalking<Reduce>},
      {"reduce_max_grad", MakeWalking<ReduceMaxGrad>},
      {"broadcast_to", MakeWalking<BroadcastTo>},
      {"sum_to", MakeWalking<SumTo>},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
