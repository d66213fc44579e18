#include "lib/opdag/target_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::opdag {
namespace {

// Outputs of a cross_entropy.
constexpr int kLoss = 0, kCounted = 3;

bool IsOneOf(OpKind kind, std::initializer_list<OpKind> kinds) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); }

bool IsCrossEntropy(const Op& op) { return op.kind == OpKind::kCrossEntropy; }

bool IsWeight(const Op& op) { return op.kind == OpKind::kPlaceholder && op.attributes.Text("role") == kTargetWeightRole; }

absl::Status OpError(const Op& op, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("op '", op.name, "' (", opdag::Name(op.kind), "): ", reason));
}

// By op: whether the loss depends on it.
std::vector<bool> ReachingTheLoss(const Graph& graph) {
  std::vector<bool> reaching(graph.ops().size(), false);
  if (graph.loss() == kNone) return reaching;
  reaching[graph.value(graph.loss()).producer] = true;
  for (OpId id = static_cast<OpId>(graph.ops().size()) - 1; id >= 0; --id) {
    if (!reaching[id]) continue;
    for (const ValueId input : graph.op(id).inputs) reaching[graph.value(input).producer] = true;
  }
  return reaching;
}

// The other input of a `mul` of two different values.
ValueId OtherFactor(const Op& op, ValueId factor) {
  if (op.kind != OpKind::kMul || op.inputs[0] == op.inputs[1]) return kNone;
  return op.inputs[0] == factor ? op.inputs[1] : op.inputs[1] == factor ? op.inputs[0] : kNone;
}

// The weight of a cross_entropy that has been given one, and whose loss nothing else reads; else kNone.
OpId FootprintOf(const Graph& graph, const Op& op) {
  const Value &loss = graph.value(op.outputs[kLoss]), &counted = graph.value(op.outputs[kCounted]);
  if (loss.consumers.size() != 1 || counted.consumers != loss.consumers) return kNone;
  const Op& product = graph.op(loss.consumers[0]);
  if (OtherFactor(product, op.outputs[kLoss]) != op.outputs[kCounted]) return kNone;
  const Value& sum = graph.value(product.outputs[0]);
  if (sum.consumers.size() != 1) return kNone;
  const ValueId weight = OtherFactor(graph.op(sum.consumers[0]), product.outputs[0]);
  if (weight == kNone) return kNone;
  const OpId producer = graph.value(weight).producer;
  return IsWeight(graph.op(producer)) && graph.op(producer).attributes.Text("of") == op.name ? producer : kNone;
}

// What the loss makes of losses of cross_entropy ops.
class LinearityCheck {
 public:
  LinearityCheck(const Graph& graph, const std::vector<bool>& reaching)
      : graph_(graph), reaching_(reaching), of_targets_(graph.values().size(), kNone), varies_(graph.values().size(), false) {}

  absl::Status Run() {
    for (OpId id = 0; id < static_cast<OpId>(graph_.ops().size()); ++id) {
      if (reaching_[id]) FUSIONLLM_RETURN_IF_ERROR(Visit(graph_.op(id)));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Visit(const Op& op) {
    // A placeholder has other samples in each micro-batch, dropout another mask, and batch norm other statistics.
    bool varies = IsOneOf(op.kind, {OpKind::kPlaceholder, OpKind::kDropout, OpKind::kBatchNorm});
    OpId of = kNone;  // a cross_entropy
    for (const ValueId input : op.inputs) {
      varies = varies || varies_[input];
      if (of == kNone) of = of_targets_[input];
    }
    if (of != kNone && !IsLinear(op)) return Refusal(op, graph_.op(of));
    for (const ValueId output : op.outputs) {
      varies_[output] = varies;
      of_targets_[output] = of;
    }
    if (!IsCrossEntropy(op)) return absl::OkStatus();
    if (LabelsOf(graph_, op) == kNone) {
      return OpError(op, absl::StrCat("other ops make the loss of it, and its labels '", graph_.value(op.inputs[1]).name,
                                      "' are no placeholder, so that it is not known before a step how many of them count; read a "
                                      "placeholder, or let its loss be that of the graph"));
    }
    of_targets_[op.outputs[kLoss]] = graph_.value(op.outputs[kLoss]).producer;
    if (FootprintOf(graph_, op) != kNone) return absl::OkStatus();
    for (const OpId reader : graph_.value(op.outputs[kCounted]).consumers) {
      if (reaching_[reader]) {
        return OpError(graph_.op(reader), absl::StrCat("the loss depends on how many labels of '", op.name,
                                                       "' count, which weighs each of them the same as it is; read its loss alone"));
      }
    }
    return absl::OkStatus();
  }

  // In those of its inputs that come of targets.
  bool IsLinear(const Op& op) const {
    if (IsOneOf(op.kind, {OpKind::kScale, OpKind::kAdd, OpKind::kSub, OpKind::kNeg, OpKind::kReshape, OpKind::kFlatten, OpKind::kTranspose,
                          OpKind::kBroadcastTo, OpKind::kConcat, OpKind::kSplit, OpKind::kSlice})) {
      return true;
    }
    if (op.kind == OpKind::kReduce) return op.attributes.Text("kind") != "max";
    if (op.kind == OpKind::kDiv) return of_targets_[op.inputs[1]] == kNone && !varies_[op.inputs[1]];
    if (op.kind != OpKind::kMul) return false;
    const int factor = of_targets_[op.inputs[0]] == kNone ? 0 : 1;
    return (of_targets_[op.inputs[factor]] == kNone && !varies_[op.inputs[factor]]) || IsWeighing(op);
  }

  // Either product of what AddTargetWeights makes.
  bool IsWeighing(const Op& op) const {
    const auto weighed = [&](const Op& by) {
      const OpId weight = IsCrossEntropy(by) ? FootprintOf(graph_, by) : kNone;
      return weight != kNone && (op.inputs[0] == by.outputs[kLoss] || op.inputs[1] == by.outputs[kLoss] ||
                                 op.inputs[0] == graph_.op(weight).outputs[0] || op.inputs[1] == graph_.op(weight).outputs[0]);
    };
    return std::any_of(op.inputs.begin(), op.inputs.end(),
                       [&](ValueId input) { return of_targets_[input] != kNone && weighed(graph_.op(of_targets_[input])); });
  }

  static absl::Status Refusal(const Op& op, const Op& cross_entropy) {
    return OpError(op,
                   absl::StrCat("the loss depends on what it makes of the cross_entropy '", cross_entropy.name,
                                "', which is not the same however a batch is cut into micro-batches; what follows a cross_entropy may "
                                "add, subtract, and multiply by what is the same for all samples (add, sub, scale, neg, mul, div, reduce "
                                "of kind sum or mean); leave '",
                                op.name, "' out, or apply it to what the cross_entropy reads"));
  }

  const Graph& graph_;
  const std::vector<bool>& reaching_;
  std::vector<OpId> of_targets_;  // by value: a cross_entropy whose loss it is made of
  std::vector<bool> varies_;      // by value: whether it is another one in each micro-batch
};

class Weigher {
 public:
  explicit Weigher(const Graph& graph) : from_(graph), to_(graph.name()), value_(graph.values().size(), kNone) {}

  absl::StatusOr<Graph> Run(const std::vector<OpId>& targets) {
    for (const Parameter& parameter : from_.parameters()) FUSIONLLM_RETURN_IF_ERROR(to_.AddParameter(parameter).status());
    std::vector<ValueId> weight_of(from_.ops().size(), kNone);
    for (OpId id = 0; id < static_cast<OpId>(from_.ops().size()); ++id) {
      FUSIONLLM_RETURN_IF_ERROR(Copy(from_.op(id)));
      for (const OpId target : targets) {
        // Beside the labels, so that both are where the data are.
        if (LabelsOf(from_, from_.op(target)) != id) continue;
        FUSIONLLM_ASSIGN_OR_RETURN(weight_of[target], AddWeight(from_.op(target)));
      }
      if (weight_of[id] != kNone) FUSIONLLM_RETURN_IF_ERROR(Weigh(from_.op(id), weight_of[id]));
    }
    to_.set_loss(value_[from_.loss()]);
    return std::move(to_);
  }

 private:
  absl::Status Copy(Op op) {
    const std::vector<ValueId> outputs = op.outputs;
    for (ValueId& input : op.inputs) input = value_[input];
    FUSIONLLM_ASSIGN_OR_RETURN(const OpId id, to_.AddOp(std::move(op)));
    for (size_t i = 0; i < outputs.size(); ++i) value_[outputs[i]] = to_.op(id).outputs[i];
    return absl::OkStatus();
  }

  absl::StatusOr<ValueId> Add(std::string name, OpKind kind, std::vector<ValueId> inputs, Attributes attributes = {}) {
    while (from_.FindOp(name) != kNone) name += "_";
    Op op{.name = std::move(name), .kind = kind, .attributes = std::move(attributes), .inputs = std::move(inputs)};
    FUSIONLLM_ASSIGN_OR_RETURN(const OpId id, to_.AddOp(std::move(op)));
    return to_.op(id).outputs[0];
  }

  absl::StatusOr<ValueId> AddWeight(const Op& target) {
    return Add(
        absl::StrCat(target.name, ".target_weight"), OpKind::kPlaceholder, {},
        {{"role", std::string(kTargetWeightRole)}, {"dtype", std::string("f32")}, {"shape", std::vector<int64_t>{}}, {"of", target.name}});
  }

  // What reads the loss of the op reads it weighed.
  absl::Status Weigh(const Op& target, ValueId weight) {
    FUSIONLLM_ASSIGN_OR_RETURN(const ValueId sum, Add(absl::StrCat(target.name, ".counted_loss"), OpKind::kMul,
                                                      {value_[target.outputs[kLoss]], value_[target.outputs[kCounted]]}));
    FUSIONLLM_ASSIGN_OR_RETURN(value_[target.outputs[kLoss]], Add(absl::StrCat(target.name, ".weighed_loss"), OpKind::kMul, {sum, weight}));
    return absl::OkStatus();
  }

  const Graph& from_;
  Graph to_;
  std::vector<ValueId> value_;  // by value of the first graph: what stands for it
};

}  // namespace

std::vector<OpId> TargetOps(const Graph& graph) {
  const std::vector<bool> reaching = ReachingTheLoss(graph);
  std::vector<OpId> ops;
  for (OpId id = 0; id < static_cast<OpId>(graph.ops().size()); ++id) {
    if (reaching[id] && IsCrossEntropy(graph.op(id))) ops.push_back(id);
  }
  return ops;
}

OpId LabelsOf(const Graph& graph, const Op& cross_entropy) {
  OpId id = graph.value(cross_entropy.inputs[1]).producer;
  while (IsOneOf(graph.op(id).kind, {OpKind::kReshape, OpKind::kFlatten})) id = graph.value(graph.op(id).inputs[0]).producer;
  return graph.op(id).kind == OpKind::kPlaceholder ? id : kNone;
}

absl::StatusOr<Graph> AddTargetWeights(const Graph& graph) {
  std::vector<OpId> targets = TargetOps(graph);
  const bool is_the_loss = targets.size() == 1 && graph.op(targets[0]).outputs[kLoss] == graph.loss();
  if (!targets.empty() && !is_the_loss) FUSIONLLM_RETURN_IF_ERROR(LinearityCheck(graph, ReachingTheLoss(graph)).Run());
  std::vector<OpId> weights;
  std::erase_if(targets, [&](OpId target) {
    const OpId weight = FootprintOf(graph, graph.op(target));
    if (weight != kNone) weights.push_back(weight);
    return weight != kNone;
  });
  for (OpId id = 0; id < static_cast<OpId>(graph.ops().size()); ++id) {
    if (!IsWeight(graph.op(id)) || std::find(weights.begin(), weights.end(), id) != weights.end()) continue;
    return OpError(graph.op(id), "its role is for the product of a cross_entropy's loss and counted, which it is to weigh; leave it out");
  }
  return targets.empty() || is_the_loss ? graph : Weigher(graph).Run(targets);
}

}  // namespace fusionllm::opdag
