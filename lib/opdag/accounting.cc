#include "lib/opdag/accounting.h"

#include "absl/strings/str_format.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::opdag {
namespace {

void AddParameter(const Parameter& parameter, Footprint& weight) {
  (parameter.trainable ? weight.parameters : weight.state_elements) += parameter.type.elements();
  weight.parameter_bytes += static_cast<int64_t>(parameter.type.bytes());
}

void AddWork(const Graph& graph, const Op& op, Footprint& weight) {
  if (graph.batch() == 0) return;
  weight.flops += CostOf(graph, op).flops;
  if (op.kind == OpKind::kConstant) return;
  for (const ValueId output : op.outputs) weight.activation_bytes += static_cast<int64_t>(graph.value(output).type.bytes());
}

}  // namespace

std::vector<Footprint> FootprintOfOps(const Graph& graph) {
  std::vector<Footprint> weights(graph.ops().size());
  for (size_t i = 0; i < weights.size(); ++i) {
    for (const ParameterId parameter : graph.ops()[i].parameters) AddParameter(graph.parameter(parameter), weights[i]);
    AddWork(graph, graph.ops()[i], weights[i]);
  }
  return weights;
}

Footprint FootprintOf(const Graph& graph) {
  Footprint weight;
  for (const Parameter& parameter : graph.parameters()) AddParameter(parameter, weight);
  for (const Op& op : graph.ops()) AddWork(graph, op, weight);
  return weight;
}

std::string FormatCount(double count) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P", " E"};
  int unit = 0;
  while (count >= 999.95 && unit < 6) {
    count /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.*f%s", unit == 0 ? 0 : 1, count, kUnits[unit]);
}

}  // namespace fusionllm::opdag
