// A pod of ours, with what the user's pod template adds.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace fusionllm::op::manifests {

// What the pod must have whatever the template says: command, arguments, environment, volumes and mounts of its main container.
struct PodParts {
  std::string name;
  std::map<std::string, std::string> labels;
  std::string container;  // name of the main container; a container of that name in the template is merged with it
  std::string image;      // where the template names none
  std::string pull_policy;
  std::vector<std::string> command;  // with its arguments
  nlohmann::json env = nlohmann::json::array();
  nlohmann::json ports = nlohmann::json::array();
  nlohmann::json volumes = nlohmann::json::array();
  nlohmann::json mounts = nlohmann::json::array();
  nlohmann::json readiness_probe;                            // null: none; a probe in the template wins
  nlohmann::json init_containers = nlohmann::json::array();  // before those of the template; one of the same name is merged
  std::string restart_policy;
  int64_t grace_period_seconds = 30;
};

// A Pod that meets the "restricted" Pod security standard unless the template says otherwise: not root, no capabilities, no new
// privileges, a root file system that is read-only, with /tmp of its own. `pod_template`: a PodTemplateSpec as JSON text; empty: none.
// InvalidArgument names the field of the template that cannot be: no mapping, or a volume or mount of a name or path that is ours.
absl::StatusOr<nlohmann::json> BuildPod(const PodParts& parts, const std::string& pod_template);

}  // namespace fusionllm::op::manifests
