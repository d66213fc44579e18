#include "lib/opdag/ops/shape_rules.h"

#include <algorithm>

#include "lib/base/status_macros.h"

namespace fusionllm::opdag::ops {

std::optional<int64_t> CheckedElements(const Extents& extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) {
    if (extent < 1 || extent > kMaxElements / product) return std::nullopt;
    product *= extent;
  }
  return product;
}

absl::Status CheckLimits(const TensorType& type) {
  if (type.shape.rank() > kMaxRank) return Refuse("a tensor of rank ", type.shape.rank(), " passes the limit of ", kMaxRank, " dimensions");
  if (!CheckedElements(type.shape.dims())) {
    return Refuse("a tensor of shape ", type.shape.ToString(), " has an extent below 1 or more than ", kMaxElements, " elements");
  }
  return absl::OkStatus();
}

absl::Status RequireF32(absl::string_view name, const TensorType& type, int min_rank) {
  if (type.dtype != tensor::DType::kF32) return Refuse("input ", name, " is ", type.ToString(), " and must be f32");
  if (type.shape.rank() < min_rank)
    return Refuse("input ", name, " is ", type.ToString(), " and must have at least ", min_rank, " dimensions");
  return absl::OkStatus();
}

absl::Status RequireRank(absl::string_view name, const TensorType& type, int rank) {
  if (type.shape.rank() != rank) return Refuse("input ", name, " is ", type.ToString(), " and must have ", rank, " dimensions");
  return absl::OkStatus();
}

absl::Status RequireSame(absl::string_view name_a, const TensorType& a, absl::string_view name_b, const TensorType& b) {
  if (!(a == b)) return Refuse("inputs ", name_a, " ", a.ToString(), " and ", name_b, " ", b.ToString(), " must have the same type");
  return absl::OkStatus();
}

absl::Status RequireType(absl::string_view name, const TensorType& type, const TensorType& wanted) {
  if (!(type == wanted)) return Refuse("input ", name, " is ", type.ToString(), " and must be ", wanted.ToString());
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PositiveInt(const Attributes& attributes, absl::string_view name) {
  const int64_t value = attributes.Int(name);
  if (value < 1 || value > kMaxExtent) return Refuse("attribute '", name, "' is ", value, " and must be 1 to ", kMaxExtent);
  return value;
}

absl::StatusOr<int64_t> Axis(const Attributes& attributes, absl::string_view name, int rank) {
  const int64_t axis = attributes.Int(name);
  if (axis < 0 || axis >= rank) return Refuse("attribute '", name, "' is ", axis, " and the input has ", rank, " dimensions");
  return axis;
}

absl::StatusOr<Extents> ShapeAttribute(const Attributes& attributes, absl::string_view name, int64_t batch, bool allow_minus_one) {
  Extents extents = attributes.Ints(name);
  if (extents.size() > kMaxRank) return Refuse("attribute '", name, "' has ", extents.size(), " dimensions; at most ", kMaxRank);
  int unknown = 0;
  for (int64_t& extent : extents) {
    if (extent == kBatch) extent = batch;
    if (extent == -1 && allow_minus_one) {
      if (++unknown > 1) return Refuse("attribute '", name, "' has more than one -1");
    } else if (extent < 1 || extent > kMaxExtent) {
      return Refuse("attribute '", name, "' has the extent ", extent, "; 1 to ", kMaxExtent, " are possible");
    }
  }
  return extents;
}

absl::StatusOr<std::array<int64_t, 2>> Window(const Attributes& attributes, absl::string_view name, int64_t fallback, int64_t min) {
  if (!attributes.Has(name)) return std::array<int64_t, 2>{fallback, fallback};
  const Extents values = attributes.Ints(name);
  if (values.size() != 2) return Refuse("attribute '", name, "' must be two integers, [height, width]");
  for (const int64_t value : values) {
    if (value < min || value > kMaxWindow)
      return Refuse("attribute '", name, "' holds ", value, "; ", min, " to ", kMaxWindow, " are possible");
  }
  return std::array<int64_t, 2>{values[0], values[1]};
}

absl::StatusOr<int64_t> WindowOutputExtent(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0) return Refuse("a window of ", dilation * (kernel - 1) + 1, " does not fit an extent of ", in, " padded by ", padding);
  return room / stride + 1;
}

absl::StatusOr<tensor::Shape> Broadcast(const tensor::Shape& a, const tensor::Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Extents extents(rank);
  for (int i = 1; i <= rank; ++i) {
    const int64_t left = i <= a.rank() ? a.dim(-i) : 1;
    const int64_t right = i <= b.rank() ? b.dim(-i) : 1;
    if (left != right && left != 1 && right != 1) return Refuse("shapes ", a.ToString(), " and ", b.ToString(), " do not broadcast");
    extents[rank - i] = std::max(left, right);
  }
  return tensor::Shape(std::move(extents));
}

OpSchema MakeSchema(OpKind kind, OpRole role, OpClass op_class, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  OpSchema schema;
  schema.kind = kind;
  schema.role = role;
  schema.op_class = op_class;
  schema.inputs = std::move(inputs);
  schema.outputs = std::move(outputs);
  return schema;
}

OpSchema MakeBackward(OpKind kind, OpClass op_class, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  OpSchema schema = MakeSchema(kind, OpRole::kNonParametric, op_class, std::move(inputs), std::move(outputs));
  schema.backward_only = true;
  return schema;
}

}  // namespace fusionllm::opdag::ops
