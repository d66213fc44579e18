#include "lib/opdag/graph.h"

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::opdag {
namespace {

absl::Status OpError(const Op& op, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("op '", op.name, "' (", opdag::Name(op.kind), "): ", reason));
}

}  // namespace

absl::StatusOr<ParameterId> Graph::AddParameter(Parameter parameter) {
  if (parameter.name.empty()) return absl::InvalidArgumentError("a parameter has an empty name");
  const auto found = parameter_by_name_.find(parameter.name);
  if (found != parameter_by_name_.end()) {
    const Parameter& first = parameters_[found->second];
    if (first.type == parameter.type) return found->second;
    return absl::InvalidArgumentError(absl::StrCat("parameter '", parameter.name, "' is ", first.type.ToString(),
                                                   " and cannot be shared by a use that needs ", parameter.type.ToString()));
  }
  const auto id = static_cast<ParameterId>(parameters_.size());
  parameter_by_name_[parameter.name] = id;
  parameters_.push_back(std::move(parameter));
  return id;
}

absl::StatusOr<OpId> Graph::AddOp(Op op) {
  if (op.name.empty()) return absl::InvalidArgumentError(absl::StrCat("an op of type '", opdag::Name(op.kind), "' has an empty name"));
  if (ops_.size() >= kMaxOps) return OpError(op, absl::StrCat("a graph holds at most ", kMaxOps, " ops"));
  const OpSchema* schema = FindSchema(op.kind);
  if (schema == nullptr) return OpError(op, "it has no op type");
  if (op_by_name_.contains(op.name)) return OpError(op, "another op has the same name");
  for (const AttributeSchema& attribute : schema->attributes) {
    if (attribute.defaults_to_op_name && !op.attributes.Has(attribute.name)) op.attributes.Set(attribute.name, op.name);
  }
  if (const absl::Status status = CheckSignature(*schema, op.attributes, op.inputs.size()); !status.ok()) {
    return OpError(op, status.message());
  }
  for (const ValueId input : op.inputs) {
    if (input < 0 || input >= static_cast<ValueId>(values_.size())) return OpError(op, absl::StrCat("input ", input, " is not a value"));
  }
  const int wanted_parameters = schema->parameter_count(op.attributes);
  if (static_cast<int>(op.parameters.size()) != wanted_parameters) {
    return OpError(op, absl::StrCat("has ", op.parameters.size(), " parameters and needs ", wanted_parameters));
  }
  for (const ParameterId parameter : op.parameters) {
    if (parameter < 0 || parameter >= static_cast<ParameterId>(parameters_.size())) {
      return OpError(op, absl::StrCat("parameter ", parameter, " does not exist"));
    }
  }

  const auto id = static_cast<OpId>(ops_.size());
  op.outputs.clear();
  const int outputs = schema->output_count(op.attributes);
  for (int i = 0; i < outputs; ++i) {
    Value value;
    value.name = i == 0 ? op.name : absl::StrCat(op.name, ":", OutputName(*schema, i));
    value.producer = id;
    op.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back(std::move(value));
  }
  for (const ValueId input : op.inputs) values_[input].consumers.push_back(id);
  op_by_name_[op.name] = id;
  ops_.push_back(std::move(op));
  return id;
}

OpId Graph::FindOp(absl::string_view name) const {
  const auto found = op_by_name_.find(std::string(name));
  return found == op_by_name_.end() ? kNone : found->second;
}

ParameterId Graph::FindParameter(absl::string_view name) const {
  const auto found = parameter_by_name_.find(std::string(name));
  return found == parameter_by_name_.end() ? kNone : found->second;
}

}  // namespace fusionllm::opdag
