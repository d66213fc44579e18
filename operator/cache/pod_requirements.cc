#include "operator/cache/pod_requirements.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/watch/pod_resources.h"

namespace fusionllm::op::cache {
namespace {

using kube::At;
using kube::ListOf;
using kube::MappingOf;
using kube::TextAt;
using nlohmann::json;

std::vector<std::string> Texts(const json& list) {
  std::vector<std::string> texts;
  for (const json& text : ListOf(list)) {
    if (text.is_string()) texts.push_back(text);
  }
  return texts;
}

std::vector<LabelRequirement> Requirements(const json& list) {
  std::vector<LabelRequirement> requirements;
  for (const json& one : ListOf(list)) requirements.push_back({TextAt(one, "key"), TextAt(one, "operator"), Texts(At(one, "values"))});
  return requirements;
}

void AddEqualities(const json& labels, std::vector<LabelRequirement>& to) {
  for (const auto& [key, value] : MappingOf(labels).items())
    to.push_back({key, "In", {value.is_string() ? value.get<std::string>() : value.dump()}});
}

}  // namespace

absl::StatusOr<PodRequirements> RequirementsOfPod(const json& pod) {
  PodRequirements requirements;
  FUSIONLLM_ASSIGN_OR_RETURN(requirements.requests, kube::RequestsOfPod(pod.dump()));
  const json& spec = At(pod, "spec");
  AddEqualities(At(spec, "nodeSelector"), requirements.node_selector);
  const json& required = At(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution");
  if (required.is_object()) {
    requirements.has_affinity = true;
    for (const json& term : ListOf(At(required, "nodeSelectorTerms"))) {
      requirements.affinity.push_back({Requirements(At(term, "matchExpressions")), Requirements(At(term, "matchFields"))});
    }
  }
  for (const json& one : ListOf(At(spec, "tolerations"))) {
    requirements.tolerations.push_back({TextAt(one, "key"), TextAt(one, "operator"), TextAt(one, "value"), TextAt(one, "effect")});
  }
  requirements.node_name = TextAt(spec, "nodeName");
  return requirements;
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

}  // namespace fusionllm::op::cache
