// The ConfigMaps and Secrets without which a Pod's containers do not start. A pure function.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lib/kube/api/resource.h"

namespace fusionllm::op {

struct PodReference {
  const kube::Resource* kind = nullptr;  // kConfigMaps, kSecrets
  std::string name;
  std::string use;  // "volume data", "environment of container executor": the first that names it
};

// More than that are not looked at: each is a question to an API server.
inline constexpr size_t kMostReferences = 64;

// Each object once. Left out is what the Pod can do without (`optional`), or what is found missing by others: claims by the scheduler,
// which says so of the Pod, and a service account by the API server.
std::vector<PodReference> ReferencesOf(const nlohmann::json& pod);

}  // namespace fusionllm::op
