#include "operator/federation/cluster_facts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/truncate_utf8.h"
#include "lib/kubeapi/fusion_job_status_fields.h"

namespace fusionllm::op::federation {
namespace {

constexpr char kRegionLabel[] = "topology.kubernetes.io/region";
constexpr char kZoneLabel[] = "topology.kubernetes.io/zone";
constexpr char kProviderLabel[] = "fusionllm.io/provider";

// Of an accelerator, as device plugins name them: "nvidia.com/gpu". Attachments of volumes and the like are none.
bool IsAccelerator(const std::string& resource) {
  return resource.find('/') != std::string::npos && !resource.starts_with("attachable-volumes") && !resource.starts_with("kubernetes.io/");
}

// As the field has it: whole Mi, below 2^53.
job::ByteSize MemoryOf(const kube::ResourceList& resources) {
  constexpr int64_t kMebibyte = int64_t{1} << 20, kMaxBytes = int64_t{1} << 53;
  const int64_t bytes = std::clamp<int64_t>(kube::QuantityOf(resources, kube::kMemory), 0, kMaxBytes);
  return {bytes - bytes % kMebibyte};
}

}  // namespace

cache::ClusterFacts FactsOf(const kube::ObjectMeta& meta, const kubeapi::FusionCluster& cluster) {
  cache::ClusterFacts facts{.name = meta.name};
  facts.labels.insert(meta.labels.begin(), meta.labels.end());
  facts.labels[manifests::kClusterLabel] = meta.name;
  const kubeapi::FusionClusterSpec& spec = cluster.spec;
  for (const auto& [label, value] :
       {std::pair(kRegionLabel, &spec.region), std::pair(kZoneLabel, &spec.zone), std::pair(kProviderLabel, &spec.provider)}) {
    if (value->has_value()) facts.labels[label] = **value;
  }
  facts.address = spec.network.address.value_or("");
  facts.egress_only = spec.network.egress_only;
  facts.local = spec.local.has_value();
  facts.on_demand = spec.on_demand;
  for (const kubeapi::ClusterLink& link : spec.network.links) {
    facts.links[link.to] = {.bytes_per_s = link.bandwidth.bytes_per_s(), .latency_s = link.latency.seconds()};
  }
  if (spec.network.egress.has_value()) facts.egress_bytes_per_s = spec.network.egress->bytes_per_s();
  if (spec.network.ingress.has_value()) facts.ingress_bytes_per_s = spec.network.ingress->bytes_per_s();
  facts.leaving = !meta.deletion_timestamp.empty();
  return facts;
}

kubeapi::ResourceSummary SummaryOf(const cache::ClusterCapacity& capacity) {
  constexpr size_t kMaxProducts = 64;
  kubeapi::ResourceSummary summary{.nodes = static_cast<int64_t>(capacity.nodes.size())};
  kube::ResourceList allocatable, taken;
  std::map<std::string, kubeapi::DeviceSummary> devices;
  for (const cache::NodeCapacity& node : capacity.nodes) {
    if (!node.ready || node.unschedulable) continue;
    ++summary.ready_nodes;
    kube::AddResourceList(node.allocatable, allocatable);
    kube::AddResourceList(node.taken, taken);
    for (const auto& [resource, amount] : node.allocatable) {
      if (!IsAccelerator(resource) || amount <= 0) continue;
      kubeapi::DeviceSummary& device = devices[cache::ProductOf(node, resource)];
      device.allocatable += amount;
      device.allocated += kube::QuantityOf(node.taken, resource);
    }
  }
  summary.allocatable_millicpus = kube::QuantityOf(allocatable, kube::kCpu);
  summary.allocated_millicpus = kube::QuantityOf(taken, kube::kCpu);
  summary.allocatable_memory = MemoryOf(allocatable);
  summary.allocated_memory = MemoryOf(taken);
  for (auto& [product, device] : devices) {
    if (summary.devices.size() == kMaxProducts) break;
    device.product = base::TruncateUtf8(product, kubeapi::kMaxShortText);
    summary.devices.push_back(std::move(device));
  }
  return summary;
}

std::vector<lifecycle::EventRecord> EventsForClusterTransition(const kubeapi::FusionClusterStatus& before,
                                                               const kubeapi::FusionClusterStatus& next) {
  struct Kind {
    absl::string_view type;
    bool good;          // as True
    bool from_nothing;  // its first good word is news, too
  };
  std::vector<lifecycle::EventRecord> news;
  for (const Kind& kind : {Kind{kubeapi::kConnected, true, true}, Kind{kubeapi::kCredentialsValid, true, false},
                           Kind{kubeapi::kConflict, false, false}, Kind{kubeapi::kControlPlaneHealthy, true, false},
                           Kind{kubeapi::kClockSynced, true, false}, Kind{kubeapi::kTokenRenewed, true, false}}) {
    const kubeapi::Condition* const was = FindCondition(before.conditions, kind.type);
    const kubeapi::Condition* const is = FindCondition(next.conditions, kind.type);
    if (is == nullptr || (was != nullptr && was->status == is->status)) continue;
    const bool well = (is->status == kubeapi::ConditionStatus::kTrue) == kind.good;
    if (well && was == nullptr && !kind.from_nothing) continue;
    std::string message = is->message;
    if (message.empty()) message = absl::StrCat(kind.type, " is ", well == kind.good ? "True" : "False", " now.");
    news.push_back({.warning = !well, .reason = is->reason, .message = std::move(message)});
  }
  return news;
}

}  // namespace fusionllm::op::federation
