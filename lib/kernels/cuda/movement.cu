// Ops that move elements of any type without reading their value.
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/indexing.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

template <typename T>
__global__ void FillElements(T* y, int64_t count, T value) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) y[i] = value;
}

template <typename T>
__global__ void GatherElements(const T* x, T* y, StridedIndex strided, int64_t count) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) y[i] = x[strided.IndexOf(i)];
}

class Nothing : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments&) override { return absl::OkStatus(); }
};

class Constant : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const double value = op_.attributes.Number("value");
    const tensor::TensorView& y = arguments.outputs[0];
    switch (op_.outputs[0].dtype) {
      case tensor::DType::kI32:
        return Fill(y.as<int32_t>(), static_cast<int32_t>(value));
      case tensor::DType::kI64:
        return Fill(y.as<int64_t>(), static_cast<int64_t>(value));
      case tensor::DType::kU8:
        return Fill(y.as<uint8_t>(), static_cast<uint8_t>(value));
      default:
        return Fill(y.f32(), static_cast<float>(value));
    }
  }

 private:
  template <typename T>
  absl::Status Fill(T* y, T value) {
    const int64_t count = op_.out(0).elements();
    return LaunchStatus(Launch(stream(), BlocksFor(count), kThreads, 0, FillElements<T>, y, count, value));
  }
};

class Copy : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  bool CanRunInPlace(int output, int input) const override { return op_.outputs[0].dtype == op_.inputs[0].dtype; }
  absl::Status Run(const KernelArguments& arguments) override {
    if (arguments.outputs[0].data == arguments.inputs[0].data || op_.outputs[0].bytes() == 0) return absl::OkStatus();
    return LaunchStatus(
        cudaMemcpyAsync(arguments.outputs[0].data, arguments.inputs[0].data, op_.outputs[0].bytes(), cudaMemcpyDeviceToDevice, stream()));
  }
};

// Element i of the output comes from where the strides of the input's axes, in the order of the output's, lead.
class Transpose : public DeviceKernel {
 public:
  Transpose(PreparedOp op, Device& device) : DeviceKernel(std::move(op), device) {
    const std::vector<int64_t> permutation = op_.attributes.Ints("permutation");
    const tensor::Shape& in = op_.in(0);
    const int rank = in.rank();
    std::vector<int64_t> in_strides(rank, 1), strides(rank, 1);
    for (int axis = rank - 2; axis >= 0; --axis) in_strides[axis] = in_strides[axis + 1] * in.dim(axis + 1);
    for (int axis = 0; axis < rank; ++axis) strides[axis] = in_strides[NormalizeAxis(permutation[axis], rank)];
    strided_ = StridedIndex::Of(op_.out(0), strides);
  }
  absl::Status Run(const KernelArguments& arguments) override {
    switch (tensor::SizeOf(op_.outputs[0].dtype)) {
      case 1:
        return Gather<uint8_t>(arguments);
      case 2:
        return Gather<uint16_t>(arguments);
      case 4:
        return Gather<uint32_t>(arguments);
      default:
        return Gather<uint64_t>(arguments);
    }
  }

 private:
  template <typename T>
  absl::Status Gather(const KernelArguments& arguments) {
    const int64_t count = op_.out(0).elements();
    return LaunchStatus(Launch(stream(), BlocksFor(count), kThreads, 0, GatherElements<T>, arguments.inputs[0].as<T>(),
                               arguments.outputs[0].as<T>(), strided_, count));
  }

  StridedIndex strided_;
};

KernelOrError MakeTranspose(PreparedOp op, Device& device) {
  if (!StridedIndex::Fits(op.out(0))) return TooManyAxes(op);
  return Make<Transpose>(std::move(op), device);
}

// Copies [outer, extent, inner] between places `from_begin` and `to_begin` of two tensors that differ in the extent of one axis.
struct Window {
  const void* from;
  int64_t from_extent, from_begin;
  void* to;
  int64_t to_extent, to_begin;
};

class WindowKernel : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;

 protected:
  int Axis() const { return NormalizeAxis(op_.attributes.Int("axis"), op_.in(0).rank()); }
  int64_t Begin(int64_t extent) const {
    const int64_t begin = op_.attributes.Int("begin");
    return begin < 0 ? begin + extent : begin;
  }
  size_t ElementBytes() const { return tensor::SizeOf(op_.outputs[0].dtype); }
  absl::Status CopyWindow(const Window& w, const AxisView& view) const {
    const size_t unit = static_cast<size_t>(view.inner) * ElementBytes();
    if (unit == 0 || view.extent == 0 || view.outer == 0) return absl::OkStatus();
    return LaunchStatus(cudaMemcpy2DAsync(static_cast<std::byte*>(w.to) + w.to_begin * unit, w.to_extent * unit,
                                          static_cast<const std::byte*>(w.from) + w.from_begin * unit, w.from_extent * unit,
                                          view.extent * unit, view.outer, cudaMemcpyDeviceToDevice, stream()));
  }
};

class Concat : public WindowKernel {
 public:
  using WindowKernel::WindowKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    int64_t begin = 0;
    for (size_t i = 0; i < op_.inputs.size(); ++i) {
      const AxisView view = AroundAxis(op_.in(static_cast<int>(i)), Axis());
      FUSIONLLM_RETURN_IF_ERROR(
          CopyWindow({arguments.inputs[i].data, view.extent, 0, arguments.outputs[0].data, op_.out(0).dim(Axis()), begin}, view));
      begin += view.extent;
    }
    return absl::OkStatus();
  }
};

class Split : public WindowKernel {
 public:
  using WindowKernel::WindowKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    int64_t begin = 0;
    for (size_t i = 0; i < op_.outputs.size(); ++i) {
      const AxisView view = AroundAxis(op_.out(static_cast<int>(i)), Axis());
      if (arguments.outputs[i].data != nullptr) {
        FUSIONLLM_RETURN_IF_ERROR(
            CopyWindow({arguments.inputs[0].data, op_.in(0).dim(Axis()), begin, arguments.outputs[i].data, view.extent, 0}, view));
      }
      begin += view.extent;
    }
    return absl::OkStatus();
  }
};

class Slice : public WindowKernel {
 public:
  using WindowKernel::WindowKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t extent = op_.in(0).dim(Axis());
    return CopyWindow({arguments.inputs[0].data, extent, Begin(extent), arguments.outputs[0].data, op_.out(0).dim(Axis()), 0},
                      AroundAxis(op_.out(0), Axis()));
  }
};

class PadSlice : public WindowKernel {
 public:
  using WindowKernel::WindowKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t extent = op_.out(0).dim(Axis());
    FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(cudaMemsetAsync(arguments.outputs[0].data, 0, op_.outputs[0].bytes(), stream())));
    return CopyWindow({arguments.inputs[0].data, op_.in(0).dim(Axis()), 0, arguments.outputs[0].data, extent, Begin(extent)},
                      AroundAxis(op_.in(0), Axis()));
  }
};

}  // namespace

std::span<const Entry> MovementKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kPlaceholder, Make<Nothing>}, {OpKind::kConstant, Make<Constant>}, {OpKind::kReshape, Make<Copy>},
      {OpKind::kFlatten, Make<Copy>},        {OpKind::kTranspose, MakeTranspose}, {OpKind::kConcat, Make<Concat>},
      {OpKind::kSplit, Make<Split>},         {OpKind::kSlice, Make<Slice>},       {OpKind::kPadSlice, Make<PadSlice>},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
