#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/opdag/initializers.h"
#include "lib/opdag/op_schema.h"
#include "lib/opdag/text.h"
#include "lib/opdag/text_lexer.h"

namespace fusionllm::opdag {
namespace {

std::string Quoted(absl::string_view name) { return absl::StrCat("\"", absl::CHexEscape(name), "\""); }
std::string NameText(absl::string_view name) { return text::IsPlainName(name) ? std::string(name) : Quoted(name); }

std::string ValueText(const Graph& graph, ValueId id) {
  const Op& op = graph.op(graph.value(id).producer);
  int index = 0;
  while (op.outputs[index] != id) ++index;
  const std::string name = NameText(op.name);
  return index == 0 ? name : absl::StrCat(name, ":", OutputName(*FindSchema(op.kind), index));
}

bool HasDefaultNames(const Graph& graph, const Op& op, const OpSchema& schema) {
  for (size_t slot = 0; slot < op.parameters.size(); ++slot) {
    if (graph.parameter(op.parameters[slot]).name != absl::StrCat(op.name, ".", schema.parameters[slot])) return false;
  }
  return true;
}

std::string OpText(const Graph& graph, const Op& op) {
  std::string text =
      absl::StrCat("  ", NameText(op.name), " = ", opdag::Name(op.kind), "(",
                   absl::StrJoin(op.inputs, ", ", [&graph](std::string* out, ValueId input) { out->append(ValueText(graph, input)); }));
  if (!HasDefaultNames(graph, op, *FindSchema(op.kind))) {
    absl::StrAppend(&text, "; ", absl::StrJoin(op.parameters, ", ", [&graph](std::string* out, ParameterId parameter) {
      absl::StrAppend(out, "@", NameText(graph.parameter(parameter).name));
    }));
  }
  text += ")";
  if (!op.attributes.values().empty()) absl::StrAppend(&text, " {", ToString(op.attributes), "}");
  return text + "\n";
}

std::string StartText(const Initializer& initializer) {
  // The attribute printer writes numbers that parse back to the same bits.
  const auto number = [&initializer] { return ToString(Attributes{{"n", initializer.scale}}).substr(2); };
  switch (initializer.kind) {
    case Initializer::Kind::kZeros:
      return "zeros";
    case Initializer::Kind::kOnes:
      return "ones";
    case Initializer::Kind::kNormal:
      return absl::StrCat("normal(", number(), ")");
    case Initializer::Kind::kUniform:
      return absl::StrCat("uniform(", number(), ")");
  }
  return "";
}

std::string ParameterText(const Parameter& parameter, const ParameterInit& usual) {
  std::string text = absl::StrCat("  param @", NameText(parameter.name), " ", parameter.type.ToString());
  if (!(parameter.initializer == usual.initializer)) absl::StrAppend(&text, " ", StartText(parameter.initializer));
  if (parameter.trainable != usual.trainable) text += parameter.trainable ? " trainable" : " frozen";
  return text + "\n";
}

}  // namespace

std::string PrintGraph(const Graph& graph) {
  std::string text = absl::StrCat("graph ", Quoted(graph.name()), " {\n");
  std::string starts;
  std::vector<bool> seen(graph.parameters().size(), false);
  for (const Op& op : graph.ops()) {
    text += OpText(graph, op);
    const OpSchema& schema = *FindSchema(op.kind);
    std::vector<tensor::TensorType> types;
    for (const ParameterId id : op.parameters) types.push_back(graph.parameter(id).type);
    // A parameter starts as its first user says.
    for (size_t slot = 0; slot < op.parameters.size(); ++slot) {
      if (seen[op.parameters[slot]]) continue;
      seen[op.parameters[slot]] = true;
      const Parameter& parameter = graph.parameter(op.parameters[slot]);
      const ParameterInit usual = DefaultInit(schema, op.attributes, types, slot);
      if (!(usual == ParameterInit{parameter.initializer, parameter.trainable})) starts += ParameterText(parameter, usual);
    }
  }
  text += starts;
  if (graph.loss() != kNone) absl::StrAppend(&text, "  return ", ValueText(graph, graph.loss()), "\n");
  return text + "}\n";
}

}  // namespace fusionllm::opdag
