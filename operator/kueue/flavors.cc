#include "operator/kueue/flavors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/kueue/kueue_workload.h"

namespace fusionllm::op::kueue {

using nlohmann::json;

absl::StatusOr<Flavors::ByName> Flavors::Of(const json& workload, kube::ApiClient& client, const kube::CallOptions& call) {
  const std::string uid = kube::TextAt(workload, "metadata", "uid");
  {
    const base::MutexLock lock(mutex_);
    if (const auto at = read_.find(uid); at != read_.end()) return at->second;
  }
  ByName flavors;
  for (const std::string& name : FlavorsOf(workload)) {
    const absl::StatusOr<std::string> answer = client.Get(kResourceFlavors, {"", name}, call);
    if (kube::IsApiNotFound(answer.status())) return absl::NotFoundError(absl::StrCat("there is no ResourceFlavor ", name));
    FUSIONLLM_RETURN_IF_ERROR(answer.status());
    flavors[name] = kube::ParseJson(*answer);
  }
  const base::MutexLock lock(mutex_);
  return read_.try_emplace(uid, std::move(flavors)).first->second;
}

void Flavors::Forget(const std::string& workload_uid) {
  const base::MutexLock lock(mutex_);
  read_.erase(workload_uid);
}

}  // namespace fusionllm::op::kueue
