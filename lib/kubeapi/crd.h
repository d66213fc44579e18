// The CustomResourceDefinitions of FusionJob and FusionCluster, made of the field tables and of rules over several fields.
//
// crds/*.yaml are these texts, written by tools/generate/crds.sh; the same tables give the C++ structs and the reference pages.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace fusionllm::kubeapi {

inline constexpr size_t kMaxClusterName = 20;  // job/name.h says why

// A rule in the Common Expression Language that the API server checks; what it says of an object that breaks it names the field.
struct Rule {
  // What the API server calls it: "Invalid value", "Forbidden" (the field may not be there, or not be changed), "Required value".
  enum class Reason { kInvalid, kForbidden, kRequired };

  std::string path;        // of the value that the rule sees as `self`: "spec.placement.clusters[]"; empty: the whole object
  std::string expression;  // with oldSelf: checked on updates only
  std::string message;     // without the field, which the API server puts in front
  std::string field;       // below path, what is to blame: ".max"; empty: the value itself
  Reason reason = Reason::kInvalid;
  // The message with the value to blame in it, which must be a text: a number made text by string() has no bound that a server would
  // believe, so that one word of it costs more than a definition may (tried with 1.34; format() was not). Empty: message says it all.
  std::string message_expression = "";
};

std::vector<Rule> FusionJobRules();
std::vector<Rule> FusionClusterRules();

nlohmann::ordered_json FusionJobCrd();
nlohmann::ordered_json FusionClusterCrd();

// As block YAML; every reader takes it for the same values.
std::string ToYaml(const nlohmann::ordered_json& document);

}  // namespace fusionllm::kubeapi
