#include <cmath>
#include <vector>

#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

// For each element of `shape`, which element of the tensor reduced over `axes` it belongs to.
class Reduced {
 public:
  Reduced(const tensor::Shape& shape, const std::vector<int64_t>& axes) : shape_(shape), strides_(shape.rank(), 0) {
    std::vector<bool> gone(shape.rank(), axes.empty());
    for (const int64_t axis : axes) gone[NormalizeAxis(axis, shape.rank())] = true;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (gone[axis]) continue;
      strides_[axis] = size_;
      size_ *= shape.dim(axis);
    }
  }
  Reduced(const tensor::Shape& shape, const tensor::Shape& to)
      : shape_(shape), strides_(BroadcastStrides(to, shape)), size_(to.elements()) {}

  int64_t size() const { return size_; }
  int64_t IndexOf(int64_t element) const {
    int64_t index = 0;
    for (int axis = shape_.rank() - 1; axis >= 0; --axis) {
      index += element % shape_.dim(axis) * strides_[axis];
      element /= shape_.dim(axis);
    }
    return index;
  }

 private:
  const tensor::Shape& shape_;
  std::vector<int64_t> strides_;
  int64_t size_ = 1;
};

absl::Status Reduce(const PreparedOp& op, const KernelArguments& arguments) {
  const Reduced reduced(op.in(0), op.attributes.Ints("axes"));
  const std::string kind = op.attributes.Text("kind", "sum");
  const int64_t count = op.in(0).elements();
  std::vector<double> result(reduced.size(), kind == "max" ? -INFINITY : 0);
  for (int64_t i = 0; i < count; ++i) {
    double& slot = result[reduced.IndexOf(i)];
    const double x = arguments.inputs[0].f32()[i];
    slot = kind == "max" ? std::max(slot, x) : slot + x;
  }
  const double divisor = kind == "mean" ? static_cast<double>(count) / static_cast<double>(reduced.size()) : 1;
  for (int64_t i = 0; i < reduced.size(); ++i) arguments.outputs[0].f32()[i] = static_cast<float>(result[i] / divisor);
  return absl::OkStatus();
}

absl::Status ReduceMaxGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const Reduced reduced(op.in(0), op.attributes.Ints("axes"));
  const float* x = arguments.inputs[0].f32();
  const float* y = arguments.inputs[1].f32();
  const int64_t count = op.in(0).elements();
  std::vector<int64_t> ties(reduced.size(), 0);
  for (int64_t i = 0; i < count; ++i) ties[reduced.IndexOf(i)] += x[i] == y[reduced.IndexOf(i)];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t r = reduced.IndexOf(i);
    arguments.outputs[0].f32()[i] = x[i] == y[r] ? arguments.inputs[2].f32()[r] / static_cast<float>(ties[r]) : 0.f;
  }
  return absl::OkStatus();
}

absl::Status BroadcastTo(const PreparedOp& op, const KernelArguments& arguments) {
  const Reduced source(op.out(0), op.in(0));
  for (int64_t i = 0; i < op.out(0).elements(); ++i) arguments.outputs[0].f32()[i] = arguments.inputs[0].f32()[source.IndexOf(i)];
  return absl::OkStatus();
}

absl::Status SumTo(const PreparedOp& op, const KernelArguments& arguments) {
  const Reduced target(op.in(0), op.out(0));
  std::vector<double> sums(target.size(), 0);
  for (int64_t i = 0; i < op.in(0).elements(); ++i) sums[target.IndexOf(i)] += arguments.inputs[0].f32()[i];
  for (int64_t i = 0; i < target.size(); ++i) arguments.outputs[0].f32()[i] = static_cast<float>(sums[i]);
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> ReductionKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kReduce, Reduce}, {OpKind::kReduceMaxGrad, ReduceMaxGrad}, {OpKind::kBroadcastTo, BroadcastTo}, {OpKind::kSumTo, SumTo}};
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
