// Ops that fill, rename or move elements without arithmetic.
#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {
namespace {

OpSchema Move(OpKind kind, std::vector<AttributeSchema> attributes) {
  OpSchema schema = MakeSchema(kind, OpRole::kNonParametric, OpClass::kDataMovement, {"x"}, {"y"});
  schema.attributes = std::move(attributes);
  return schema;
}

absl::StatusOr<Types> InferPlaceholder(const Graph& graph, const Op& op) {
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::DType dtype, tensor::ParseDType(op.attributes.Text("dtype")));
  FUSIONLLM_ASSIGN_OR_RETURN(Extents extents, ShapeAttribute(op.attributes, "shape", graph.batch()));
  return Types{{dtype, tensor::Shape(std::move(extents))}};
}

absl::StatusOr<Types> InferConstant(const Graph& graph, const Op& op) {
  FUSIONLLM_ASSIGN_OR_RETURN(Extents extents, ShapeAttribute(op.attributes, "shape", graph.batch()));
  return Types{F32(std::move(extents))};
}

absl::StatusOr<Types> InferReshape(const Graph& graph, const Op& op) {
  const TensorType& x = InputType(graph, op, 0);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x));
  FUSIONLLM_ASSIGN_OR_RETURN(Extents extents, ShapeAttribute(op.attributes, "shape", graph.batch(), true));
  const Extents asked = extents;
  int64_t* unknown = nullptr;
  for (int64_t& extent : extents) {
    if (extent == -1) {
      unknown = &extent;
      extent = 1;
    }
  }
  const std::optional<int64_t> known = CheckedElements(extents);
  if (known && unknown != nullptr && x.elements() % *known == 0) *unknown = x.elements() / *known;
  if (!known || CheckedElements(extents) != x.elements()) {
    return Refuse("x ", x.ToString(), " of ", x.elements(), " elements cannot take the shape ", tensor::Shape(asked).ToString());
  }
  return Types{F32(std::move(extents))};
}

absl::StatusOr<Types> InferFlatten(const Graph& graph, const Op& op) {
  const TensorType& x = InputType(graph, op, 0);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x, 1));
  const int64_t start = op.attributes.Int("start", 1);
  if (start < 0 || start > x.shape.rank()) return Refuse("attribute 'start' is ", start, " and x is ", x.ToString());
  Extents extents(x.shape.dims().begin(), x.shape.dims().begin() + start);
  int64_t rest = 1;
  for (int64_t i = start; i < x.shape.rank(); ++i) rest *= x.shape[static_cast<int>(i)];
  extents.push_back(rest);
  return Types{F32(std::move(extents))};
}

absl::StatusOr<Types> InferTranspose(const Graph& graph, const Op& op) {
  const TensorType& x = InputType(graph, op, 0);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x));
  const Extents permutation = op.attributes.Ints("permutation");
  std::vector<bool> seen(x.shape.rank(), false);
  bool fits = static_cast<int>(permutation.size()) == x.shape.rank();
  Extents extents;
  for (size_t i = 0; fits && i < permutation.size(); ++i) {
    const int64_t axis = permutation[i];
    fits = axis >= 0 && axis < x.shape.rank() && !seen[axis];
    if (!fits) break;
    seen[axis] = true;
    extents.push_back(x.shape[static_cast<int>(axis)]);
  }
  if (!fits) return Refuse("attribute 'permutation' is no permutation of the ", x.shape.rank(), " axes of x ", x.ToString());
  return Types{F32(std::move(extents))};
}

absl::StatusOr<Types> InferConcat(const Graph& graph, const Op& op) {
  const TensorType& first = InputType(graph, op, 0);
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(op.attributes, "axis", first.shape.rank()));
  Extents extents = first.shape.dims();
  extents[axis] = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const TensorType& x = InputType(graph, op, static_cast<int>(i));
    const std::string name = absl::StrCat("x", i);
    FUSIONLLM_RETURN_IF_ERROR(RequireF32(name, x));
    FUSIONLLM_RETURN_IF_ERROR(RequireRank(name, x, first.shape.rank()));
    for (int k = 0; k < x.shape.rank(); ++k) {
      if (k != axis && x.shape[k] != first.shape[k]) {
        return Refuse("inputs x0 ", first.ToString(), " and ", name, " ", x.ToString(), " differ beside axis ", axis);
      }
    }
    extents[axis] += x.shape[static_cast<int>(axis)];
  }
  return Types{F32(std::move(extents))};
}

absl::StatusOr<Types> InferSplit(const Graph& graph, const Op& op) {
  const TensorType& x = InputType(graph, op, 0);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x));
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(op.attributes, "axis", x.shape.rank()));
  Types types;
  int64_t rest = x.shape[static_cast<int>(axis)];
  for (const int64_t size : op.attributes.Ints("sizes")) {
    if (size < 1 || size > rest) return Refuse("attribute 'sizes' does not cut axis ", axis, " of x ", x.ToString(), " into its parts");
    rest -= size;
    Extents extents = x.shape.dims();
    extents[axis] = size;
    types.push_back(F32(std::move(extents)));
  }
  if (rest != 0) return Refuse("attribute 'sizes' leaves ", rest, " of axis ", axis, " of x ", x.ToString());
  return types;
}

absl::StatusOr<Types> InferSlice(const Graph& graph, const Op& op) {
  const TensorType& x = InputType(graph, op, 0);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x));
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(op.attributes, "axis", x.shape.rank()));
  const int64_t begin = op.attributes.Int("begin");
  const int64_t end = op.attributes.Int("end");
  if (begin < 0 || end <= begin || end > x.shape[static_cast<int>(axis)]) {
    return Refuse("the range [", begin, ", ", end, ") does not lie in axis ", axis, " of x ", x.ToString());
  }
  Extents extents = x.shape.dims();
  extents[axis] = end - begin;
  return Types{F32(std::move(extents))};
}

absl::StatusOr<Types> InferPadSlice(const Graph& graph, const Op& op) {
  const TensorType& dy = InputType(graph, op, 0);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("dy", dy));
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t axis, Axis(op.attributes, "axis", dy.shape.rank()));
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t extent, PositiveInt(op.attributes, "extent"));
  const int64_t begin = op.attributes.Int("begin");
  const int64_t size = dy.shape[static_cast<int>(axis)];
  if (begin < 0 || begin > extent - size) return Refuse("dy ", dy.ToString(), " from ", begin, " on does not lie in an extent of ", extent);
  Extents extents = dy.shape.dims();
  extents[axis] = extent;
  return Types{F32(std::move(extents))};
}

absl::StatusOr<Types> InferBroadcastTo(const Graph& graph, const Op& op) {
  const TensorType& x = InputType(graph, op, 0);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x));
  FUSIONLLM_ASSIGN_OR_RETURN(Extents extents, ShapeAttribute(op.attributes, "shape", graph.batch()));
  const tensor::Shape target(std::move(extents));
  const absl::StatusOr<tensor::Shape> broadcast = Broadcast(x.shape, target);
  if (!broadcast.ok() || !(*broadcast == target)) return Refuse("x ", x.ToString(), " does not broadcast to ", target.ToString());
  return Types{{tensor::DType::kF32, target}};
}

}  // namespace

void AddMovement(std::vector<OpSchema>& schemas) {
  OpSchema placeholder = MakeSchema(OpKind::kPlaceholder, OpRole::kPlaceholder, OpClass::kFree, {}, {"y"});
  placeholder.attributes = {{"role", AttributeKind::kText, true},
                            {"dtype", AttributeKind::kText, true},
                            {"shape", AttributeKind::kInts, true},
                            {"of", AttributeKind::kText}};
  placeholder.infer = InferPlaceholder;
  schemas.push_back(std::move(placeholder));

  OpSchema constant = MakeSchema(OpKind::kConstant, OpRole::kNonParametric, OpClass::kFree, {}, {"y"});
  constant.attributes = {{"value", AttributeKind::kNumber, true}, {"shape", AttributeKind::kInts, true}};
  constant.infer = InferConstant;
  schemas.push_back(std::move(constant));

  const auto add = [&schemas](OpSchema schema, absl::StatusOr<Types> (*infer)(const Graph&, const Op&)) {
    schema.infer = infer;
    schemas.push_back(std::move(schema));
  };
  add(Move(OpKind::kReshape, {{"shape", AttributeKind::kInts, true}}), InferReshape);
  add(Move(OpKind::kFlatten, {{"start", AttributeKind::kInt}}), InferFlatten);
  add(Move(OpKind::kTranspose, {{"permutation", AttributeKind::kInts, true}}), InferTranspose);
  add(Move(OpKind::kSlice, {{"axis", AttributeKind::kInt, true}, {"begin", AttributeKind::kInt, true}, {"end", AttributeKind::kInt, true}}),
      InferSlice);
  add(Move(OpKind::kBroadcastTo, {{"shape", AttributeKind::kInts, true}}), InferBroadcastTo);

  OpSchema concat = Move(OpKind::kConcat, {{"axis", AttributeKind::kInt, true}});
  concat.variadic_inputs = true;
  add(std::move(concat), InferConcat);

  OpSchema split = Move(OpKind::kSplit, {{"axis", AttributeKind::kInt, true}, {"sizes", AttributeKind::kInts, true}});
  split.outputs = {"y0"};
  split.output_count = [](const Attributes& attributes) {
    return static_cast<int>(std::min<size_t>(attributes.Ints("sizes").size(), 1 << 20));
  };
  add(std::move(split), InferSplit);

  OpSchema pad = MakeBackward(OpKind::kPadSlice, OpClass::kDataMovement, {"dy"}, {"dx"});
  pad.attributes = {{"axis", AttributeKind::kInt, true}, {"begin", AttributeKind::kInt, true}, {"extent", AttributeKind::kInt, true}};
  add(std::move(pad), InferPadSlice);
}

}  // namespace fusionllm::opdag::ops
