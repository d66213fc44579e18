#include "operator/controller/endpoints.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/host_port.h"
#include "lib/base/truncate_utf8.h"
#include "lib/kubeapi/fusion_job_status_fields.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op::controller {
namespace {

// As many as there is room for, and how many more there are.
std::string Listed(const std::vector<std::string>& all) {
  const std::string whole = absl::StrJoin(all, ", ");
  if (whole.size() <= kubeapi::kMaxShortText || all.size() < 2) return base::TruncateUtf8(whole, kubeapi::kMaxShortText);
  const size_t room = kubeapi::kMaxShortText - absl::StrCat(", and ", all.size(), " more").size();
  std::string text = base::TruncateUtf8(all.front(), room);
  size_t shown = 1;
  for (; text.size() + 2 + all[shown].size() <= room; ++shown) absl::StrAppend(&text, ", ", all[shown]);
  return absl::StrCat(text, ", and ", all.size() - shown, " more");
}

// HOST:PORT by device, where those of this attempt listen.
std::map<std::string, std::string> PodAddresses(const lifecycle::ClusterView& cluster, int64_t attempt) {
  std::map<std::string, std::string> addresses;
  for (const lifecycle::PodView& pod : cluster.pods) {
    if (pod.role != manifests::kExecutorRole || pod.attempt != attempt || pod.address.empty()) continue;
    const std::string address = base::JoinHostPort(pod.address, absl::StrCat(manifests::kExecutorPort));
    // Another cluster's word.
    if (base::CheckDialable(address).ok()) addresses[manifests::DeviceName({cluster.name, pod.index, false})] = address;
  }
  return addresses;
}

}  // namespace

std::optional<std::string> ExecutorEndpoint(const EndpointInputs& ways, const lifecycle::ClusterView& view,
                                            const std::map<std::string, std::string>& served) {
  const std::string& cluster = view.name;
  const std::vector<manifests::ExecutorSlot>& slots = *ways.slots;
  const auto here = [&](const manifests::ExecutorSlot& slot) { return slot.cluster == cluster; };
  if (std::none_of(slots.begin(), slots.end(), here) || std::all_of(slots.begin(), slots.end(), here)) return "";
  const job::NetworkMode mode = ways.job->spec.network.mode;
  if (mode == job::NetworkMode::kRelay || mode == job::NetworkMode::kAuto || ways.egress_only.contains(cluster)) {
    return ways.relay.empty() ? "" : absl::StrCat("relay ", ways.relay);
  }
  const bool direct = !manifests::ExecutorsHaveServices(*ways.job, slots);
  const std::map<std::string, std::string> addresses = direct ? PodAddresses(view, ways.attempt) : served;
  std::vector<std::string> reached;
  bool all = true;
  for (const manifests::ExecutorSlot& slot : slots) {
    if (!here(slot)) continue;
    const auto address = addresses.find(manifests::DeviceName(slot));
    if (address != addresses.end()) {
      reached.push_back(address->second);
    } else {
      all = all && slot.spare;
    }
  }
  // Pods get theirs one after the other: each would be a write.
  if (direct && !all && !reached.empty()) return std::nullopt;
  return Listed(reached);
}

}  // namespace fusionllm::op::controller
