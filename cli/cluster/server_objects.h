// What the commands about clusters read of objects on a server.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kube/api/resource.h"
#include "lib/kube/client/api_client.h"

namespace fusionllm::cli {

using ProgressCallback = std::function<void(const std::string&)>;

// Text as JSON; discarded (is_discarded()) where it is none.
nlohmann::json Parsed(const std::string& text);

// The text at a path of keys ("/spec/name"); empty where there is none.
std::string TextAt(const nlohmann::json& object, const char* pointer);

// As it is on the server; null if it is not. Errors: the server's.
absl::StatusOr<nlohmann::json> GetIfExists(kube::ApiClient& client, const kube::Resource& resource, const kube::ObjectKey& key);

// Whether `fusionctl cluster add` made it.
bool IsManagedByFusionctl(const nlohmann::json& object);

// The namespaces of a member in which this command has bound the role. Errors: the server's.
absl::StatusOr<std::vector<std::string>> NamespacesOf(kube::ApiClient& member, const std::string& role);

// NAMESPACE/NAME of the hub's FusionJobs that have a part in the cluster, finished ones too: what is left of them there goes with the job,
// as long as the hub can reach it. With `concerns`, of the namespaces alone that it says yes to. Errors: the server's.
absl::StatusOr<std::vector<std::string>> JobsInCluster(kube::ApiClient& hub, const std::string& cluster,
                                                       const std::function<bool(const std::string& ns)>& concerns = nullptr);

// "2 jobs: a/b, a/c", with the first few by name.
std::string JobsText(const std::vector<std::string>& jobs);

// True if it was there and is gone now; what somebody else made stays.
absl::StatusOr<bool> DeleteIfManaged(kube::ApiClient& client, const std::string& where, const kube::Resource& resource,
                                     const kube::ObjectKey& key, const ProgressCallback& report_progress);

// The error with the server's role ("hub") and the object before it.
absl::Status Named(const absl::Status& status, const std::string& where, const kube::Resource& resource, const kube::ObjectKey& key);

}  // namespace fusionllm::cli
