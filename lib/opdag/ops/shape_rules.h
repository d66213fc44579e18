// Parts that the shape rules share: checks with readable reasons, broadcasting, window arithmetic. Private to lib/opdag.
//
// Every function that fails returns InvalidArgument with a reason; InferOp prefixes the op's name and type. Attribute values come from
// users: all arithmetic on them is bounded first (kMaxExtent, kMaxWindow), so nothing overflows.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/graph.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::opdag::ops {

using tensor::TensorType;
using Types = std::vector<TensorType>;
using Extents = std::vector<int64_t>;

inline constexpr int64_t kMaxExtent = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMaxWindow = 1 << 16;  // kernel, stride, padding, dilation

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

inline TensorType F32(Extents extents) { return {tensor::DType::kF32, tensor::Shape(std::move(extents))}; }
inline TensorType I32(Extents extents) { return {tensor::DType::kI32, tensor::Shape(std::move(extents))}; }

inline const TensorType& InputType(const Graph& graph, const Op& op, int index) { return graph.value(op.inputs[index]).type; }
inline const TensorType& OutputType(const Graph& graph, const Op& op, int index = 0) { return graph.value(op.outputs[index]).type; }
inline double OutputElements(const Graph& graph, const Op& op) { return static_cast<double>(OutputType(graph, op).elements()); }
inline double InputElements(const Graph& graph, const Op& op) { return static_cast<double>(InputType(graph, op, 0).elements()); }

// Rank, extents >= 1 and number of elements within the limits of graph.h, without overflow.
absl::Status CheckLimits(const TensorType& type);
// nullopt when the product passes kMaxElements or an extent is below 1.
std::optional<int64_t> CheckedElements(const Extents& extents);

absl::Status RequireF32(absl::string_view name, const TensorType& type, int min_rank = 0);
absl::Status RequireRank(absl::string_view name, const TensorType& type, int rank);
absl::Status RequireSame(absl::string_view name_a, const TensorType& a, absl::string_view name_b, const TensorType& b);
absl::Status RequireType(absl::string_view name, const TensorType& type, const TensorType& wanted);

absl::StatusOr<int64_t> PositiveInt(const Attributes& attributes, absl::string_view name);
absl::StatusOr<int64_t> Axis(const Attributes& attributes, absl::string_view name, int rank);
// The attribute `shape` with "b" replaced; extents >= 1, or one -1 when `infer` is allowed (left as -1).
absl::StatusOr<Extents> ShapeAttribute(const Attributes& attributes, absl::string_view name, int64_t batch, bool allow_minus_one = false);
// Two integers [height, width], each in [min, kMaxWindow]; `fallback` when absent.
absl::StatusOr<std::array<int64_t, 2>> Window(const Attributes& attributes, absl::string_view name, int64_t fallback, int64_t min);
// Extent after sliding a window: floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1, at least 1.
absl::StatusOr<int64_t> WindowOutputExtent(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation);

// NumPy broadcasting of two shapes.
absl::StatusOr<tensor::Shape> Broadcast(const tensor::Shape& a, const tensor::Shape& b);

// A schema with the parts that every op states.
OpSchema MakeSchema(OpKind kind, OpRole role, OpClass op_class, std::vector<std::string> inputs, std::vector<std::string> outputs);
// The same for an op that only autodiff makes.
OpSchema MakeBackward(OpKind kind, OpClass op_class, std::vector<std::string> inputs, std::vector<std::string> outputs);

}  // namespace fusionllm::opdag::ops
