#include "operator/manifests/hardware.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/kube/api/amounts.h"

namespace fusionllm::op {
namespace {

using nlohmann::json;

json& ContainerOf(json& pod, const std::string& name) {
  json& containers = pod["spec"]["containers"];
  for (json& container : containers) {
    if (container.value("name", "") == name) return container;
  }
  return containers.at(0);
}

const json& At(const json& object, const char* key) {
  static const json kNothing;
  if (!object.is_object()) return kNothing;
  const auto at = object.find(key);
  return at == object.end() ? kNothing : *at;
}

// Extended resources, accelerators among them, have a domain in their names.
bool AsksForDevices(const json& resources) {
  for (const char* part : {"limits", "requests"}) {
    const json& amounts = At(resources, part);
    for (const auto& [resource, amount] : amounts.items()) {
      if (resource.find('/') != std::string::npos) return true;
    }
  }
  return false;
}

void AddAffinity(const DeviceKind& kind, json& pod) {
  json wanted = json::array({{{"key", kind.label}, {"operator", "In"}, {"values", kind.values}}});
  if (!kind.memory_label.empty()) {
    wanted.push_back({{"key", kind.memory_label}, {"operator", "Gt"}, {"values", {absl::StrCat(kind.least_mebibytes - 1)}}});
  }
  json& affinity = pod["spec"]["affinity"];
  if (!affinity.is_object()) affinity = json::object();
  json& terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  if (!terms.is_array() || terms.empty()) terms = json::array({json::object()});
  // One of the terms must hold: each gets it.
  for (json& term : terms) {
    json& expressions = term["matchExpressions"];
    if (!expressions.is_array()) expressions = json::array();
    for (const json& one : wanted) expressions.push_back(one);
  }
}

absl::Status AskForMemory(int64_t least_bytes, json& resources) {
  for (const char* part : {"limits", "requests"}) {
    const json& given = At(At(resources, part), kube::kMemory);
    if (given.is_null()) continue;
    const std::string text = given.is_string() ? given.get<std::string>() : given.dump();
    const auto bytes = kube::ParseAmount(kube::kMemory, text);
    if (!bytes.ok() || *bytes >= least_bytes) return absl::OkStatus();  // the API server says what is wrong with it
    return absl::InvalidArgumentError(absl::StrCat("spec.executors.template: ", part, ".memory of ", text,
                                                   " is less than spec.placement.minMemory, ",
                                                   kube::AmountText(kube::kMemory, least_bytes)));
  }
  resources["requests"][kube::kMemory] = absl::StrCat(least_bytes);
  return absl::OkStatus();
}

}  // namespace

absl::Status AskForHardware(const job::Placement& placement, const DeviceKind& kind, const std::string& container, json& pod) {
  json& main = ContainerOf(pod, container);
  json resources = main.contains("resources") && main["resources"].is_object() ? main["resources"] : json::object();
  if (!kind.label.empty()) AddAffinity(kind, pod);
  if (!kind.resource.empty() && !AsksForDevices(resources)) resources["limits"][kind.resource] = "1";
  if (placement.min_memory.has_value() && !AsksForDevices(resources)) {
    const absl::Status status = AskForMemory(placement.min_memory->bytes, resources);
    if (!status.ok()) return status;
  }
  if (!resources.empty()) main["resources"] = std::move(resources);
  return absl::OkStatus();
}

}  // namespace fusionllm::op
