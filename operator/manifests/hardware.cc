#include "operator/manifests/hardware.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/api/resource_list.h"

namespace fusionllm::op::manifests {
namespace {

using kube::At;
using nlohmann::json;

json& ContainerOf(json& pod, const std::string& name) {
  json& containers = pod["spec"]["containers"];
  for (json& container : containers) {
    if (kube::TextAt(container, "name") == name) return container;
  }
  return containers.at(0);
}

// Extended resources, accelerators among them, have a domain in their names.
bool AsksForDevices(const json& resources) {
  for (const char* part : {"limits", "requests"}) {
    for (const auto& [resource, amount] : kube::MappingOf(At(resources, part)).items()) {
      if (resource.find('/') != std::string::npos) return true;
    }
  }
  return false;
}

// Whether they are of at least one of a resource whose name begins with one of these.
bool AsksFor(std::initializer_list<absl::string_view> prefixes, const json& resources) {
  for (const char* part : {"limits", "requests"}) {
    for (const auto& [resource, amount] : kube::MappingOf(At(resources, part)).items()) {
      const std::string& name = resource;
      const bool named =
          std::any_of(prefixes.begin(), prefixes.end(), [&](absl::string_view each) { return absl::StartsWith(name, each); });
      if (!named) continue;
      const auto count = kube::ParseResourceQuantity(name, amount.is_string() ? amount.get<std::string>() : amount.dump());
      if (!count.ok() || *count > 0) return true;  // the API server says what is wrong with it
    }
  }
  return false;
}

// The value under `key` for others to fill in, `made` where there is none. Null if what stands there is of another type.
json* Under(json* object, const char* key, const json& made) {
  if (object == nullptr) return nullptr;
  json& value = (*object)[key];
  if (value.is_null()) value = made;
  return value.type() == made.type() ? &value : nullptr;
}

absl::Status AddAffinity(const DeviceKind& kind, json& pod) {
  json wanted = json::array({{{"key", kind.label}, {"operator", "In"}, {"values", kind.values}}});
  if (!kind.memory_label.empty()) {
    wanted.push_back({{"key", kind.memory_label}, {"operator", "Gt"}, {"values", {absl::StrCat(kind.min_mebibytes - 1)}}});
  }
  const absl::Status wrong =
      absl::InvalidArgumentError("spec.executors.template: spec.affinity.nodeAffinity: has a field of the wrong type in it");
  json* const affinity = Under(Under(&pod["spec"], "affinity", json::object()), "nodeAffinity", json::object());
  json* const terms =
      Under(Under(affinity, "requiredDuringSchedulingIgnoredDuringExecution", json::object()), "nodeSelectorTerms", json::array());
  if (terms == nullptr) return wrong;
  if (terms->empty()) terms->push_back(json::object());
  // One of the terms must hold: each gets it.
  for (json& term : *terms) {
    json* const expressions = term.is_object() ? Under(&term, "matchExpressions", json::array()) : nullptr;
    if (expressions == nullptr) return wrong;
    for (const json& one : wanted) expressions->push_back(one);
  }
  return absl::OkStatus();
}

absl::Status RequestMemory(int64_t min_bytes, json& resources) {
  for (const char* part : {"limits", "requests"}) {
    const json& given = At(resources, part, kube::kMemory);
    if (given.is_null()) continue;
    const std::string text = given.is_string() ? given.get<std::string>() : given.dump();
    const auto bytes = kube::ParseResourceQuantity(kube::kMemory, text);
    if (!bytes.ok() || *bytes >= min_bytes) return absl::OkStatus();  // the API server says what is wrong with it
    return absl::InvalidArgumentError(absl::StrCat("spec.executors.template: ", part, ".memory of ", text,
                                                   " is less than spec.placement.minMemory, ",
                                                   kube::QuantityText(kube::kMemory, min_bytes)));
  }
  json* const requests = Under(&resources, "requests", json::object());
  if (requests == nullptr) return absl::InvalidArgumentError("spec.executors.template: resources.requests: must be a mapping");
  (*requests)[kube::kMemory] = absl::StrCat(min_bytes);
  return absl::OkStatus();
}

}  // namespace

absl::Status RequestHardware(const job::Placement& placement, const DeviceKind& kind, const std::string& container, json& pod) {
  json& main = ContainerOf(pod, container);
  json resources = kube::MappingOf(At(main, "resources"));
  if (!kind.label.empty()) {
    if (const absl::Status status = AddAffinity(kind, pod); !status.ok()) return status;
  }
  if (!kind.resource.empty() && !AsksForDevices(resources)) {
    json* const limits = Under(&resources, "limits", json::object());
    if (limits == nullptr) return absl::InvalidArgumentError("spec.executors.template: resources.limits: must be a mapping");
    (*limits)[kind.resource] = "1";
  }
  if (placement.min_memory.has_value() && !AsksForDevices(resources)) {
    const absl::Status status = RequestMemory(placement.min_memory->bytes, resources);
    if (!status.ok()) return status;
  }
  if (!resources.empty()) main["resources"] = std::move(resources);
  return absl::OkStatus();
}

void UseCudaImage(const std::string& plain, const std::string& cuda, const std::string& container, json& pod) {
  json& main = ContainerOf(pod, container);
  if (cuda.empty() || At(main, "image") != plain) return;
  if (AsksFor({"nvidia.com/"}, At(main, "resources"))) main["image"] = cuda;
}

void ComputeOnGpu(const std::string& container, json& pod) {
  json& main = ContainerOf(pod, container);
  // Others of NVIDIA's resources are network cards and the like.
  if (!AsksFor({"nvidia.com/gpu", "nvidia.com/mig-"}, At(main, "resources"))) return;
  main["command"].push_back("--device");
  main["command"].push_back("cuda:0");
}

}  // namespace fusionllm::op::manifests
