#include "lib/estimator/graph_cost.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "lib/autodiff/activation_kinds.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::estimator {
namespace {

using autodiff::TrainingGraph;
using opdag::Graph;
using opdag::kNone;
using opdag::Op;
using opdag::OpId;
using opdag::ValueId;

int64_t BytesOf(const Graph& graph, ValueId value) { return static_cast<int64_t>(graph.value(value).type.bytes()); }

bool IsPlaceholder(const Op& op) { return op.kind == opdag::OpKind::kPlaceholder; }

// The forward op whose stage a backward op shares. The seed placeholder goes with the loss.
OpId HostOf(const TrainingGraph& training, OpId id) {
  if (id < training.forward_ops) return id;
  const OpId host = training.graph.op(id).forward_op;
  return host != kNone ? host : training.graph.value(training.graph.loss()).producer;
}

void SortUnique(std::vector<OpId>& ops) {
  std::sort(ops.begin(), ops.end());
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
}

void AddParameters(const TrainingGraph& training, int state_tensors, GraphCosts& costs) {
  const Graph& graph = training.graph;
  for (OpId id = 0; id < training.forward_ops; ++id) {
    std::vector<opdag::ParameterId> own = graph.op(id).parameters;
    std::sort(own.begin(), own.end());
    own.erase(std::unique(own.begin(), own.end()), own.end());
    for (opdag::ParameterId p : own) {
      const int64_t bytes = static_cast<int64_t>(graph.parameter(p).type.bytes());
      costs.ops[id].parameter_bytes += bytes;
      if (!graph.parameter(p).trainable) continue;
      costs.ops[id].trainable_bytes += bytes;
      costs.ops[id].optimizer_bytes += state_tensors * bytes;
    }
  }
  std::map<opdag::ParameterId, std::vector<OpId>> users;
  for (const autodiff::ParameterUse& use : training.uses) {
    costs.ops[use.op].gradient_bytes += static_cast<int64_t>(graph.parameter(use.parameter).type.bytes());
    users[use.parameter].push_back(use.op);
  }
  for (auto& [parameter, ops] : users) {
    SortUnique(ops);
    if (ops.size() < 2) continue;
    const int64_t bytes = static_cast<int64_t>(graph.parameter(parameter).type.bytes());
    costs.shared.push_back({.parameter = parameter, .ops = std::move(ops), .bytes = bytes, .optimizer_bytes = state_tensors * bytes});
  }
}

void AddValues(const TrainingGraph& training, GraphCosts& costs) {
  const Graph& graph = training.graph;
  const std::vector<opdag::ActivationKind> kinds = autodiff::ActivationKindsOf(training);
  for (ValueId v = 0; v < static_cast<ValueId>(graph.values().size()); ++v) {
    const opdag::Value& value = graph.value(v);
    if (value.producer >= training.forward_ops) continue;
    ValueCosts out{.value = v,
                   .producer = value.producer,
                   .bytes = BytesOf(graph, v),
                   .dtype = value.type.dtype,
                   .differentiable = v < static_cast<ValueId>(training.gradient_of.size()) && training.gradient_of[v] != kNone,
                   .lossless_only = !tensor::IsFloating(value.type.dtype),
                   .kind = kinds[v]};
    for (OpId consumer : value.consumers) {
      (consumer < training.forward_ops ? out.consumers : out.kept_by).push_back(HostOf(training, consumer));
    }
    SortUnique(out.consumers);
    SortUnique(out.kept_by);
    // A value that only a backward part elsewhere reads crosses in the forward pass as well.
    for (OpId keeper : out.kept_by) {
      if (keeper > value.producer) out.consumers.push_back(keeper);
    }
    SortUnique(out.consumers);
    if (!out.consumers.empty() || !out.kept_by.empty()) costs.values.push_back(std::move(out));
  }
}

// By value: the last op before `end` that reads it or a view of it; the one that makes it where none does.
std::vector<OpId> LastReaders(const Graph& graph, const std::vector<bool>& views, OpId end) {
  std::vector<OpId> last(graph.values().size());
  for (auto v = static_cast<ValueId>(last.size()) - 1; v >= 0; --v) {  // what is made of a value comes after it
    last[v] = graph.value(v).producer;
    for (const OpId consumer : graph.value(v).consumers) {
      if (consumer < end) last[v] = std::max(last[v], views[consumer] ? last[graph.op(consumer).outputs[0]] : consumer);
    }
  }
  return last;
}

// Live bytes at each op of one pass, given which values live in its scratch arena. Views have no bytes of their own.
template <typename InScratch>
void AddWorkspace(const TrainingGraph& training, const std::vector<bool>& views, OpId begin, OpId end, InScratch in_scratch,
                  GraphCosts& costs) {
  const Graph& graph = training.graph;
  const std::vector<OpId> last = LastReaders(graph, views, end);
  std::vector<int64_t> alive(end - begin + 1, 0);
  for (ValueId v = 0; v < static_cast<ValueId>(graph.values().size()); ++v) {
    const OpId producer = graph.value(v).producer;
    if (producer < begin || producer >= end || views[producer] || !in_scratch(v)) continue;
    alive[producer - begin] += BytesOf(graph, v);
    alive[last[v] + 1 - begin] -= BytesOf(graph, v);
  }
  int64_t now = 0;
  for (OpId id = begin; id < end; ++id) {
    now += alive[id - begin];
    int64_t& workspace = costs.ops[HostOf(training, id)].workspace_bytes;
    workspace = std::max(workspace, now);
  }
}

}  // namespace

GraphCosts CostsOf(const TrainingGraph& training, int state_tensors) {
  const Graph& graph = training.graph;
  GraphCosts costs;
  costs.ops.resize(training.forward_ops);
  for (OpId id = 0; id < static_cast<OpId>(graph.ops().size()); ++id) {
    OpCosts& host = costs.ops[HostOf(training, id)];
    const double flops = opdag::CostOf(graph, graph.op(id)).flops;
    if (id < training.forward_ops) {
      host.op = id;
      host.placeholder = IsPlaceholder(graph.op(id));
      host.forward_flops = flops;
    } else {
      host.backward_ops.push_back(id);
      host.backward_flops += flops;
    }
  }
  AddParameters(training, state_tensors, costs);
  AddValues(training, costs);
  // The evaluation pass keeps every forward value in scratch while it is needed, which covers the forward pass of training.
  const std::vector<bool> views = autodiff::ViewsOf(training);
  AddWorkspace(
      training, views, 0, training.forward_ops, [](ValueId) { return true; }, costs);
  std::vector<char> use_gradient(graph.values().size(), 0);
  for (const autodiff::ParameterUse& use : training.uses) use_gradient[use.gradient] = 1;
  AddWorkspace(
      training, views, training.forward_ops, static_cast<OpId>(graph.ops().size()), [&](ValueId v) { return !use_gradient[v]; }, costs);
  return costs;
}

std::string OpSignature(const Graph& graph, const Op& op) {
  opdag::Attributes attributes;
  for (const auto& [name, value] : op.attributes.values()) {
    if (name != "name") attributes.Set(name, value);  // dropout's stream: no matter to time
  }
  std::string text = absl::StrCat(opdag::Name(op.kind), "{", opdag::ToString(attributes), "}(");
  for (size_t i = 0; i < op.inputs.size(); ++i) absl::StrAppend(&text, i > 0 ? ", " : "", graph.value(op.inputs[i]).type.ToString());
  for (size_t i = 0; i < op.parameters.size(); ++i)
    absl::StrAppend(&text, i > 0 ? ", " : "; ", graph.parameter(op.parameters[i]).type.ToString());
  absl::StrAppend(&text, ")");
  const auto is_lowered = [&](ValueId v) { return graph.value(v).type.dtype == tensor::DType::kBF16; };
  if (std::none_of(op.outputs.begin(), op.outputs.end(), is_lowered)) return text;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : " -> ", tensor::Name(graph.value(op.outputs[i]).type.dtype));
  }
  return text;
}

std::vector<OpSeconds> SecondsByOp(const GraphCosts& costs, const TrainingGraph& training, const CostModel& model) {
  const Graph& graph = training.graph;
  const std::vector<bool> views = autodiff::ViewsOf(training);
  std::map<std::string, Estimate> known;  // layers repeat
  const auto price = [&](OpId id) -> Estimate {
    const Op& op = graph.op(id);
    // Data and labels are read or made; the gradient that a loss starts from is a number.
    if (IsPlaceholder(op)) {
      return {.seconds = id < training.forward_ops ? model.data_seconds_per_byte * static_cast<double>(BytesOf(graph, op.outputs[0])) : 0};
    }
    const opdag::OpSchema* schema = opdag::FindSchema(op.kind);
    // Whatever a profile says: those that were made when reshapes were copies have them in it.
    if (schema == nullptr || views[id]) return {};
    const auto [entry, added] = known.try_emplace(OpSignature(graph, op));
    if (added) {
      const opdag::OpCost cost = opdag::CostOf(graph, op);
      entry->second =
          EstimateOp(model, schema->op_class, entry->first, cost.flops, static_cast<double>(cost.bytes_read + cost.bytes_written));
    }
    return entry->second;
  };
  std::vector<OpSeconds> seconds(costs.ops.size());
  const auto add = [&](OpId id, double& pass_s, OpSeconds& out) {
    const Estimate estimate = price(id);
    pass_s += estimate.seconds;
    if (estimate.measured) return;
    out.fitted_s += estimate.seconds;
    out.uncertain_s += estimate.seconds * estimate.relative_error;
    if (estimate.inferred) {
      out.inferred_s += estimate.seconds;
      return;
    }
    out.fitted_classes.set(static_cast<size_t>(opdag::FindSchema(graph.op(id).kind)->op_class));
  };
  std::vector<char> use_gradient(graph.values().size(), 0);
  for (const autodiff::ParameterUse& use : training.uses) use_gradient[use.gradient] = 1;
  for (size_t i = 0; i < costs.ops.size(); ++i) {
    add(costs.ops[i].op, seconds[i].forward_s, seconds[i]);
    for (const OpId backward : costs.ops[i].backward_ops) {
      add(backward, seconds[i].backward_s, seconds[i]);
      const std::vector<ValueId>& outputs = graph.op(backward).outputs;
      const bool weights = !outputs.empty() && std::all_of(outputs.begin(), outputs.end(), [&](ValueId v) { return use_gradient[v]; });
      if (weights) seconds[i].weights_s += price(backward).seconds;
    }
  }
  std::set<opdag::ParameterId> updated;
  for (const autodiff::ParameterUse& use : training.uses) {
    if (!updated.insert(use.parameter).second) continue;
    const auto elements = static_cast<double>(graph.parameter(use.parameter).type.elements());
    seconds[use.op].update_s += elements * model.update_seconds_per_element;
  }
  return seconds;
}

}  // namespace fusionllm::estimator
