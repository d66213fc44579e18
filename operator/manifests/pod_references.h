// The ConfigMaps, Secrets and claims without which a Pod's containers do not start. A pure function.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lib/kube/api/resource.h"

namespace fusionllm::op::manifests {

struct PodReference {
  const kube::Resource* kind = nullptr;  // kConfigMaps, kSecrets, kClaims
  std::string name;
  std::string use;                // "volume data", "environment of container executor": the first that names it
  std::vector<std::string> keys;  // those that must be in it, each once
};

// More than that are not looked at: each is a question to an API server.
inline constexpr size_t kMaxReferences = 64;
// Of one object.
inline constexpr size_t kMaxKeys = 64;

// Each object once. Left out is what the Pod can do without (`optional`), or what the API server itself finds missing: a service account,
// a priority class, a runtime class.
std::vector<PodReference> ReferencesOf(const nlohmann::json& pod);

}  // namespace fusionllm::op::manifests
