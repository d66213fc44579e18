#include "operator/inventory/cluster_inventory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/kube/watch/pod_demand.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op {
namespace {

kube::Informer::Options NodeOptions(const std::string& cluster) {
  return {.cluster = cluster, .scope = {.resource = kNodes}, .decode = kube::DecodeNode};
}

// The server leaves out what has ended: a cluster may keep thousands of those.
kube::Informer::Options PodOptions(const std::string& cluster) {
  return {.cluster = cluster,
          .scope = {.resource = kPods, .field_selector = "status.phase!=Succeeded,status.phase!=Failed"},
          .decode = [](absl::string_view text) {
            return kube::DecodePodDemand(text, {kJobUidLabel, kRoleLabel});
          }};
}

const kube::Node& AsNode(const kube::ObjectPtr& object) { return static_cast<const kube::Node&>(*object); }
const kube::PodDemand& AsPod(const kube::ObjectPtr& object) { return static_cast<const kube::PodDemand&>(*object); }

// Kubelets report every few minutes without anything new in it.
bool MayHaveGrown(const kube::Node& before, const kube::Node& now) {
  return before.ready != now.ready || before.unschedulable != now.unschedulable || before.allocatable != now.allocatable ||
         before.taints != now.taints || before.meta.labels != now.meta.labels;
}

std::shared_ptr<const ClusterCapacity> CapacityOf(std::vector<kube::ObjectPtr> nodes, const std::vector<kube::ObjectPtr>& pods) {
  // A cache has no order: the same cluster would be filled in another one after each start.
  std::sort(nodes.begin(), nodes.end(), [](const kube::ObjectPtr& a, const kube::ObjectPtr& b) { return a->meta.name < b->meta.name; });
  auto capacity = std::make_shared<ClusterCapacity>();
  std::map<std::string, size_t> index;
  for (const kube::ObjectPtr& object : nodes) {
    const kube::Node& node = AsNode(object);
    index[node.meta.name] = capacity->nodes.size();
    NodeRoom& room = capacity->nodes.emplace_back();
    room.name = node.meta.name;
    room.labels.insert(node.meta.labels.begin(), node.meta.labels.end());
    room.taints = node.taints;
    room.ready = node.ready;
    room.unschedulable = node.unschedulable;
    room.allocatable = node.allocatable;
  }
  for (const kube::ObjectPtr& object : pods) {
    const kube::PodDemand& pod = AsPod(object);
    if (pod.ended) continue;
    const std::string job(pod.meta.Label(kJobUidLabel));
    if (!job.empty()) ++capacity->pods_of_job[job];
    if (!job.empty() && !pod.node.empty() && pod.meta.Label(kRoleLabel) == kExecutorRole) ++capacity->executors;
    if (pod.node.empty()) {
      capacity->waiting.push_back({job, pod.requests});
      continue;
    }
    const auto at = index.find(pod.node);
    if (at == index.end()) continue;  // its node has gone
    NodeRoom& room = capacity->nodes[at->second];
    kube::AddAmounts(pod.requests, room.taken);
    if (!job.empty()) kube::AddAmounts(pod.requests, room.of_job[job]);
  }
  return capacity;
}

}  // namespace

ClusterInventory::ClusterInventory(const std::string& cluster, kube::ApiClient& client, kube::Clock& clock,
                                   const kube::InformerMetrics* metrics, std::function<void()> grew)
    : nodes_(client, clock, metrics, NodeOptions(cluster)), pods_(client, clock, metrics, PodOptions(cluster)) {
  if (grew == nullptr) return;
  using Kind = kube::InformerEvent::Kind;
  nodes_.AddHandler([grew](const kube::InformerEvent& event) {
    if (event.resync || event.kind == Kind::kDeleted) return;
    if (event.kind == Kind::kAdded || event.old == nullptr || MayHaveGrown(AsNode(event.old), AsNode(event.object))) grew();
  });
  pods_.AddHandler([grew](const kube::InformerEvent& event) {
    if (event.kind == Kind::kDeleted || AsPod(event.object).ended) grew();
  });
}

void ClusterInventory::Start() {
  nodes_.Start();
  pods_.Start();
}

void ClusterInventory::Stop() {
  nodes_.Stop();
  pods_.Stop();
}

bool ClusterInventory::WaitForFirstLists(absl::Duration patience) const {
  return nodes_.WaitForFirstList(patience) && pods_.WaitForFirstList(patience);
}

std::shared_ptr<const ClusterCapacity> ClusterInventory::Capacity() const {
  if (!Status().ok()) return nullptr;
  // Versions before contents: what changes in between makes it anew the next time.
  const std::string nodes = nodes_.resource_version(), pods = pods_.resource_version();
  const std::lock_guard lock(mutex_);
  if (capacity_ == nullptr || nodes != nodes_version_ || pods != pods_version_) {
    capacity_ = CapacityOf(nodes_.All(), pods_.All());
    nodes_version_ = nodes;
    pods_version_ = pods;
  }
  return capacity_;
}

absl::Status ClusterInventory::Status() const {
  for (const auto& [what, informer] : {std::pair("nodes", &nodes_), std::pair("pods", &pods_)}) {
    const kube::InformerState state = informer->State();
    if (state.synced) continue;
    const std::string why(state.last_error.message());
    return absl::UnavailableError(absl::StrCat(what, " are not listed yet", why.empty() ? "" : ": ", why));
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::op
