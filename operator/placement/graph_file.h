// The graph of a job whose spec.model.graph.file lies in a ConfigMap, which the operator can read on the hub; what lies in other volumes,
// pods alone can.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "lib/job/fusion_job.h"
#include "lib/kube/client/api_client.h"

namespace fusionllm::op::placement {

struct ConfigMapFile {
  std::string config_map, key;
  bool operator==(const ConfigMapFile&) const = default;
};

// Of the job's graph file; nothing: it has none, or in another kind of volume.
std::optional<ConfigMapFile> GraphInConfigMap(const job::Spec& spec);

// Blocks on the API server. NotFound: it has no such key.
absl::StatusOr<std::string> ReadConfigMapFile(kube::ApiClient& client, const std::string& ns, const ConfigMapFile& file,
                                              std::stop_token stop);

}  // namespace fusionllm::op::placement
