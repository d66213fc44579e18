// What a pod asks of a node, out of its JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/kube/api/resource_list.h"
#include "lib/kube/watch/node.h"

namespace fusionllm::op::cache {

// One requirement of a node selector term. `op`: In, NotIn, Exists, DoesNotExist, Gt, Lt; anything else holds nowhere.
struct LabelRequirement {
  std::string key, op;
  std::vector<std::string> values;
};

struct NodeTerm {
  std::vector<LabelRequirement> labels;
  std::vector<LabelRequirement> fields;  // metadata.name alone
};

struct Toleration {
  std::string key, op, value, effect;  // an empty effect: all; no key with Exists: everything
};

struct PodRequirements {
  kube::ResourceList requests;  // "pods" (1) included
  std::vector<LabelRequirement> node_selector;
  std::vector<NodeTerm> affinity;  // one of them must hold; empty: no constraint
  bool has_affinity = false;       // one without terms holds nowhere
  std::vector<Toleration> tolerations;
  std::string node_name;  // spec.nodeName: no scheduler is asked
};

// InvalidArgument: it is no pod.
absl::StatusOr<PodRequirements> RequirementsOfPod(const nlohmann::json& pod);

bool Holds(const LabelRequirement& requirement, const std::optional<std::string>& value);

// A LabelSelector of meta/v1 ({matchLabels, matchExpressions}) over labels. InvalidArgument naming what is wrong with it.
absl::StatusOr<std::vector<LabelRequirement>> ReadLabelSelector(const nlohmann::json& selector);

}  // namespace fusionllm::op::cache
