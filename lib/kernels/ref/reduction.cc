#include <cmath>
#include <vector>

#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

absl::Status Softmax(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t width = op.in(0).dim(-1);
  const bool log = op.type == "log_softmax";
  for (int64_t row = 0; row < op.in(0).rows(); ++row) {
    const float* x = arguments.inputs[0].f32() + row * width;
    float* y = arguments.outputs[0].f32() + row * width;
    double top = x[0];
    for (int64_t i = 1; i < width; ++i) top = std::max(top, static_cast<double>(x[i]));
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += std::exp(x[i] - top);
    for (int64_t i = 0; i < width; ++i) y[i] = static_cast<float>(log ? x[i] - top - std::log(sum) : std::exp(x[i] - top) / sum);
  }
  return absl::OkStatus();
}

absl::Status SoftmaxGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t width = op.in(0).dim(-1);
  const bool log = op.type == "log_softmax_grad";
  for (int64_t row = 0; row < op.in(0).rows(); ++row) {
    const float* y = arguments.inputs[0].f32() + row * width;
    const float* dy = arguments.inputs[1].f32() + row * width;
    float* dx = arguments.outputs[0].f32() + row * width;
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += log ? dy[i] : static_cast<double>(dy[i]) * y[i];
    for (int64_t i = 0; i < width; ++i) {
      dx[i] = static_cast<float>(log ? dy[i] - std::exp(static_cast<double>(y[i])) * sum : y[i] * (dy[i] - sum));
    }
  }
  return absl::OkStatus();
}

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
      {"softmax", Softmax}, {"log_softmax", Softmax},           {"softmax_grad", SoftmaxGrad}, {"log_softmax_grad", SoftmaxGrad},
      {"reduce", Reduce},   {"reduce_max_grad", ReduceMaxGrad}, {"broadcast_to", BroadcastTo}, {"sum_to", SumTo},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
