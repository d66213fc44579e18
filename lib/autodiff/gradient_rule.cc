#include "lib/autodiff/gradient_rule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/autodiff/rules/families.h"
#include "lib/base/status_macros.h"

namespace fusionllm::autodiff {

using opdag::kNone;
using opdag::ValueId;

RuleContext::RuleContext(opdag::Graph& graph, opdag::OpId op, std::vector<ValueId> output_gradients, std::vector<bool> needs_input_gradient)
    : graph_(graph),
      id_(op),
      op_(graph.op(op)),
      output_gradients_(std::move(output_gradients)),
      needs_input_gradient_(std::move(needs_input_gradient)),
      input_gradients_(op_.inputs.size(), kNone),
      parameter_gradients_(op_.parameters.size(), kNone) {}

bool RuleContext::NeedsParameterGradients() const {
  return std::any_of(op_.parameters.begin(), op_.parameters.end(),
                     [this](opdag::ParameterId parameter) { return graph_.parameter(parameter).trainable; });
}

ValueId RuleContext::Emit(absl::string_view suffix, opdag::OpKind kind, std::vector<ValueId> inputs, opdag::Attributes attributes,
                          std::vector<opdag::ParameterId> parameters) {
  if (!status_.ok()) return kNone;
  opdag::Op op;
  op.name = suffix.empty() ? absl::StrCat(op_.name, ".grad") : absl::StrCat(op_.name, ".grad.", suffix);
  op.kind = kind;
  op.inputs = std::move(inputs);
  op.attributes = std::move(attributes);
  op.parameters = std::move(parameters);
  op.forward_op = id_;
  const absl::StatusOr<opdag::OpId> id = AppendTyped(graph_, std::move(op));
  status_ = id.status();
  return id.ok() ? graph_.op(*id).outputs[0] : kNone;
}

ValueId RuleContext::Output(ValueId first, int index) const {
  return first == kNone ? kNone : graph_.op(graph_.value(first).producer).outputs[index];
}

ValueId RuleContext::SumToInput(ValueId value, int input) {
  if (!status_.ok() || shape(value) == shape(op_.inputs[input])) return value;
  return Emit(absl::StrCat("sum_", input), opdag::OpKind::kSumTo, {value}, {{"shape", shape(op_.inputs[input]).dims()}});
}

void RuleContext::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

absl::StatusOr<opdag::OpId> AppendTyped(opdag::Graph& graph, opdag::Op op) {
  if (graph.FindOp(op.name) != kNone) {
    int copy = 2;
    while (graph.FindOp(absl::StrCat(op.name, "_", copy)) != kNone) ++copy;
    op.name = absl::StrCat(op.name, "_", copy);
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const opdag::OpId id, graph.AddOp(std::move(op)));
  FUSIONLLM_RETURN_IF_ERROR(opdag::InferOp(graph, id));
  return id;
}

const GradientRule* FindRule(opdag::OpKind kind) {
  static const auto* const all = [] {
    auto* list = new std::vector<GradientRule>();
    rules::AddAttention(*list);
    rules::AddConvolution(*list);
    rules::AddElementwise(*list);
    rules::AddEmbedding(*list);
    rules::AddLinear(*list);
    rules::AddLoss(*list);
    rules::AddMovement(*list);
    rules::AddNormalization(*list);
    rules::AddPooling(*list);
    rules::AddReduction(*list);
    rules::AddSoftmax(*list);
    return list;
  }();
  const auto found = std::find_if(all->begin(), all->end(), [kind](const GradientRule& rule) { return rule.kind == kind; });
  return found == all->end() ? nullptr : &*found;
}

}  // namespace fusionllm::autodiff
