#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "lib/autodiff/gradient_rule.h"
#include "lib/autodiff/training_graph.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/op_schema.h"
#include "lib/opdag/target_weights.h"

namespace fusionllm::autodiff {
namespace {

using opdag::Graph;
using opdag::kNone;
using opdag::Op;
using opdag::OpId;
using opdag::ValueId;

// Of cross_entropy.
constexpr int kCorrectOutput = 1, kCountedOutput = 3;

class Differentiator {
 public:
  explicit Differentiator(const Graph& forward) {
    training_.graph = forward;
    training_.forward_ops = static_cast<int>(forward.ops().size());
    training_.target_ops = opdag::TargetOps(forward);
  }

  absl::StatusOr<TrainingGraph> Run() {
    FUSIONLLM_RETURN_IF_ERROR(CheckForward());
    FindNeeds();
    FUSIONLLM_RETURN_IF_ERROR(Seed());
    for (OpId op = training_.forward_ops - 1; op >= 0; --op) FUSIONLLM_RETURN_IF_ERROR(Visit(op));
    Grow();
    FUSIONLLM_RETURN_IF_ERROR(CheckReached());
    SortUses();
    return std::move(training_);
  }

 private:
  Graph& graph() { return training_.graph; }

  absl::Status CheckForward() {
    if (graph().batch() == 0) return absl::InvalidArgumentError("the graph is not typed: call InferTypes first");
    if (graph().loss() == kNone)
      return absl::InvalidArgumentError(absl::StrCat("graph '", graph().name(), "' has no loss to differentiate"));
    for (const Op& op : graph().ops()) {
      const opdag::OpSchema* schema = opdag::FindSchema(op.kind);
      if (schema == nullptr || schema->backward_only) {
        return absl::InvalidArgumentError(absl::StrCat("op '", op.name, "' (", opdag::Name(op.kind), "): not an op of a forward graph"));
      }
    }
    return opdag::Verify(graph());
  }

  // A value needs a gradient when a trainable parameter lies on some way to it.
  void FindNeeds() {
    needs_.assign(graph().values().size(), false);
    for (const Op& op : graph().ops()) {
      bool needs = false;
      for (const opdag::ParameterId parameter : op.parameters) needs = needs || graph().parameter(parameter).trainable;
      for (const ValueId input : op.inputs) needs = needs || needs_[input];
      for (const ValueId output : op.outputs) needs_[output] = needs && tensor::IsFloating(graph().value(output).type.dtype);
      if (op.kind == opdag::OpKind::kCrossEntropy) needs_[op.outputs[kCountedOutput]] = false;  // labels alone decide it
    }
  }

  absl::Status Seed() {
    Op seed;
    seed.name = absl::StrCat(graph().value(graph().loss()).name, ".grad.seed");
    seed.kind = opdag::OpKind::kPlaceholder;
    seed.attributes = {{"role", std::string("loss_gradient")}, {"dtype", std::string("f32")}, {"shape", std::vector<int64_t>{}}};
    seed.forward_op = graph().value(graph().loss()).producer;
    FUSIONLLM_ASSIGN_OR_RETURN(const OpId id, AppendTyped(graph(), std::move(seed)));
    training_.loss_gradient = graph().op(id).outputs[0];
    Grow();
    training_.differentiates[training_.loss_gradient] = graph().loss();
    ValueId gradient = training_.loss_gradient;
    const Op& loss = graph().op(graph().value(graph().loss()).producer);
    if (loss.kind == opdag::OpKind::kCrossEntropy && loss.outputs[0] == graph().loss()) {
      training_.counted = loss.outputs[kCountedOutput];
      FUSIONLLM_ASSIGN_OR_RETURN(gradient, Append(absl::StrCat(graph().value(graph().loss()).name, ".grad.weighted"), opdag::OpKind::kMul,
                                                  {training_.loss_gradient, training_.counted}, {}, graph().op(id).forward_op));
      training_.differentiates[gradient] = graph().loss();
    }
    training_.gradient_of[graph().loss()] = gradient;
    return absl::OkStatus();
  }

  // The tables by value id follow the values that rules append.
  void Grow() {
    training_.gradient_of.resize(graph().values().size(), kNone);
    training_.differentiates.resize(graph().values().size(), kNone);
  }

  absl::Status Visit(OpId id) {
    const Op op = graph().op(id);  // a copy: appending ops moves the table
    std::vector<ValueId> output_gradients;
    for (const ValueId output : op.outputs) output_gradients.push_back(training_.gradient_of[output]);
    if (std::all_of(output_gradients.begin(), output_gradients.end(), [](ValueId gradient) { return gradient == kNone; })) {
      return absl::OkStatus();
    }
    std::vector<bool> wanted;
    for (const ValueId input : op.inputs) wanted.push_back(needs_[input]);
    const GradientRule* rule = FindRule(op.kind);
    // Only the loss itself can get a gradient that nothing below it needs.
    if (!needs_[op.outputs[0]]) return absl::OkStatus();
    if (rule == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("op '", op.name, "' (", opdag::Name(op.kind), "): a gradient reaches it and it has no rule"));
    for (size_t i = 1; i < output_gradients.size() && !rule->every_output; ++i) {
      if (output_gradients[i] == kNone) continue;
      return absl::InvalidArgumentError(absl::StrCat("op '", op.name, "' (", opdag::Name(op.kind), "): the loss depends on its output '",
                                                     graph().value(op.outputs[i]).name, "', which has no gradient rule"));
    }

    RuleContext context(graph(), id, std::move(output_gradients), std::move(wanted));
    rule->apply(context);
    FUSIONLLM_RETURN_IF_ERROR(context.status());
    Grow();
    for (int slot = 0; slot < static_cast<int>(op.parameters.size()); ++slot) {
      const ValueId gradient = context.parameter_gradients()[slot];
      if (gradient == kNone || !graph().parameter(op.parameters[slot]).trainable) continue;
      training_.uses.push_back({op.parameters[slot], id, slot, gradient});
    }
    for (int input = static_cast<int>(op.inputs.size()) - 1; input >= 0; --input) {
      const ValueId term = context.input_gradients()[input];
      if (term != kNone && needs_[op.inputs[input]]) FUSIONLLM_RETURN_IF_ERROR(Accumulate(op.inputs[input], term, id, input));
    }
    return absl::OkStatus();
  }

  // Folds one consumer's term into the gradient of `value`.
  absl::Status Accumulate(ValueId value, ValueId term, OpId consumer, int input) {
    if (training_.differentiates[term] != kNone) {
      // The rule passed on a gradient that belongs to another value: give this one its own.
      FUSIONLLM_ASSIGN_OR_RETURN(term, Append(absl::StrCat(graph().op(consumer).name, ".grad.pass_", input), opdag::OpKind::kReshape,
                                              {term}, {{"shape", graph().value(value).type.shape.dims()}}, consumer));
    }
    training_.differentiates[term] = value;
    ValueId sum = term;
    if (const ValueId partial = training_.gradient_of[value]; partial != kNone) {
      FUSIONLLM_ASSIGN_OR_RETURN(
          sum, Append(absl::StrCat(graph().value(value).name, ".grad.sum"), opdag::OpKind::kAdd, {partial, term}, {}, consumer));
      training_.differentiates[sum] = value;
    }
    training_.gradient_of[value] = sum;
    return absl::OkStatus();
  }

  absl::StatusOr<ValueId> Append(std::string name, opdag::OpKind kind, std::vector<ValueId> inputs, opdag::Attributes attributes,
                                 OpId forward_op) {
    Op op;
    op.name = std::move(name);
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.attributes = std::move(attributes);
    op.forward_op = forward_op;
    FUSIONLLM_ASSIGN_OR_RETURN(const OpId id, AppendTyped(graph(), std::move(op)));
    Grow();
    return graph().op(id).outputs[0];
  }

  absl::Status CheckReached() {
    std::vector<bool> reached(graph().parameters().size(), false);
    for (const ParameterUse& use : training_.uses) reached[use.parameter] = true;
    for (size_t i = 0; i < reached.size(); ++i) {
      const opdag::Parameter& parameter = graph().parameters()[i];
      if (!parameter.trainable || reached[i]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", parameter.name, "' is trainable and the loss does not depend on it; freeze it or drop its op"));
    }
    return absl::OkStatus();
  }

  void SortUses() {
    std::sort(training_.uses.begin(), training_.uses.end(), [this](const ParameterUse& a, const ParameterUse& b) {
      return std::tie(graph().parameter(a.parameter).name, a.op, a.slot) < std::tie(graph().parameter(b.parameter).name, b.op, b.slot);
    });
  }

  TrainingGraph training_;
  std::vector<bool> needs_;  // by forward value
};

}  // namespace

std::vector<ValueId> TargetStatistics(const TrainingGraph& training) {
  std::vector<ValueId> figures;
  for (const OpId op : training.target_ops) figures.push_back(training.graph.op(op).outputs[kCountedOutput]);
  if (figures.size() == 1) figures.push_back(training.graph.op(training.target_ops[0]).outputs[kCorrectOutput]);
  return figures;
}

absl::StatusOr<TrainingGraph> Differentiate(const Graph& forward) { return Differentiator(forward).Run(); }

}  // namespace fusionllm::autodiff
