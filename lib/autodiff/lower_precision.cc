#include "lib/autodiff/lower_precision.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/autodiff/gradient_rule.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::autodiff {
namespace {

using opdag::Graph;
using opdag::kNone;
using opdag::Op;
using opdag::OpId;
using opdag::Value;
using opdag::ValueId;
using tensor::DType;

bool IsData(const Op& op) { return op.kind == opdag::OpKind::kPlaceholder || op.kind == opdag::OpKind::kConstant; }

bool IsLoss(const Op& op) {
  const opdag::OpSchema* schema = opdag::FindSchema(op.kind);
  return schema != nullptr && schema->role == opdag::OpRole::kLoss;
}

// By forward op: it is a loss, or reads what comes from one.
std::vector<bool> AtOrAfterALoss(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  std::vector<bool> after(training.forward_ops, false);
  for (OpId id = 0; id < training.forward_ops; ++id) {
    const Op& op = graph.op(id);
    after[id] = IsLoss(op) || std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId v) { return after[graph.value(v).producer]; });
  }
  return after;
}

// Whether a gradient may flow through this output of a forward op.
bool CarriesGradients(const Op& op, ValueId output) {
  if (op.outputs[0] == output) return true;
  const GradientRule* rule = FindRule(op.kind);
  return rule != nullptr && rule->every_output;
}

bool IsActivation(const TrainingGraph& training, const std::vector<bool>& after_loss, ValueId id) {
  const Value& value = training.graph.value(id);
  const Op& op = training.graph.op(value.producer);
  const bool read = std::any_of(value.consumers.begin(), value.consumers.end(), [&](OpId reader) { return reader < training.forward_ops; });
  return value.type.dtype == DType::kF32 && value.type.shape.rank() > 0 && read && !IsData(op) && !after_loss[value.producer] &&
         CarriesGradients(op, id);
}

absl::Status ValueError(const Value& value, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("value '", value.name, "' is ", value.type.ToString(), ": ", reason));
}

}  // namespace

absl::Status LowerPrecision(TrainingGraph& training) {
  Graph& graph = training.graph;
  const std::vector<bool> after_loss = AtOrAfterALoss(training);
  for (ValueId id = 0; id < static_cast<ValueId>(graph.values().size()); ++id) {
    // Forward values come before those that are gradients of them.
    const ValueId of = training.differentiates[id];
    const bool lower = graph.value(id).producer < training.forward_ops ? IsActivation(training, after_loss, id)
                                                                       : of != kNone && graph.value(of).type.dtype == DType::kBF16;
    if (lower) graph.mutable_value(id).type.dtype = DType::kBF16;
  }
  return CheckPrecision(training);
}

absl::Status CheckPrecision(const TrainingGraph& training) {
  const Graph& graph = training.graph;
  FUSIONLLM_RETURN_IF_ERROR(opdag::Verify(graph));  // the loss is an f32 scalar
  for (const opdag::Parameter& parameter : graph.parameters()) {
    if (!tensor::IsFloating(parameter.type.dtype) || parameter.type.dtype == DType::kF32) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name, "' is ", parameter.type.ToString(), " and is to be kept in f32"));
  }
  for (const ParameterUse& use : training.uses) {
    if (graph.value(use.gradient).type == graph.parameter(use.parameter).type) continue;
    return ValueError(graph.value(use.gradient), absl::StrCat("as the gradient of parameter '", graph.parameter(use.parameter).name,
                                                              "' it must be ", graph.parameter(use.parameter).type.ToString()));
  }
  for (ValueId id = 0; id < static_cast<ValueId>(graph.values().size()); ++id) {
    const Value& value = graph.value(id);
    if (tensor::IsFloating(value.type.dtype) && value.type.dtype != DType::kF32 && value.type.dtype != DType::kBF16) {
      return ValueError(value, "values are f32 or bf16");
    }
    const ValueId of = training.differentiates[id];
    if (of != kNone && value.type != graph.value(of).type) {
      return ValueError(value, absl::StrCat("as a gradient of '", graph.value(of).name, "' it must be ", graph.value(of).type.ToString()));
    }
    if (IsData(graph.op(value.producer)) && value.type.dtype == DType::kBF16) return ValueError(value, "data stay as they are given");
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::autodiff
