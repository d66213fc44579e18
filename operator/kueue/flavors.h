// ResourceFlavors as they were when a Workload was admitted on them: what is changed of one later means who is admitted from then on.
//
// In memory alone, of Workloads that are admitted: an operator that starts reads them as they are. Thread-safe; a call may block on the API
// server.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"

namespace fusionllm::op::kueue {

class Flavors {
 public:
  using ByName = std::map<std::string, nlohmann::json>;

  // All that the Workload, which is admitted, is assigned. Errors: NotFound, naming one that is gone; those of the server.
  absl::StatusOr<ByName> Of(const nlohmann::json& workload, kube::ApiClient& client, const kube::CallOptions& call);
  // Of a Workload that is admitted no more.
  void Forget(const std::string& workload_uid);

 private:
  base::Mutex mutex_;
  std::map<std::string, ByName> read_ ABSL_GUARDED_BY(mutex_);  // by the uid of the Workload
};

}  // namespace fusionllm::op::kueue
