#include "operator/reconcile/endpoints.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/cut_text.h"
#include "lib/kubeapi/fusion_job_status_fields.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op {

std::string ExecutorEndpoint(const Ways& ways, const std::string& cluster, const std::map<std::string, std::string>& addresses) {
  const std::vector<ExecutorSlot>& slots = *ways.slots;
  const auto here = [&](const ExecutorSlot& slot) { return slot.cluster == cluster; };
  if (std::none_of(slots.begin(), slots.end(), here) || std::all_of(slots.begin(), slots.end(), here)) return "";
  if (ways.job->spec.network.mode == job::NetworkMode::kRelay || ways.egress_only.contains(cluster)) {
    return ways.relay.empty() ? "" : absl::StrCat("relay ", ways.relay);
  }
  if (!ExecutorsHaveServices(*ways.job, slots)) return "addresses of their Pods";
  std::vector<std::string> reached;
  for (const ExecutorSlot& slot : slots) {
    const auto address = addresses.find(DeviceName(slot));
    if (here(slot) && address != addresses.end()) reached.push_back(address->second);
  }
  return base::CutText(absl::StrJoin(reached, ", "), kubeapi::kMaxShortText);
}

}  // namespace fusionllm::op
