#include "lib/kubeapi/structural_schema.h"
#include "lib/base/json_text.h"

#include <cmath>

#include "nlohmann/json.hpp"

namespace fusionllm::kubeapi {
namespace {

using job::FieldSchema;
using job::FieldType;
using nlohmann::ordered_json;

constexpr int kMaxQuantityLength = 48;

// A whole number without a decimal point, as people would write it.
ordered_json Number(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

void AddBounds(const FieldSchema& field, ordered_json& schema) {
  const job::Rule& rule = field.rule;
  if (std::isfinite(rule.min)) schema["minimum"] = Number(rule.min);
  if (std::isfinite(rule.min) && rule.above_min) schema["exclusiveMinimum"] = true;
  if (std::isfinite(rule.max)) schema["maximum"] = Number(rule.max);
  if (std::isfinite(rule.max) && rule.below_max) schema["exclusiveMaximum"] = true;
}

void AddText(const FieldSchema& field, ordered_json& schema) {
  schema["type"] = "string";
  if (!field.constant.empty()) {
    schema["enum"] = {field.constant};
    return;
  }
  if (!field.rule.may_be_empty) schema["minLength"] = 1;
  schema["maxLength"] = field.rule.name ? 63 : field.rule.max_length;
  if (field.rule.name) schema["pattern"] = "^[A-Za-z0-9][A-Za-z0-9._-]*$";
}

void AddList(const FieldSchema& field, Defaults defaults, ordered_json& schema) {
  if (field.rule.one_or_many) {
    // Without a type each of these holds for values of its own kind; the last two, together, for no mapping. A mapping that was stored
    // before there were these is let be where its values can be compared with those stored, so they have a schema: else its finalizer
    // stayed.
    schema["x-kubernetes-preserve-unknown-fields"] = true;
    schema["items"] = StructuralSchema(field.children[0], defaults);
    schema["minItems"] = 1;
    schema["maxItems"] = field.rule.max_items;
    schema["minLength"] = 1;
    schema["maxLength"] = field.rule.max_length;
    schema["additionalProperties"] = {{"x-kubernetes-preserve-unknown-fields", true}};
    schema["minProperties"] = 1;
    schema["maxProperties"] = 0;
    return;
  }
  schema["type"] = "array";
  schema["items"] = StructuralSchema(field.children[0], defaults);
  schema["maxItems"] = field.rule.max_items;
  const bool map = !field.rule.list_key.empty();
  schema["x-kubernetes-list-type"] = map ? "map" : "atomic";
  if (map) schema["x-kubernetes-list-map-keys"] = {std::string(field.rule.list_key)};
}

void AddObject(const FieldSchema& field, Defaults defaults, ordered_json& schema) {
  schema["type"] = "object";
  ordered_json properties = ordered_json::object(), required = ordered_json::array();
  for (const FieldSchema& child : field.children) {
    properties[child.name] = StructuralSchema(child, defaults);
    if (child.rule.required) required.push_back(child.name);
  }
  if (!required.empty()) schema["required"] = std::move(required);
  if (!properties.empty()) schema["properties"] = std::move(properties);
}

void AddType(const FieldSchema& field, Defaults defaults, ordered_json& schema) {
  switch (field.type) {
    case FieldType::kBool:
      schema["type"] = "boolean";
      return;
    case FieldType::kInteger:
      if (field.rule.zero_is_auto) {
        schema["x-kubernetes-int-or-string"] = true;
        schema["pattern"] = "^auto$";
        schema["maxLength"] = 4;
      } else {
        schema["type"] = "integer";
        schema["format"] = "int64";
      }
      return AddBounds(field, schema);
    case FieldType::kNumber:
      schema["type"] = "number";
      return AddBounds(field, schema);
    case FieldType::kText:
      return AddText(field, schema);
    case FieldType::kTime:
      schema["type"] = "string";
      schema["format"] = "date-time";
      return;
    case FieldType::kEnum:
      schema["type"] = "string";
      schema["enum"] = field.choices;
      return;
    case FieldType::kBandwidth:
      schema["type"] = "string";
      schema["maxLength"] = kMaxQuantityLength;
      schema["pattern"] = "^[0-9]+(\\.[0-9]+)?[kMG]?bit$";
      return;
    case FieldType::kSize:
      schema["x-kubernetes-int-or-string"] = true;
      schema["maxLength"] = kMaxQuantityLength;
      schema["pattern"] = "^([0-9]+|[0-9]+(\\.[0-9]+)?[KMGT]i)$";
      schema["minimum"] = 0;
      return;
    case FieldType::kDuration:  // a bare 0 needs no unit
      schema["x-kubernetes-int-or-string"] = true;
      schema["maxLength"] = kMaxQuantityLength;
      schema["pattern"] = "^(0|[0-9]+(\\.[0-9]+)?(us|ms|s))$";
      schema["minimum"] = 0;
      schema["maximum"] = 0;
      return;
    case FieldType::kAny:
      schema["type"] = "object";
      schema["x-kubernetes-preserve-unknown-fields"] = true;
      // A volume source is one of its kinds.
      if (field.name == "volume") schema["minProperties"] = schema["maxProperties"] = 1;
      return;
    case FieldType::kList:
      return AddList(field, defaults, schema);
    case FieldType::kObject:
      return AddObject(field, defaults, schema);
  }
}

}  // namespace

ordered_json StructuralSchema(const FieldSchema& field, Defaults defaults) {
  ordered_json schema = ordered_json::object();
  if (!field.doc.empty()) schema["description"] = field.doc;
  AddType(field, defaults, schema);
  // A field that another one's value rules out must not be there at all, so nothing may put it there.
  const bool has_default = defaults == Defaults::kStatic && !field.default_text.empty() && !field.rule.default_depends &&
                           field.rule.belongs_to.empty() && field.type != FieldType::kList && field.type != FieldType::kObject;
  if (has_default) {
    ordered_json value = base::ParseJson(field.default_text);
    schema["default"] = value.is_discarded() ? ordered_json(field.default_text) : std::move(value);
  }
  return schema;
}

}  // namespace fusionllm::kubeapi
