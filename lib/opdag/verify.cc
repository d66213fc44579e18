#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/graph.h"
#include "lib/opdag/op_schema.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag {
namespace {

absl::Status OpError(const Op& op, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("op '", op.name, "' (", opdag::Name(op.kind), "): ", reason));
}

template <typename T>
bool InRange(int32_t id, const std::vector<T>& table) {
  return id >= 0 && id < static_cast<int32_t>(table.size());
}

absl::Status VerifyOp(const Graph& graph, OpId id) {
  const Op& op = graph.op(id);
  const OpSchema* schema = FindSchema(op.kind);
  if (schema == nullptr) return OpError(op, "it has no op type");
  if (const absl::Status status = CheckSignature(*schema, op.attributes, op.inputs.size()); !status.ok()) {
    return OpError(op, status.message());
  }
  if (static_cast<int>(op.parameters.size()) != schema->parameter_count(op.attributes)) return OpError(op, "wrong number of parameters");
  if (static_cast<int>(op.outputs.size()) != schema->output_count(op.attributes)) return OpError(op, "wrong number of outputs");
  if (op.forward_op != kNone && !InRange(op.forward_op, graph.ops())) return OpError(op, "its forward op does not exist");
  for (const ParameterId parameter : op.parameters) {
    if (!InRange(parameter, graph.parameters())) return OpError(op, absl::StrCat("parameter ", parameter, " does not exist"));
  }
  for (const ValueId input : op.inputs) {
    if (!InRange(input, graph.values())) return OpError(op, absl::StrCat("input ", input, " is not a value"));
    const Value& value = graph.value(input);
    if (value.producer >= id) return OpError(op, absl::StrCat("reads '", value.name, "' before it is produced"));
  }
  for (const ValueId output : op.outputs) {
    if (!InRange(output, graph.values())) return OpError(op, absl::StrCat("output ", output, " is not a value"));
    if (graph.value(output).producer != id) return OpError(op, absl::StrCat("'", graph.value(output).name, "' names another producer"));
  }
  return absl::OkStatus();
}

absl::Status VerifyValue(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  const auto error = [&value](absl::string_view reason) {
    return absl::InvalidArgumentError(absl::StrCat("value '", value.name, "': ", reason));
  };
  if (!InRange(value.producer, graph.ops())) return error("its producer does not exist");
  const std::vector<ValueId>& outputs = graph.op(value.producer).outputs;
  if (std::count(outputs.begin(), outputs.end(), id) != 1) return error("its producer does not list it");
  if (graph.batch() > 0) {
    if (const absl::Status status = ops::CheckLimits(value.type); !status.ok()) return error(status.message());
  }
  return absl::OkStatus();
}

// Ops list their inputs and values their consumers: the two must agree, repeats included.
absl::Status VerifyConsumers(const Graph& graph) {
  std::vector<std::vector<OpId>> wanted(graph.values().size());
  for (OpId id = 0; id < static_cast<OpId>(graph.ops().size()); ++id) {
    for (const ValueId input : graph.op(id).inputs) wanted[input].push_back(id);
  }
  for (ValueId id = 0; id < static_cast<ValueId>(graph.values().size()); ++id) {
    if (graph.value(id).consumers == wanted[id]) continue;
    return absl::InvalidArgumentError(absl::StrCat("value '", graph.value(id).name, "': its consumers are not the ops that read it"));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status VerifyNames(const std::vector<T>& table, absl::string_view what) {
  std::set<absl::string_view> names;
  for (const T& entry : table) {
    if (entry.name.empty()) return absl::InvalidArgumentError(absl::StrCat("a nameless ", what));
    if (!names.insert(entry.name).second) return absl::InvalidArgumentError(absl::StrCat("two ", what, "s are named '", entry.name, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const Graph& graph) {
  if (graph.ops().size() > kMaxOps) return absl::InvalidArgumentError(absl::StrCat("a graph holds at most ", kMaxOps, " ops"));
  FUSIONLLM_RETURN_IF_ERROR(VerifyNames(graph.ops(), "op"));
  FUSIONLLM_RETURN_IF_ERROR(VerifyNames(graph.values(), "value"));
  FUSIONLLM_RETURN_IF_ERROR(VerifyNames(graph.parameters(), "parameter"));
  for (OpId id = 0; id < static_cast<OpId>(graph.ops().size()); ++id) FUSIONLLM_RETURN_IF_ERROR(VerifyOp(graph, id));
  for (ValueId id = 0; id < static_cast<ValueId>(graph.values().size()); ++id) FUSIONLLM_RETURN_IF_ERROR(VerifyValue(graph, id));
  FUSIONLLM_RETURN_IF_ERROR(VerifyConsumers(graph));
  for (const Parameter& parameter : graph.parameters()) {
    if (const absl::Status status = ops::CheckLimits(parameter.type); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", parameter.name, "': ", status.message()));
    }
  }
  if (graph.loss() != kNone) {
    if (!InRange(graph.loss(), graph.values())) return absl::InvalidArgumentError("the loss is not a value of the graph");
    const Value& loss = graph.value(graph.loss());
    if (graph.batch() > 0 && loss.type != tensor::TensorType{tensor::DType::kF32, {}}) {
      return absl::InvalidArgumentError(
          absl::StrCat("the loss '", loss.name, "' is ", loss.type.ToString(), " and must be a scalar, f32[]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::opdag
