// Reductions over axes, and sums over what broadcasting repeated.
#include <algorithm>

#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {
namespace {

const std::vector<AttributeSchema> kAxes = {{"axes", AttributeKind::kInts, true}, {"keep_dims", AttributeKind::kBool}};

absl::StatusOr<TensorType> Reduced(const Attributes& attributes, const TensorType& x) {
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x, 1));
  const Extents axes = attributes.Ints("axes");
  if (axes.empty() || axes.size() > kMaxRank) return Refuse("attribute 'axes' must name 1 to ", kMaxRank, " axes");
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= x.shape.rank()) return Refuse("attribute 'axes' names ", axes[i], " and x is ", x.ToString());
    if (i > 0 && axes[i] <= axes[i - 1]) return Refuse("attribute 'axes' must ascend without repeats");
  }
  const bool keep_dims = attributes.Bool("keep_dims");
  Extents extents;
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    const bool gone = std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (!gone) extents.push_back(x.shape[axis]);
    if (gone && keep_dims) extents.push_back(1);
  }
  return F32(std::move(extents));
}

}  // namespace

void AddReduction(std::vector<OpSchema>& schemas) {
  OpSchema reduce = MakeSchema(OpKind::kReduce, OpRole::kNonParametric, OpClass::kReduction, {"x"}, {"y"});
  reduce.attributes = kAxes;
  reduce.attributes.push_back({"kind", AttributeKind::kText, true});
  reduce.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    const std::string kind = op.attributes.Text("kind");
    if (kind != "sum" && kind != "mean" && kind != "max") return Refuse("attribute 'kind' is \"", kind, "\"; \"sum\", \"mean\" or \"max\"");
    FUSIONLLM_ASSIGN_OR_RETURN(TensorType y, Reduced(op.attributes, InputType(graph, op, 0)));
    return Types{std::move(y)};
  };
  reduce.flops = [](const Graph& graph, const Op& op) { return InputElements(graph, op); };
  schemas.push_back(std::move(reduce));

  OpSchema max_grad = MakeBackward(OpKind::kReduceMaxGrad, OpClass::kReduction, {"x", "y", "dy"}, {"dx"});
  max_grad.attributes = kAxes;
  max_grad.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const TensorType y, Reduced(op.attributes, InputType(graph, op, 0)));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("y", InputType(graph, op, 1), y));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("dy", InputType(graph, op, 2), y));
    return Types{InputType(graph, op, 0)};
  };
  max_grad.flops = [](const Graph& graph, const Op& op) { return 3 * InputElements(graph, op); };
  schemas.push_back(std::move(max_grad));

  OpSchema sum_to = MakeBackward(OpKind::kSumTo, OpClass::kReduction, {"dy"}, {"dx"});
  sum_to.attributes = {{"shape", AttributeKind::kInts, true}};
  sum_to.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    const TensorType& dy = InputType(graph, op, 0);
    FUSIONLLM_RETURN_IF_ERROR(RequireF32("dy", dy));
    FUSIONLLM_ASSIGN_OR_RETURN(Extents extents, ShapeAttribute(op.attributes, "shape", graph.batch()));
    TensorType dx = F32(std::move(extents));
    const absl::StatusOr<tensor::Shape> broadcast = Broadcast(dx.shape, dy.shape);
    if (!broadcast.ok() || !(*broadcast == dy.shape)) return Refuse("dy ", dy.ToString(), " is no broadcast of ", dx.ToString());
    return Types{std::move(dx)};
  };
  sum_to.flops = [](const Graph& graph, const Op& op) { return InputElements(graph, op); };
  schemas.push_back(std::move(sum_to));
}

}  // namespace fusionllm::opdag::ops
