#include "lib/opdag/op_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"

namespace fusionllm::opdag {
namespace {

std::vector<OpSchema> BuildSchemas() {
  std::vector<OpSchema> schemas;
  ops::AddAttention(schemas);
  ops::AddConvolution(schemas);
  ops::AddElementwise(schemas);
  ops::AddEmbedding(schemas);
  ops::AddLinear(schemas);
  ops::AddLoss(schemas);
  ops::AddMovement(schemas);
  ops::AddNormalization(schemas);
  ops::AddPooling(schemas);
  ops::AddReduction(schemas);
  ops::AddSoftmax(schemas);
  for (OpSchema& schema : schemas) {
    if (!schema.parameter_count) schema.parameter_count = [n = static_cast<int>(schema.parameters.size())](const Attributes&) { return n; };
    if (!schema.output_count) schema.output_count = [n = static_cast<int>(schema.outputs.size())](const Attributes&) { return n; };
    if (!schema.parameter_types) {
      schema.parameter_types = [](const Attributes&, const std::vector<tensor::TensorType>&) { return std::vector<tensor::TensorType>(); };
    }
  }
  std::sort(schemas.begin(), schemas.end(), [](const OpSchema& a, const OpSchema& b) { return opdag::Name(a.kind) < opdag::Name(b.kind); });
  return schemas;
}

const std::vector<OpSchema>& Schemas() {
  static const auto* const schemas = new std::vector<OpSchema>(BuildSchemas());
  return *schemas;
}

absl::string_view KindName(AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kInt:
      return "an integer";
    case AttributeKind::kNumber:
      return "a number";
    case AttributeKind::kBool:
      return "true or false";
    case AttributeKind::kText:
      return "a text";
    case AttributeKind::kInts:
      return "a list of integers";
  }
  return "";
}

bool Fits(const AttributeValue& value, AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kInt:
      return std::holds_alternative<int64_t>(value);
    case AttributeKind::kNumber:
      return std::holds_alternative<int64_t>(value) || (std::holds_alternative<double>(value) && std::isfinite(std::get<double>(value)));
    case AttributeKind::kBool:
      return std::holds_alternative<bool>(value);
    case AttributeKind::kText:
      return std::holds_alternative<std::string>(value);
    case AttributeKind::kInts:
      return std::holds_alternative<std::vector<int64_t>>(value);
  }
  return false;
}

absl::Status CheckAttributes(const OpSchema& schema, const Attributes& attributes) {
  for (const auto& [name, value] : attributes.values()) {
    const auto known = std::find_if(schema.attributes.begin(), schema.attributes.end(),
                                    [&name = name](const AttributeSchema& attribute) { return attribute.name == name; });
    if (known == schema.attributes.end()) {
      const std::string names = absl::StrJoin(
          schema.attributes, ", ", [](std::string* out, const AttributeSchema& attribute) { absl::StrAppend(out, attribute.name); });
      return absl::InvalidArgumentError(
          absl::StrCat("has no attribute '", name, "' (", names.empty() ? "it takes none" : absl::StrCat("known: ", names), ")"));
    }
    if (!Fits(value, known->kind))
      return absl::InvalidArgumentError(absl::StrCat("attribute '", name, "' must be ", KindName(known->kind)));
  }
  for (const AttributeSchema& attribute : schema.attributes) {
    if (attribute.required && !attributes.Has(attribute.name)) {
      return absl::InvalidArgumentError(absl::StrCat("needs the attribute '", attribute.name, "' (", KindName(attribute.kind), ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view Name(OpClass op_class) {
  switch (op_class) {
    case OpClass::kFree:
      return "free";
    case OpClass::kMatmul:
      return "matmul";
    case OpClass::kAttention:
      return "attention";
    case OpClass::kConvolution:
      return "convolution";
    case OpClass::kNormalization:
      return "normalization";
    case OpClass::kElementwise:
      return "elementwise";
    case OpClass::kGather:
      return "gather";
    case OpClass::kReduction:
      return "reduction";
    case OpClass::kDataMovement:
      return "data_movement";
  }
  return "";
}

const OpSchema* FindSchema(OpKind kind) {
  static const auto* const by_kind = [] {
    auto* all = new std::array<const OpSchema*, kOpKindCount>();
    for (const OpSchema& schema : Schemas()) (*all)[static_cast<size_t>(schema.kind)] = &schema;
    return all;
  }();
  return (*by_kind)[static_cast<size_t>(kind)];
}

const OpSchema* FindSchema(absl::string_view name) { return FindSchema(OpKindOf(name)); }

const std::vector<const OpSchema*>& AllSchemas() {
  static const auto* const pointers = [] {
    auto* list = new std::vector<const OpSchema*>();
    for (const OpSchema& schema : Schemas()) list->push_back(&schema);
    return list;
  }();
  return *pointers;
}

absl::Status CheckSignature(const OpSchema& schema, const Attributes& attributes, size_t input_count) {
  FUSIONLLM_RETURN_IF_ERROR(CheckAttributes(schema, attributes));
  if (schema.variadic_inputs) {
    if (input_count < schema.inputs.size() || input_count > kMaxVariadic) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", input_count, " inputs and takes ", schema.inputs.size(), " to ", kMaxVariadic));
    }
  } else if (input_count != schema.inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", input_count, " inputs and takes ", schema.inputs.size(), " (", absl::StrJoin(schema.inputs, ", "), ")"));
  }
  const int outputs = schema.output_count(attributes);
  if (outputs < 1 || outputs > kMaxVariadic) {
    return absl::InvalidArgumentError(absl::StrCat("would have ", outputs, " outputs; 1 to ", kMaxVariadic, " are possible"));
  }
  return absl::OkStatus();
}

std::string OutputName(const OpSchema& schema, int index) {
  return index < static_cast<int>(schema.outputs.size()) ? schema.outputs[index] : absl::StrCat("y", index);
}

OpCost CostOf(const Graph& graph, const Op& op) {
  const OpSchema* schema = FindSchema(op.kind);
  OpCost cost;
  if (schema == nullptr) return cost;
  if (schema->flops) cost.flops = schema->flops(graph, op);
  if (schema->op_class == OpClass::kFree) return cost;
  if (schema->bytes_read) {
    cost.bytes_read = schema->bytes_read(graph, op);
  } else {
    for (const ValueId input : op.inputs) cost.bytes_read += static_cast<int64_t>(graph.value(input).type.bytes());
    for (const ParameterId parameter : op.parameters) cost.bytes_read += static_cast<int64_t>(graph.parameter(parameter).type.bytes());
  }
  for (const ValueId output : op.outputs) cost.bytes_written += static_cast<int64_t>(graph.value(output).type.bytes());
  return cost;
}

}  // namespace fusionllm::opdag
