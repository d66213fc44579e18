#include "operator/cache/cluster_inventory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "operator/cache/job_pod.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::cache {
namespace {

kube::Informer::Options NodeOptions(const std::string& cluster, const kube::ReflectorLimits& limits) {
  return {.cluster = cluster, .scope = {.resource = manifests::kNodes}, .decode = kube::DecodeNode, .limits = limits};
}

absl::StatusOr<kube::ObjectPtr> DecodePod(absl::string_view text) {
  const auto pod = std::make_shared<JobPod>();
  FUSIONLLM_RETURN_IF_ERROR(ReadJobPod(text, *pod));
  return pod;
}

// The server leaves out what has ended: a cluster may keep thousands of those.
kube::Informer::Options OtherOptions(const std::string& cluster, const std::string& origin, const kube::ReflectorLimits& limits) {
  return {.cluster = cluster,
          .scope = {.resource = manifests::kPods,
                    .label_selector = absl::StrCat(manifests::kOriginLabel, "!=", origin),
                    .field_selector = "status.phase!=Succeeded,status.phase!=Failed"},
          .decode = DecodePod,
          .limits = limits};
}

const kube::Node& AsNode(const kube::ObjectPtr& object) { return static_cast<const kube::Node&>(*object); }
const JobPod& AsJobPod(const kube::ObjectPtr& object) { return static_cast<const JobPod&>(*object); }

// What was delivered of a pod that is gone may be less than a JobPod; what was delivered before is one.
bool HasFreed(const kube::InformerEvent& event) {
  const bool took = event.old != nullptr && !AsJobPod(event.old).ended;
  return took && (event.kind == kube::InformerEvent::Kind::kDeleted || AsJobPod(event.object).ended);
}

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
    NodeCapacity& room = capacity->nodes.emplace_back();
    room.name = node.meta.name;
    room.labels.insert(node.meta.labels.begin(), node.meta.labels.end());
    room.taints = node.taints;
    room.ready = node.ready;
    room.unschedulable = node.unschedulable;
    room.allocatable = node.allocatable;
  }
  std::vector<const JobPod*> waiting;
  for (const kube::ObjectPtr& object : pods) {
    const JobPod& pod = AsJobPod(object);
    if (pod.ended) continue;
    if (pod.job != nullptr) ++capacity->pods_of_job[pod.job->uid];
    if (pod.executor && !pod.node.empty()) ++capacity->executors;
    if (pod.node.empty()) {
      waiting.push_back(&pod);
      continue;
    }
    const auto at = index.find(pod.node);
    if (at == index.end()) continue;  // its node has gone
    kube::AddResourceList(*pod.requests, capacity->nodes[at->second].taken);
    if (pod.job != nullptr) capacity->of_jobs.push_back({pod.job, at->second, pod.requests});
  }
  // Each takes the first place that it fits into, and leaves what it leaves to the next.
  std::sort(waiting.begin(), waiting.end(), [](const JobPod* a, const JobPod* b) { return a->meta.Key() < b->meta.Key(); });
  for (const JobPod* pod : waiting) capacity->waiting.push_back({pod->job, pod->requests});
  return capacity;
}

}  // namespace

ClusterInventory::ClusterInventory(const std::string& cluster, const std::string& origin, kube::Informer& ours, kube::ApiClient& client,
                                   kube::Clock& clock, const kube::InformerMetrics* metrics, std::function<void()> on_capacity_increase,
                                   const kube::ReflectorLimits& limits)
    : ours_(ours),
      nodes_(client, clock, metrics, NodeOptions(cluster, limits)),
      others_(client, clock, metrics, OtherOptions(cluster, origin, limits)) {
  if (on_capacity_increase == nullptr) return;
  using Kind = kube::InformerEvent::Kind;
  nodes_.AddHandler([on_capacity_increase](const kube::InformerEvent& event) {
    if (event.resync || event.kind == Kind::kDeleted) return;
    if (event.kind == Kind::kAdded || event.old == nullptr || MayHaveGrown(AsNode(event.old), AsNode(event.object))) on_capacity_increase();
  });
  for (kube::Informer* pods : {&ours_, &others_}) {
    pods->AddHandler([on_capacity_increase](const kube::InformerEvent& event) {
      if (HasFreed(event)) on_capacity_increase();
    });
  }
}

void ClusterInventory::Start() {
  nodes_.Start();
  others_.Start();
}

void ClusterInventory::Stop() {
  nodes_.Stop();
  others_.Stop();
}

bool ClusterInventory::WaitForFirstLists(absl::Duration timeout) const {
  return nodes_.WaitForFirstList(timeout) && others_.WaitForFirstList(timeout) && ours_.WaitForFirstList(timeout);
}

bool ClusterInventory::WaitForSync(absl::Duration timeout) const {
  return nodes_.WaitForSync(timeout) && others_.WaitForSync(timeout) && ours_.WaitForSync(timeout);
}

std::shared_ptr<const ClusterCapacity> ClusterInventory::Capacity() const {
  if (!Status().ok()) return nullptr;
  // Versions before contents: what changes in between makes it again the next time.
  std::array versions = {nodes_.resource_version(), others_.resource_version(), ours_.resource_version()};
  const base::MutexLock lock(mutex_);
  if (capacity_ == nullptr || versions != versions_) {
    std::vector<kube::ObjectPtr> pods = others_.All(), ours = ours_.All();
    pods.insert(pods.end(), ours.begin(), ours.end());
    capacity_ = CapacityOf(nodes_.All(), pods);
    versions_ = std::move(versions);
  }
  return capacity_;
}

std::optional<absl::Time> ClusterInventory::AwaySince(const std::string& node) const {
  // What was delivered before the watch ended may be over: that is no reason to end what is at work there.
  if (node.empty() || !nodes_.State().watching) return std::nullopt;
  const kube::ObjectPtr object = nodes_.Get({"", node});
  if (object == nullptr || AsNode(object).ready || AsNode(object).away_since == absl::InfiniteFuture()) return std::nullopt;
  return AsNode(object).away_since;
}

absl::Status ClusterInventory::Status() const {
  using Named = std::pair<const char*, const kube::Informer*>;
  for (const auto& [what, informer] : {Named("nodes", &nodes_), Named("pods of others", &others_), Named("pods of jobs", &ours_)}) {
    const kube::InformerState state = informer->State();
    if (state.synced) continue;
    const std::string why(state.last_error.message());
    return absl::UnavailableError(absl::StrCat(what, " are not listed yet", why.empty() ? "" : ": ", why));
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::op::cache
