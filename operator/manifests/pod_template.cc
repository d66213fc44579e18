#include "operator/manifests/pod_template.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "lib/kube/api/json_fields.h"

namespace fusionllm::op::manifests {
namespace {

using nlohmann::json;

constexpr int64_t kUser = 65532;

json RestrictedContainer() {
  return {{"allowPrivilegeEscalation", false}, {"readOnlyRootFilesystem", true}, {"capabilities", {{"drop", {"ALL"}}}}};
}

json RestrictedPod() {
  return {{"runAsNonRoot", true},
          {"runAsUser", kUser},
          {"runAsGroup", kUser},
          {"fsGroup", kUser},
          {"seccompProfile", {{"type", "RuntimeDefault"}}}};
}

// Keys that the template leaves out are filled in.
void FillIn(json& object, const json& defaults) {
  for (const auto& [key, value] : defaults.items()) {
    if (!object.contains(key)) object[key] = value;
  }
}

// Appends `ours` to the list `object[key]`, whose elements are distinguished by `id`.
absl::Status Append(json& object, const char* key, const json& ours, const char* id, const std::string& path) {
  json& list = object[key];
  if (list.is_null()) list = json::array();
  if (!list.is_array()) return absl::InvalidArgumentError(absl::StrCat(path, ".", key, ": must be a list"));
  std::set<std::string> taken;
  for (const json& element : list) {
    if (!element.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ".", key, ": must be a list of mappings"));
    if (const auto name = element.find(id); name != element.end() && name->is_string()) taken.insert(*name);
  }
  for (const json& element : ours) {
    const std::string name = element.at(id);
    if (taken.contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ".", key, ": ", id, " ", name, " is used by the operator; choose another"));
    }
    list.push_back(element);
  }
  if (list.empty()) object.erase(key);
  return absl::OkStatus();
}

// Our variables replace those of the template with the same name: they are what the process gets.
void SetEnvironment(json& container, const json& ours) {
  json merged = json::array();
  const auto is_ours = [&](const json& variable) {
    for (const json& own : ours) {
      if (kube::TextAt(variable, "name") == kube::TextAt(own, "name")) return true;
    }
    return false;
  };
  for (const json& variable : kube::ListOf(kube::At(container, "env"))) {
    if (variable.is_object() && !is_ours(variable)) merged.push_back(variable);
  }
  for (const json& own : ours) merged.push_back(own);
  if (merged.empty()) {
    container.erase("env");
  } else {
    container["env"] = merged;
  }
}

absl::StatusOr<json> ParseTemplate(const std::string& text) {
  if (text.empty()) return json::object();
  json parsed = base::ParseJson(text);
  if (!parsed.is_object()) return absl::InvalidArgumentError("template: must be a mapping");
  for (const char* key : {"metadata", "spec"}) {
    if (parsed.contains(key) && !parsed[key].is_object()) {
      return absl::InvalidArgumentError(absl::StrCat("template.", key, ": must be a mapping"));
    }
  }
  return parsed;
}

json& MainContainer(json& spec, const std::string& name) {
  json& containers = spec["containers"];
  for (json& container : containers) {
    if (kube::TextAt(container, "name") == name) return container;
  }
  containers.insert(containers.begin(), json{{"name", name}});
  return containers.front();
}

// Ours, with what the template says of a container of its name: what it does is ours to say, what it needs the template's.
absl::Status MergeInto(json& ours, const json& theirs, const std::string& path) {
  json merged = theirs;
  for (const char* key : {"command", "restartPolicy"}) {
    if (ours.contains(key)) merged[key] = ours[key];
  }
  merged.erase("args");
  for (const auto& [key, id] : {std::pair("volumeMounts", "mountPath"), std::pair("ports", "name")}) {
    if (absl::Status status = Append(merged, key, kube::ListOf(kube::At(ours, key)), id, path); !status.ok()) return status;
  }
  FillIn(merged, ours);
  ours = std::move(merged);
  return absl::OkStatus();
}

// Ours go before those of the template.
absl::Status MergeInitContainers(const json& ours, json& spec) {
  json merged = ours;
  for (const json& theirs : kube::ListOf(kube::At(spec, "initContainers"))) {
    const std::string name = kube::TextAt(theirs, "name");
    const auto end = merged.begin() + static_cast<json::difference_type>(ours.size());
    const auto same = std::find_if(merged.begin(), end, [&](const json& own) { return kube::TextAt(own, "name") == name; });
    if (same == end) {
      merged.push_back(theirs);
      continue;
    }
    if (absl::Status status = MergeInto(*same, theirs, absl::StrCat("template.spec.initContainers[", name, "]")); !status.ok())
      return status;
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    json& security = merged[i]["securityContext"];
    if (!security.is_object()) security = json::object();
    FillIn(security, RestrictedContainer());
  }
  spec["initContainers"] = std::move(merged);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<json> BuildPod(const PodParts& parts, const std::string& pod_template) {
  absl::StatusOr<json> parsed = ParseTemplate(pod_template);
  if (!parsed.ok()) return parsed.status();
  const json& metadata = kube::At(*parsed, "metadata");
  json spec = kube::MappingOf(kube::At(*parsed, "spec"));

  json pod = {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", parts.name}}}};
  for (const char* key : {"labels", "annotations"}) {
    if (const json& given = kube::At(metadata, key); given.is_object()) pod["metadata"][key] = given;
  }
  for (const auto& [key, value] : parts.labels) pod["metadata"]["labels"][key] = value;
  // Evicting one executor for the sake of a tidier cluster stops all of them.
  json& annotations = pod["metadata"]["annotations"];
  if (!annotations.is_object()) annotations = json::object();
  FillIn(annotations, {{"cluster-autoscaler.kubernetes.io/safe-to-evict", "false"}});

  if (!spec.contains("containers")) spec["containers"] = json::array();
  if (!spec["containers"].is_array()) return absl::InvalidArgumentError("template.spec.containers: must be a list");
  json& container = MainContainer(spec, parts.container);
  const std::string path = absl::StrCat("template.spec.containers[", parts.container, "]");
  container["command"] = parts.command;
  container.erase("args");
  FillIn(container, {{"image", parts.image}});
  if (!parts.pull_policy.empty()) FillIn(container, {{"imagePullPolicy", parts.pull_policy}});
  if (!parts.readiness_probe.is_null()) FillIn(container, {{"readinessProbe", parts.readiness_probe}});
  // What is in the last lines of its log may tell why it failed, where it has not said so itself (termination_message.h).
  FillIn(container, {{"terminationMessagePolicy", "FallbackToLogsOnError"}});
  SetEnvironment(container, parts.env);
  json mounts = parts.mounts;
  mounts.push_back({{"name", "tmp"}, {"mountPath", "/tmp"}});
  if (absl::Status status = Append(container, "volumeMounts", mounts, "mountPath", path); !status.ok()) return status;
  if (absl::Status status = Append(container, "ports", parts.ports, "name", path); !status.ok()) return status;
  for (json& each : spec["containers"]) {
    if (!each.is_object()) return absl::InvalidArgumentError("template.spec.containers: must be a list of mappings");
    json& security = each["securityContext"];
    if (!security.is_object()) security = json::object();
    FillIn(security, RestrictedContainer());
  }

  json volumes = parts.volumes;
  volumes.push_back({{"name", "tmp"}, {"emptyDir", json::object()}});
  if (absl::Status status = Append(spec, "volumes", volumes, "name", "template.spec"); !status.ok()) return status;
  if (!parts.init_containers.empty()) {
    if (absl::Status status = MergeInitContainers(parts.init_containers, spec); !status.ok()) return status;
  }
  json& security = spec["securityContext"];
  if (!security.is_object()) security = json::object();
  FillIn(security, RestrictedPod());
  spec["restartPolicy"] = parts.restart_policy;
  // Nothing in these pods speaks to an API server.
  FillIn(spec, {{"automountServiceAccountToken", false},
                {"enableServiceLinks", false},
                {"terminationGracePeriodSeconds", parts.grace_period_seconds}});
  pod["spec"] = std::move(spec);
  return pod;
}

}  // namespace fusionllm::op::manifests
