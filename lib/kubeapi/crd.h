// The CustomResourceDefinitions of FusionJob and FusionCluster, made of the field tables and of rules over several fields.
//
// crds/*.yaml are these texts, written by tools/generate/crds.sh; the same tables give the C++ structs and the reference pages.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace fusionllm::kubeapi {

// `<job>-<cluster>-<index>` names a Pod's host and must have at most 63 characters, with an index of up to four digits.
inline constexpr size_t kMaxJobName = 37;
inline constexpr size_t kMaxClusterName = 20;

// A rule in the Common Expression Language that the API server checks; what it says of an object that breaks it names the field.
struct Rule {
  std::string path;        // of the value that the rule sees as `self`: "spec.placement.clusters[]"; empty: the whole object
  std::string expression;  // with oldSelf: checked on updates only
  std::string message;     // without the field, which the API server puts in front; values in it would cost too much for a server
  std::string field;       // below path, what is to blame: ".max"; empty: the value itself
};

std::vector<Rule> FusionJobRules();
std::vector<Rule> FusionClusterRules();

nlohmann::ordered_json FusionJobCrd();
nlohmann::ordered_json FusionClusterCrd();

// As block YAML; every reader takes it for the same values.
std::string ToYaml(const nlohmann::ordered_json& document);

}  // namespace fusionllm::kubeapi
