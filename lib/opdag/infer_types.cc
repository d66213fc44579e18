#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/graph.h"
#include "lib/opdag/op_schema.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag {
namespace {

absl::Status CheckParameters(const Graph& graph, const Op& op, const OpSchema& schema) {
  if (op.parameters.empty()) return absl::OkStatus();
  std::vector<tensor::TensorType> inputs;
  for (const ValueId input : op.inputs) inputs.push_back(graph.value(input).type);
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<tensor::TensorType> wanted, schema.parameter_types(op.attributes, inputs));
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    const Parameter& parameter = graph.parameter(op.parameters[i]);
    if (parameter.type == wanted[i]) continue;
    const std::string input = inputs.empty() ? "" : absl::StrCat(" with input ", inputs[0].ToString());
    return absl::InvalidArgumentError(absl::StrCat("its ", schema.parameters[i], " '", parameter.name, "' is ", parameter.type.ToString(),
                                                   " and must be ", wanted[i].ToString(), input));
  }
  return absl::OkStatus();
}

absl::Status Infer(Graph& graph, const Op& op, const OpSchema& schema) {
  FUSIONLLM_RETURN_IF_ERROR(CheckParameters(graph, op, schema));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<tensor::TensorType> types, schema.infer(graph, op));
  if (types.size() != op.outputs.size()) {
    return absl::InternalError(absl::StrCat("its shape rule gave ", types.size(), " types for ", op.outputs.size(), " outputs"));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    FUSIONLLM_RETURN_IF_ERROR(ops::CheckLimits(types[i]));
    graph.mutable_value(op.outputs[i]).type = types[i];
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InferOp(Graph& graph, OpId id) {
  const Op& op = graph.op(id);
  const OpSchema* schema = FindSchema(op.kind);
  if (schema == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("op '", op.name, "': no op type is named '", opdag::Name(op.kind), "'"));
  const absl::Status status = Infer(graph, op, *schema);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("op '", op.name, "' (", opdag::Name(op.kind), "): ", status.message()));
}

absl::Status InferTypes(Graph& graph, int64_t batch) {
  if (batch < 1 || batch > ops::kMaxExtent) {
    return absl::InvalidArgumentError(absl::StrCat("a micro-batch of ", batch, " samples is not possible: 1 to ", ops::kMaxExtent));
  }
  graph.set_batch(batch);
  for (OpId id = 0; id < static_cast<OpId>(graph.ops().size()); ++id) FUSIONLLM_RETURN_IF_ERROR(InferOp(graph, id));
  return absl::OkStatus();
}

}  // namespace fusionllm::opdag
