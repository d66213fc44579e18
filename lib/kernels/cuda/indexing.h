// How kernels find their way through tensors whose axes differ: plain structs that travel as arguments of a launch. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/kernels/prepared_op.h"
#include "lib/tensor/shape.h"

namespace fusionllm::kernels::cuda {

// From the number of an element of one shape, in row-major order, to its place in memory that is laid out by other strides.
struct StridedIndex {
  static constexpr int kMaxAxes = 8;
  int axes = 0;
  int64_t extent[kMaxAxes] = {};
  int64_t stride[kMaxAxes] = {};  // in elements

  static bool Fits(const tensor::Shape& shape) { return shape.rank() <= kMaxAxes; }
  // `shape` must fit.
  static StridedIndex Of(const tensor::Shape& shape, const std::vector<int64_t>& strides) {
    StridedIndex strided;
    strided.axes = shape.rank();
    for (int axis = 0; axis < strided.axes; ++axis) {
      strided.extent[axis] = shape.dim(axis);
      strided.stride[axis] = strides[axis];
    }
    return strided;
  }
  // Over `shape`, in a tensor of shape `from` read as if broadcast to it.
  static StridedIndex Broadcast(const tensor::Shape& from, const tensor::Shape& shape) { return Of(shape, BroadcastStrides(from, shape)); }

  __host__ __device__ int64_t IndexOf(int64_t element) const {
    int64_t index = 0;
    for (int axis = axes - 1; axis >= 0; --axis) {
      index += element % extent[axis] * stride[axis];
      element /= extent[axis];
    }
    return index;
  }
  __host__ __device__ int64_t elements() const {
    int64_t count = 1;
    for (int axis = 0; axis < axes; ++axis) count *= extent[axis];
    return count;
  }
};

inline absl::Status TooManyAxes(const PreparedOp& op) {
  return absl::UnimplementedError(
      absl::StrCat(op.Prefix(), "back end 'cuda' takes tensors of at most ", StridedIndex::kMaxAxes, " axes here"));
}

}  // namespace fusionllm::kernels::cuda
