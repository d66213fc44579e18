#include "lib/opdag/graph_builder.h"

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/initializers.h"
#include "lib/opdag/op_schema.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag {

GraphBuilder::GraphBuilder(absl::string_view graph_name, int64_t probe_batch) : graph_(std::string(graph_name)) {
  graph_.set_batch(probe_batch);
}

absl::StatusOr<std::vector<ParameterId>> GraphBuilder::MakeParameters(const Op& op, const std::vector<ParameterOverride>& choices) {
  const OpSchema* schema = FindSchema(op.kind);
  if (schema == nullptr) return absl::InvalidArgumentError("no op type has this name");
  FUSIONLLM_RETURN_IF_ERROR(CheckSignature(*schema, op.attributes, op.inputs.size()));
  std::vector<tensor::TensorType> inputs;
  for (const ValueId input : op.inputs) {
    if (input < 0 || input >= static_cast<ValueId>(graph_.values().size())) {
      return absl::InvalidArgumentError(absl::StrCat("input ", input, " is not a value"));
    }
    inputs.push_back(graph_.value(input).type);
  }
  const size_t count = schema->parameter_count(op.attributes);
  if (!choices.empty() && choices.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("names ", choices.size(), " parameters and has ", count));
  }
  if (count == 0) return std::vector<ParameterId>();
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<tensor::TensorType> types, schema->parameter_types(op.attributes, inputs));
  std::vector<ParameterId> ids;
  for (size_t slot = 0; slot < count; ++slot) {
    FUSIONLLM_RETURN_IF_ERROR(ops::CheckLimits(types[slot]));
    const ParameterInit start = DefaultInit(*schema, op.attributes, types, slot);
    Parameter parameter{absl::StrCat(op.name, ".", schema->parameters[slot]), types[slot], start.initializer, start.trainable};
    if (!choices.empty()) {
      if (!choices[slot].name.empty()) parameter.name = choices[slot].name;
      parameter.initializer = choices[slot].initializer.value_or(start.initializer);
      parameter.trainable = choices[slot].trainable.value_or(start.trainable);
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const ParameterId id, graph_.AddParameter(std::move(parameter)));
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<ValueId> GraphBuilder::TryAdd(Op op, const std::vector<ParameterOverride>& choices) {
  absl::StatusOr<std::vector<ParameterId>> parameters = MakeParameters(op, choices);
  if (!parameters.ok()) {
    return absl::Status(parameters.status().code(),
                        absl::StrCat("op '", op.name, "' (", opdag::Name(op.kind), "): ", parameters.status().message()));
  }
  op.parameters = *std::move(parameters);
  FUSIONLLM_ASSIGN_OR_RETURN(const OpId id, graph_.AddOp(std::move(op)));
  FUSIONLLM_RETURN_IF_ERROR(InferOp(graph_, id));
  return graph_.op(id).outputs[0];
}

ValueId GraphBuilder::Add(absl::string_view name, absl::string_view type, std::vector<ValueId> inputs, Attributes attributes,
                          const std::vector<ParameterOverride>& parameters) {
  if (!status_.ok()) return kNone;
  Op op;
  op.name = std::string(name);
  op.kind = OpKindOf(type);
  if (op.kind == OpKind::kNone) {
    status_ = absl::InvalidArgumentError(absl::StrCat("op '", name, "' (", type, "): no op type has this name"));
    return kNone;
  }
  op.inputs = std::move(inputs);
  op.attributes = std::move(attributes);
  const absl::StatusOr<ValueId> value = TryAdd(std::move(op), parameters);
  status_ = value.status();
  return value.ok() ? *value : kNone;
}

ValueId GraphBuilder::Output(ValueId first, int index) const {
  if (first == kNone) return kNone;
  return graph_.op(graph_.value(first).producer).outputs[index];
}

ValueId GraphBuilder::Placeholder(absl::string_view name, absl::string_view role, absl::string_view dtype, std::vector<int64_t> shape) {
  return Add(name, "placeholder", {}, {{"role", std::string(role)}, {"dtype", std::string(dtype)}, {"shape", std::move(shape)}});
}

absl::StatusOr<Graph> GraphBuilder::Finish(ValueId loss) {
  FUSIONLLM_RETURN_IF_ERROR(status_);
  graph_.set_loss(loss);
  FUSIONLLM_RETURN_IF_ERROR(Verify(graph_));
  graph_.set_batch(0);
  for (ValueId id = 0; id < static_cast<ValueId>(graph_.values().size()); ++id) graph_.mutable_value(id).type = {};
  return std::exchange(graph_, Graph());
}

}  // namespace fusionllm::opdag
