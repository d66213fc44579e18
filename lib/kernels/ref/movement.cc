// Ops that move elements of any type without reading their value.
#include <cstring>

#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

absl::Status Nothing(const PreparedOp& op, const KernelArguments& arguments) { return absl::OkStatus(); }

absl::Status Constant(const PreparedOp& op, const KernelArguments& arguments) {
  const double value = op.attributes.Number("value");
  const tensor::TensorView& y = arguments.outputs[0];
  const int64_t count = op.out(0).elements();
  switch (op.outputs[0].dtype) {
    case tensor::DType::kI32:
      std::fill_n(y.as<int32_t>(), count, static_cast<int32_t>(value));
      break;
    case tensor::DType::kI64:
      std::fill_n(y.as<int64_t>(), count, static_cast<int64_t>(value));
      break;
    case tensor::DType::kU8:
      std::fill_n(y.as<uint8_t>(), count, static_cast<uint8_t>(value));
      break;
    default:
      std::fill_n(y.f32(), count, static_cast<float>(value));
  }
  return absl::OkStatus();
}

absl::Status Copy(const PreparedOp& op, const KernelArguments& arguments) {
  if (arguments.outputs[0].data != arguments.inputs[0].data) {
    std::memcpy(arguments.outputs[0].data, arguments.inputs[0].data, op.outputs[0].bytes());
  }
  return absl::OkStatus();
}

// Element i of the output comes from element `from[i]`; a permutation is given by the strides of the input's axes in output order.
absl::Status Transpose(const PreparedOp& op, const KernelArguments& arguments) {
  const std::vector<int64_t> permutation = op.attributes.Ints("permutation");
  const tensor::Shape& in = op.in(0);
  const int rank = in.rank();
  std::vector<int64_t> in_strides(rank, 1), strides(rank, 1);
  for (int axis = rank - 2; axis >= 0; --axis) in_strides[axis] = in_strides[axis + 1] * in.dim(axis + 1);
  for (int axis = 0; axis < rank; ++axis) strides[axis] = in_strides[NormalizeAxis(permutation[axis], rank)];
  const size_t size = tensor::SizeOf(op.outputs[0].dtype);
  const auto* from = static_cast<const std::byte*>(arguments.inputs[0].data);
  auto* to = static_cast<std::byte*>(arguments.outputs[0].data);
  const int64_t count = in.elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, source = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      source += rest % op.out(0).dim(axis) * strides[axis];
      rest /= op.out(0).dim(axis);
    }
    std::memcpy(to + i * size, from + source * size, size);
  }
  return absl::OkStatus();
}

// Copies [outer, extent, inner] between places `from_begin` and `to_begin` of two tensors that differ in the extent of one axis.
struct Window {
  const void* from;
  int64_t from_extent, from_begin;
  void* to;
  int64_t to_extent, to_begin;
};

void CopyWindow(const Window& w, const AxisView& view, size_t element_bytes) {
  const size_t unit = view.inner * element_bytes;
  for (int64_t o = 0; o < view.outer; ++o) {
    std::memcpy(static_cast<std::byte*>(w.to) + (o * w.to_extent + w.to_begin) * unit,
                static_cast<const std::byte*>(w.from) + (o * w.from_extent + w.from_begin) * unit, view.extent * unit);
  }
}

int Axis(const PreparedOp& op) { return NormalizeAxis(op.attributes.Int("axis"), op.in(0).rank()); }

absl::Status Concat(const PreparedOp& op, const KernelArguments& arguments) {
  int64_t begin = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const AxisView view = AroundAxis(op.in(static_cast<int>(i)), Axis(op));
    CopyWindow({arguments.inputs[i].data, view.extent, 0, arguments.outputs[0].data, op.out(0).dim(Axis(op)), begin}, view,
               tensor::SizeOf(op.outputs[0].dtype));
    begin += view.extent;
  }
  return absl::OkStatus();
}

absl::Status Split(const PreparedOp& op, const KernelArguments& arguments) {
  int64_t begin = 0;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const AxisView view = AroundAxis(op.out(static_cast<int>(i)), Axis(op));
    if (arguments.outputs[i].data != nullptr) {
      CopyWindow({arguments.inputs[0].data, op.in(0).dim(Axis(op)), begin, arguments.outputs[i].data, view.extent, 0}, view,
                 tensor::SizeOf(op.inputs[0].dtype));
    }
    begin += view.extent;
  }
  return absl::OkStatus();
}

int64_t Begin(const PreparedOp& op, int64_t extent) {
  const int64_t begin = op.attributes.Int("begin");
  return begin < 0 ? begin + extent : begin;
}

absl::Status Slice(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t extent = op.in(0).dim(Axis(op));
  CopyWindow({arguments.inputs[0].data, extent, Begin(op, extent), arguments.outputs[0].data, op.out(0).dim(Axis(op)), 0},
             AroundAxis(op.out(0), Axis(op)), tensor::SizeOf(op.inputs[0].dtype));
  return absl::OkStatus();
}

absl::Status PadSlice(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t extent = op.out(0).dim(Axis(op));
  std::memset(arguments.outputs[0].data, 0, op.outputs[0].bytes());
  CopyWindow({arguments.inputs[0].data, op.in(0).dim(Axis(op)), 0, arguments.outputs[0].data, extent, Begin(op, extent)},
             AroundAxis(op.in(0), Axis(op)), tensor::SizeOf(op.inputs[0].dtype));
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> MovementKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kPlaceholder, Nothing}, {OpKind::kConstant, Constant},   {OpKind::kReshape, Copy, true},
      {OpKind::kFlatten, Copy, true},  {OpKind::kTranspose, Transpose}, {OpKind::kConcat, Concat},
      {OpKind::kSplit, Split},         {OpKind::kSlice, Slice},         {OpKind::kPadSlice, PadSlice},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
