#include "operator/manifests/pod_references.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::manifests {
namespace {

using kube::At;
using kube::ListOf;
using kube::TextAt;
using nlohmann::json;

class Collector {
 public:
  void Volume(const json& volume) {
    const std::string use = absl::StrCat("volume ", TextAt(volume, "name"));
    Add(kConfigMaps, At(volume, "configMap"), "name", use);
    Add(kSecrets, At(volume, "secret"), "secretName", use);
    Add(kClaims, At(volume, "persistentVolumeClaim"), "claimName", use);
    for (const json& source : ListOf(At(volume, "projected", "sources"))) {
      Add(kConfigMaps, At(source, "configMap"), "name", use);
      Add(kSecrets, At(source, "secret"), "name", use);
    }
  }

  void Container(const json& container) {
    const std::string use = absl::StrCat("environment of container ", TextAt(container, "name"));
    for (const json& variable : ListOf(At(container, "env"))) {
      Add(kConfigMaps, At(variable, "valueFrom", "configMapKeyRef"), "name", use);
      Add(kSecrets, At(variable, "valueFrom", "secretKeyRef"), "name", use);
    }
    for (const json& source : ListOf(At(container, "envFrom"))) {
      Add(kConfigMaps, At(source, "configMapRef"), "name", use);
      Add(kSecrets, At(source, "secretRef"), "name", use);
    }
  }

  std::vector<PodReference> Take() { return std::move(found_); }

 private:
  void Add(const kube::Resource& kind, const json& source, const char* field, const std::string& use) {
    const std::string name = TextAt(source, field);
    if (name.empty() || At(source, "optional") == true) return;
    const auto same = [&](const PodReference& other) { return other.kind == &kind && other.name == name; };
    auto at = std::find_if(found_.begin(), found_.end(), same);
    if (at == found_.end()) {
      if (found_.size() >= kMaxReferences) return;
      at = found_.insert(found_.end(), {&kind, name, use, {}});
    }
    AddKey(TextAt(source, "key"), at->keys);
    for (const json& item : ListOf(At(source, "items"))) AddKey(TextAt(item, "key"), at->keys);
  }

  static void AddKey(const std::string& key, std::vector<std::string>& keys) {
    if (key.empty() || keys.size() >= kMaxKeys || std::find(keys.begin(), keys.end(), key) != keys.end()) return;
    keys.push_back(key);
  }

  std::vector<PodReference> found_;
};

}  // namespace

std::vector<PodReference> ReferencesOf(const json& pod) {
  Collector collector;
  const json& spec = At(pod, "spec");
  for (const json& volume : ListOf(At(spec, "volumes"))) collector.Volume(volume);
  for (const char* containers : {"initContainers", "containers"}) {
    for (const json& container : ListOf(At(spec, containers))) collector.Container(container);
  }
  return collector.Take();
}

}  // namespace fusionllm::op::manifests
