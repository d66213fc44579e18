// What a kernel keeps of its op: name, attributes and the fixed types of everything it reads and writes.
//
// Kernels take extents from here and only data pointers from KernelArguments, so a caller may hand in views of any shape with as many
// bytes. Plain data; const access from several threads is safe.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kernels/backend.h"
#include "lib/opdag/graph.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::kernels {

using opdag::OpKind;

struct PreparedOp {
  std::string name;
  OpKind kind = OpKind::kNone;
  opdag::Attributes attributes;
  std::vector<tensor::TensorType> inputs;
  std::vector<tensor::TensorType> parameters;
  std::vector<tensor::TensorType> outputs;

  const tensor::Shape& in(int index) const { return inputs[index].shape; }
  const tensor::Shape& out(int index) const { return outputs[index].shape; }
  // "op 'wte' (embedding): " before any message of a kernel.
  std::string Prefix() const;
};

// Of a row that one kernel runs (Backend::PrepareFused).
struct PreparedFusedOp {
  PreparedOp op;
  int through = 0;           // which of its inputs is output 0 of the op before; of the first op: 0, and nothing
  bool keeps_output = true;  // as FusedOp's
};

// Errors: InvalidArgument for ids out of range.
absl::StatusOr<PreparedOp> PrepareOp(const opdag::Graph& graph, const opdag::Op& op);
// Errors: PrepareOp's; InvalidArgument for an op that does not read output 0 of the one before.
absl::StatusOr<std::vector<PreparedFusedOp>> PrepareFusedOps(const opdag::Graph& graph, std::span<const FusedOp> row);

// Whether it only puts elements elsewhere, whatever they mean: its type is that of a mover, and all it reads and writes has one dtype.
bool MovesBytesOnly(const PreparedOp& op);
// For kernels that know f32 only. Errors: Unimplemented when another floating type reaches an op that computes.
absl::Status CheckComputesInF32(const PreparedOp& op);

// Whether output `index` is to be added to.
bool Accumulates(const KernelArguments& arguments, int index);
// nullptr when the op has no such output or it is not wanted.
float* OutputOrNull(const KernelArguments& arguments, int index);

// A non-negative axis of a tensor of this rank; negative ones count from the end.
int NormalizeAxis(int64_t axis, int rank);
// An attribute of one or two integers ("kernel=[3, 3]"), or the fallback when absent.
std::array<int64_t, 2> Pair(const opdag::Attributes& attributes, absl::string_view name, std::array<int64_t, 2> fallback);
// Row-major strides, in elements, of a tensor of shape `from` read as if broadcast to `to` (0 where repeated), aligned at the last axis.
std::vector<int64_t> BroadcastStrides(const tensor::Shape& from, const tensor::Shape& to);

// A tensor seen as [outer, extent, inner] around one axis.
struct AxisView {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;
};
AxisView AroundAxis(const tensor::Shape& shape, int axis);

inline constexpr int64_t kNothingIgnored = int64_t{1} << 40;  // no int32 equals it
// InvalidArgument unless all `count` tokens (or labels other than `ignored`) lie in [0, limit); names the position and the value.
absl::Status CheckRange(const PreparedOp& op, absl::string_view what, const int32_t* values, int64_t count, int64_t limit,
                        int64_t ignored = kNothingIgnored);

}  // namespace fusionllm::kernels
