#include "operator/inventory/pod_shape.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/watch/pod_demand.h"

namespace fusionllm::op {
namespace {

using nlohmann::json;

const json& At(const json& object, const char* key) {
  static const json kNothing;
  if (!object.is_object()) return kNothing;
  const auto at = object.find(key);
  return at == object.end() ? kNothing : *at;
}

std::string Text(const json& object, const char* key) {
  const json& value = At(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

std::vector<std::string> Texts(const json& list) {
  std::vector<std::string> texts;
  if (!list.is_array()) return texts;
  for (const json& text : list) {
    if (text.is_string()) texts.push_back(text);
  }
  return texts;
}

std::vector<LabelRequirement> Requirements(const json& list) {
  std::vector<LabelRequirement> requirements;
  if (!list.is_array()) return requirements;
  for (const json& one : list) requirements.push_back({Text(one, "key"), Text(one, "operator"), Texts(At(one, "values"))});
  return requirements;
}

void AddEqualities(const json& labels, std::vector<LabelRequirement>& to) {
  if (!labels.is_object()) return;
  for (const auto& [key, value] : labels.items()) to.push_back({key, "In", {value.is_string() ? value.get<std::string>() : value.dump()}});
}

}  // namespace

absl::StatusOr<PodShape> ShapeOfPod(const json& pod) {
  PodShape shape;
  FUSIONLLM_ASSIGN_OR_RETURN(shape.requests, kube::RequestsOfPod(pod.dump()));
  const json& spec = At(pod, "spec");
  AddEqualities(At(spec, "nodeSelector"), shape.node_selector);
  const json& required = At(At(At(spec, "affinity"), "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution");
  if (required.is_object()) {
    shape.has_affinity = true;
    const json& terms = At(required, "nodeSelectorTerms");
    for (const json& term : terms.is_array() ? terms : json::array()) {
      shape.affinity.push_back({Requirements(At(term, "matchExpressions")), Requirements(At(term, "matchFields"))});
    }
  }
  const json& tolerations = At(spec, "tolerations");
  for (const json& one : tolerations.is_array() ? tolerations : json::array()) {
    shape.tolerations.push_back({Text(one, "key"), Text(one, "operator"), Text(one, "value"), Text(one, "effect")});
  }
  shape.node_name = Text(spec, "nodeName");
  return shape;
}

bool Holds(const LabelRequirement& requirement, const std::optional<std::string>& value) {
  const std::string& op = requirement.op;
  const bool among =
      value.has_value() && std::find(requirement.values.begin(), requirement.values.end(), *value) != requirement.values.end();
  if (op == "In") return among;
  if (op == "NotIn") return !among;
  if (op == "Exists") return value.has_value();
  if (op == "DoesNotExist") return !value.has_value();
  if (op != "Gt" && op != "Lt") return false;
  int64_t has = 0, bound = 0;
  if (!value.has_value() || requirement.values.size() != 1 || !absl::SimpleAtoi(*value, &has) ||
      !absl::SimpleAtoi(requirement.values[0], &bound)) {
    return false;
  }
  return op == "Gt" ? has > bound : has < bound;
}

absl::StatusOr<std::vector<LabelRequirement>> ReadLabelSelector(const json& selector) {
  if (!selector.is_object()) return absl::InvalidArgumentError("must be a mapping of matchLabels and matchExpressions");
  std::vector<LabelRequirement> requirements;
  for (const auto& [key, value] : selector.items()) {
    if (key == "matchLabels" && value.is_object()) {
      AddEqualities(value, requirements);
      continue;
    }
    if (key != "matchExpressions" || !value.is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": must be matchLabels, a mapping, or matchExpressions, a list"));
    }
    for (const LabelRequirement& one : Requirements(value)) {
      const bool listed = one.op == "In" || one.op == "NotIn", bare = one.op == "Exists" || one.op == "DoesNotExist";
      if (one.key.empty() || !(listed || bare)) {
        return absl::InvalidArgumentError("matchExpressions: each needs a key, and In, NotIn, Exists or DoesNotExist as operator");
      }
      if (listed == one.values.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("matchExpressions: ", one.key, ": ", one.op, listed ? " needs values" : " takes no values"));
      }
      requirements.push_back(one);
    }
  }
  return requirements;
}

}  // namespace fusionllm::op
