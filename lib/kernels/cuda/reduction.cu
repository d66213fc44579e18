// Reductions over any axes: a block for each result.
#include <utility>
#include <vector>

#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/indexing.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

// The elements that belong to result r are base.IndexOf(r) + each.IndexOf(0), each.IndexOf(1), .. of the input.
struct Groups {
  StridedIndex base, each;
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
    Groups groups{.base = StridedIndex::Of(tensor::Shape(kept_dims), kept_strides),
                  .each = StridedIndex::Of(tensor::Shape(gone_dims), gone_strides)};
    groups.results = groups.base.elements();
    groups.elements = groups.each.elements();
    return groups;
  }
};

enum class Kind { kSum, kMean, kMax };

template <Kind kKind, typename T>
__global__ void ReduceGroups(const T* x, T* y, Groups groups) {
  for (int64_t r = blockIdx.x; r < groups.results; r += gridDim.x) {
    const T* base = x + groups.base.IndexOf(r);
    float value = kKind == Kind::kMax ? -INFINITY : 0.0f;
    for (int64_t i = threadIdx.x; i < groups.elements; i += blockDim.x) {
      const float element = base[groups.each.IndexOf(i)];
      value = kKind == Kind::kMax ? fmaxf(value, element) : value + element;
    }
    value = kKind == Kind::kMax ? MaxOverBlock(value) : SumOverBlock(value);
    if (threadIdx.x == 0) y[r] = kKind == Kind::kMean ? value / static_cast<float>(groups.elements) : value;
  }
}

template <typename T>
__global__ void MaxGradOfGroups(const T* x, const T* y, const T* dy, T* dx, Groups groups) {
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

template <typename T>
__global__ void BroadcastElements(const T* x, T* y, StridedIndex strided, int64_t count) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) y[i] = x[strided.IndexOf(i)];
}

std::vector<bool> ReducedAxes(const PreparedOp& op) {
  const std::vector<int64_t> axes = op.attributes.Ints("axes");
  std::vector<bool> reduced(op.in(0).rank(), axes.empty());
  for (const int64_t axis : axes) reduced[NormalizeAxis(axis, op.in(0).rank())] = true;
  return reduced;
}

unsigned ThreadsFor(int64_t elements) { return elements <= 32 ? 32 : elements <= 128 ? 128 : kThreads; }

template <typename T>
class Reduce : public DeviceKernel {
 public:
  Reduce(PreparedOp op, Device& device)
      : DeviceKernel(std::move(op), device), groups_(Groups::Of(op_.in(0), ReducedAxes(op_))), kind_(op_.attributes.Text("kind", "sum")) {}
  absl::Status Run(const KernelArguments& arguments) override {
    const auto kernel = kind_ == "max"    ? ReduceGroups<Kind::kMax, T>
                        : kind_ == "mean" ? ReduceGroups<Kind::kMean, T>
                                          : ReduceGroups<Kind::kSum, T>;
    return LaunchStatus(Launch(stream(), BlocksForRows(groups_.results), ThreadsFor(groups_.elements), 0, kernel,
                               arguments.inputs[0].as<T>(), arguments.outputs[0].as<T>(), groups_));
  }

 private:
  const Groups groups_;
  const std::string kind_;
};

template <typename T>
class ReduceMaxGrad : public DeviceKernel {
 public:
  ReduceMaxGrad(PreparedOp op, Device& device) : DeviceKernel(std::move(op), device), groups_(Groups::Of(op_.in(0), ReducedAxes(op_))) {}
  absl::Status Run(const KernelArguments& arguments) override {
    return LaunchStatus(Launch(stream(), BlocksForRows(groups_.results), ThreadsFor(groups_.elements), 0, MaxGradOfGroups<T>,
                               arguments.inputs[0].as<T>(), arguments.inputs[1].as<T>(), arguments.inputs[2].as<T>(),
                               arguments.outputs[0].as<T>(), groups_));
  }

 private:
  const Groups groups_;
};

template <typename T>
class BroadcastTo : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t count = op_.out(0).elements();
    return LaunchStatus(Launch(stream(), BlocksFor(count), kThreads, 0, BroadcastElements<T>, arguments.inputs[0].as<T>(),
                               arguments.outputs[0].as<T>(), StridedIndex::Broadcast(op_.in(0), op_.out(0)), count));
  }
};

// Which axes of the input were repeated from the output's shape.
std::vector<bool> RepeatedAxes(const PreparedOp& op) {
  const int missing = op.in(0).rank() - op.out(0).rank();
  std::vector<bool> repeated(op.in(0).rank());
  for (int axis = 0; axis < op.in(0).rank(); ++axis) repeated[axis] = axis < missing || op.out(0).dim(axis - missing) != op.in(0).dim(axis);
  return repeated;
}

template <typename T>
class SumTo : public DeviceKernel {
 public:
  SumTo(PreparedOp op, Device& device) : DeviceKernel(std::move(op), device), groups_(Groups::Of(op_.in(0), RepeatedAxes(op_))) {}
  absl::Status Run(const KernelArguments& arguments) override {
    return LaunchStatus(Launch(stream(), BlocksForRows(groups_.results), ThreadsFor(groups_.elements), 0, ReduceGroups<Kind::kSum, T>,
                               arguments.inputs[0].as<T>(), arguments.outputs[0].as<T>(), groups_));
  }

 private:
  const Groups groups_;
};

template <typename K>
KernelOrError MakeStrided(PreparedOp op, Device& device) {
  if (!StridedIndex::Fits(op.in(0)) || !StridedIndex::Fits(op.out(0))) return TooManyAxes(op);
  return Make<K>(std::move(op), device);
}

template <template <typename> class K>
constexpr Entry StridedEntry(opdag::OpKind kind, absl::string_view inputs) {
  return {kind, MakeStrided<K<float>>, {MakeStrided<K<Bf16>>, inputs, "b"}};
}

}  // namespace

std::span<const Entry> ReductionKernels() {
  static constexpr Entry kEntries[] = {
      StridedEntry<Reduce>(OpKind::kReduce, "b"),
      StridedEntry<ReduceMaxGrad>(OpKind::kReduceMaxGrad, "bbb"),
      StridedEntry<BroadcastTo>(OpKind::kBroadcastTo, "b"),
      StridedEntry<SumTo>(OpKind::kSumTo, "b"),
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
