#include "operator/cache/cluster_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/kube/api/api_error.h"
#include "operator/cache/cached_objects.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::cache {
namespace {

constexpr char kByJob[] = "job";
constexpr absl::Duration kCompareTimeout = absl::Minutes(2);

const CachedPod& AsPod(const kube::Object& object) { return static_cast<const CachedPod&>(object); }
const CachedOwnerConfigMap& AsOwnerConfigMap(const kube::Object& object) { return static_cast<const CachedOwnerConfigMap&>(object); }

manifests::JobIdentity IdentityOf(const kube::ObjectMeta& meta, const JobRef& job) {
  return {.name = job.name, .ns = meta.ns, .uid = job.uid, .origin = ""};
}

std::vector<std::string> UidOf(const JobRefPtr& job) { return job == nullptr ? std::vector<std::string>() : std::vector{job->uid}; }

kube::Informer::Options PodOptions(const std::string& cluster, const std::string& origin, const kube::ReflectorLimits& limits) {
  return {.cluster = cluster,
          .scope = {.resource = manifests::kPods, .label_selector = absl::StrCat(manifests::kOriginLabel, "=", origin)},
          .decode = CachedPod::Decode,
          .limits = limits};
}

// `seen` is called with each owner ConfigMap that arrives, before the informer has it.
kube::Informer::Options OwnerConfigMapOptions(const std::string& cluster, const std::string& origin, const kube::ReflectorLimits& limits,
                                              std::function<void(const CachedOwnerConfigMap&)> seen) {
  return {.cluster = cluster,
          .scope = {.resource = manifests::kConfigMaps,
                    .label_selector = absl::StrCat(manifests::kOriginLabel, "=", origin, ",", manifests::kRoleLabel, "=",
                                                   manifests::kOwnerConfigMapRole)},
          .decode =
              [seen = std::move(seen)](absl::string_view text) {
                absl::StatusOr<kube::ObjectPtr> owner_config_map = CachedOwnerConfigMap::Decode(text);
                if (owner_config_map.ok()) seen(AsOwnerConfigMap(**owner_config_map));
                return owner_config_map;
              },
          .limits = limits};
}

// What is delivered of an object that is gone may be its metadata alone; what was known of it before is all.
const kube::Object& Known(const kube::InformerEvent& event) {
  return event.kind == kube::InformerEvent::Kind::kDeleted ? *event.old : *event.object;
}

// By the server, or by our own credentials, of which there are none: then there was no request.
bool IsRefusal(const absl::Status& status) { return absl::IsUnauthenticated(status) || kube::IsApiForbidden(status); }

absl::Status Lost(const std::string& what, const absl::Status& why) {
  const std::string text = why.ok() ? what : absl::StrCat(what, ": ", std::string(why.message()));
  return absl::Status(IsRefusal(why) ? why.code() : absl::StatusCode::kUnavailable, text);
}

}  // namespace

ClusterCache::ClusterCache(std::string name, const std::string& origin, kube::HeartbeatClient& reads, kube::ApiClient& writes,
                           kube::Clock& clock, const kube::InformerMetrics* metrics, JobChanged changed,
                           std::function<void()> on_capacity_increase, const kube::ReflectorLimits& limits)
    : name_(std::move(name)),
      reads_(reads),
      writes_(writes),
      clock_(clock),
      pods_(reads, clock, metrics, PodOptions(name_, origin, limits)),
      owner_config_maps_(reads, clock, metrics,
                         OwnerConfigMapOptions(name_, origin, limits,
                                               [this](const CachedOwnerConfigMap& owner_config_map) { Remember(owner_config_map); })),
      pod_writes_(pods_, clock),
      owner_config_map_writes_(owner_config_maps_, clock),
      inventory_(name_, origin, pods_, reads, clock, metrics, std::move(on_capacity_increase), limits) {
  const auto notify = [changed = std::move(changed)](const kube::InformerEvent& event, const kube::Object& object, const JobRefPtr& job) {
    if (job != nullptr) changed({object.meta.ns, job->name}, !event.initial && !event.resync);
  };
  pods_.AddIndex(kByJob, [](const kube::Object& object) { return UidOf(AsPod(object).job); });
  owner_config_maps_.AddIndex(kByJob, [](const kube::Object& object) { return UidOf(AsOwnerConfigMap(object).job()); });
  pods_.AddHandler([this, notify](const kube::InformerEvent& event) {
    if (event.kind == kube::InformerEvent::Kind::kDeleted) KeepReport(event);
    notify(event, Known(event), AsPod(Known(event)).job);
  });
  owner_config_maps_.AddHandler([this, notify](const kube::InformerEvent& event) {
    const CachedOwnerConfigMap& owner_config_map = AsOwnerConfigMap(Known(event));
    if (event.kind == kube::InformerEvent::Kind::kDeleted) {
      if (const auto job = JobOf(owner_config_map.View()); job.has_value()) ForgetReport(*job);
    }
    Remember(owner_config_map);  // again: ForgetOwnerConfigMapsWithoutPods() may have looked between its arrival and now
    notify(event, owner_config_map, owner_config_map.job());
  });
}

void ClusterCache::Start() {
  pods_.Start();
  owner_config_maps_.Start();
  inventory_.Start();
}

void ClusterCache::Stop() {
  pods_.Stop();
  owner_config_maps_.Stop();
  inventory_.Stop();
}

bool ClusterCache::WaitForSync(absl::Duration timeout) {
  return pods_.WaitForSync(timeout) && owner_config_maps_.WaitForSync(timeout) && inventory_.WaitForFirstLists(timeout);
}

bool ClusterCache::Listed() const {
  if (!listed_) listed_ = pods_.State().synced && owner_config_maps_.State().synced && inventory_.WaitForFirstLists(absl::ZeroDuration());
  return listed_;
}

bool ClusterCache::Watched() const {
  const bool watching = pods_.State().watching && owner_config_maps_.State().watching;
  const base::MutexLock lock(mutex_);
  return watched_ = watched_ || watching;
}

absl::Status ClusterCache::Credentials() const {
  for (const kube::Informer* informer : {&pods_, &owner_config_maps_}) {
    const kube::InformerState state = informer->State();
    if (!state.watching && absl::IsUnauthenticated(state.last_error)) return Lost("no watch", state.last_error);
  }
  return absl::OkStatus();
}

absl::Status ClusterCache::Connection() const {
  bool watching = true, synced = true;
  absl::Status why;
  for (const kube::Informer* informer : {&pods_, &owner_config_maps_}) {
    const kube::InformerState state = informer->State();
    watching = watching && state.watching;
    synced = synced && state.synced;
    if (!state.watching && (why.ok() || IsRefusal(state.last_error))) why = state.last_error;
  }
  if (!synced) return Lost("not listed yet", why);
  const absl::Duration now = clock_.Monotonic();
  const base::MutexLock lock(mutex_);
  if (watching) {
    watched_ = true;
    lost_at_.reset();
    return absl::OkStatus();
  }
  // A list alone proves nothing: a cluster whose watches never open would be led by what was once there.
  if (!watched_) return Lost("no watch yet", why);
  if (!lost_at_.has_value()) lost_at_ = now;
  // A server that answers nothing is away; watches of one that answers end and begin again.
  if (reads_.Alive() && now - *lost_at_ < kLossTimeout) return absl::OkStatus();
  // Not for how long: that would be another status each time that somebody looks. The condition tells since when.
  return Lost("no watch", why);
}

absl::Status ClusterCache::CompareWithServer(std::stop_token stop) {
  {
    // Of jobs that are not asked about any more.
    const base::MutexLock lock(writes_mutex_);
    std::erase_if(written_,
                  [this](const auto& of_job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writes_mutex_) { return AllSeenLocked(of_job.second); });
  }
  ForgetOwnerConfigMapsWithoutPods();
  absl::Status first;
  for (kube::Informer* informer : {&pods_, &owner_config_maps_}) {
    const absl::StatusOr<bool> same = informer->IsConsistent({.timeout = kCompareTimeout, .stop = stop});
    if (!same.ok()) {
      first.Update(same.status());
    } else if (!*same) {
      base::Log(base::LogLevel::kError, absl::StrCat("cluster ", name_, ": the cache of ", informer == &pods_ ? "pods" : "owner ConfigMaps",
                                                     " is not what the server has; listing again"));
      informer->Relist();
    }
  }
  return first;
}

std::vector<lifecycle::PodView> ClusterCache::PodsOf(const manifests::JobIdentity& job) const {
  const std::set<std::string> owner_config_maps = OwnerConfigMapUids(job);
  std::vector<lifecycle::PodView> views;
  for (const kube::ObjectPtr& object : pods_.Find(kByJob, job.uid)) {
    const CachedPod& pod = AsPod(*object);
    lifecycle::PodView view = pod.View(name_);
    if (!IsPodOf(view, job, owner_config_maps)) continue;
    view.node_away_since = inventory_.AwaySince(pod.node);
    if (view.node_away_since.has_value()) view.node = pod.node;
    if (view.reason == "Unschedulable") {
      const std::shared_ptr<const ClusterCapacity> capacity = inventory_.Capacity();
      if (capacity != nullptr) absl::StrAppend(&view.message, UnavailableNodes(*capacity));
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::optional<OwnerConfigMapView> ClusterCache::OwnerConfigMapOf(const manifests::JobIdentity& job) const {
  for (const kube::ObjectPtr& object : owner_config_maps_.Find(kByJob, job.uid)) {
    if (OwnerConfigMapView owner_config_map = AsOwnerConfigMap(*object).View(); IsOwnerConfigMapOf(owner_config_map, job))
      return owner_config_map;
  }
  return std::nullopt;
}

std::set<std::string> ClusterCache::OwnerConfigMapUids(const manifests::JobIdentity& job) const {
  std::set<std::string> uids;
  {
    const base::MutexLock lock(left_mutex_);
    if (const auto at = owner_config_maps_seen_.find(KeyOf(job)); at != owner_config_maps_seen_.end()) uids = at->second;
  }
  if (const auto owner_config_map = OwnerConfigMapOf(job)) uids.insert(owner_config_map->uid);
  return uids;
}

// When an owner ConfigMap has gone, pods of it may be at work until the cluster's own garbage collector finds them, and others must not
// work beside them. It is remembered before the informer has it: an owner ConfigMap may come and go before a handler sees either.
void ClusterCache::Remember(const CachedOwnerConfigMap& seen) {
  const OwnerConfigMapView owner_config_map = seen.View();
  const std::optional<manifests::JobIdentity> job = JobOf(owner_config_map);
  if (!job.has_value()) return;
  const base::MutexLock lock(left_mutex_);
  owner_config_maps_seen_[KeyOf(*job)].insert(owner_config_map.uid);
}

void ClusterCache::ForgetOwnerConfigMapsWithoutPods() {
  const base::MutexLock lock(left_mutex_);
  std::erase_if(owner_config_maps_seen_, [this](const auto& of_job) {
    const std::string& uid = of_job.first.uid;
    return pods_.Find(kByJob, uid).empty() && owner_config_maps_.Find(kByJob, uid).empty();
  });
}

void ClusterCache::KeepReport(const kube::InformerEvent& gone) {
  // Deleted with its last state, which may be the first that is delivered of the end.
  for (const kube::ObjectPtr& pod : {gone.object, gone.old}) {
    if (pod == nullptr) continue;
    const auto* const cached = dynamic_cast<const CachedPod*>(pod.get());
    if (cached == nullptr || cached->job == nullptr) continue;
    const lifecycle::PodView view = cached->View(name_);
    const manifests::JobIdentity job = IdentityOf(cached->meta, *cached->job);
    if (view.role != manifests::kBrokerRole || !view.report.has_value() || !IsPodOf(view, job, OwnerConfigMapUids(job))) continue;
    {
      const base::MutexLock lock(left_mutex_);
      const BrokerReport report{view.attempt, *view.report, view.disruption};
      const auto [at, is_new] = reports_.try_emplace(KeyOf(job), report);
      if (!is_new && at->second.attempt <= view.attempt) at->second = report;
    }
    // Whose owner ConfigMap went first is asked about no more. The other way round, the owner ConfigMap's own end does it.
    if (!OwnerConfigMapOf(job).has_value()) ForgetReport(job);
    return;
  }
}

void ClusterCache::ForgetReport(const manifests::JobIdentity& job) {
  const base::MutexLock lock(left_mutex_);
  reports_.erase(KeyOf(job));
}

std::optional<BrokerReport> ClusterCache::LastReportOf(const manifests::JobIdentity& job) const {
  const base::MutexLock lock(left_mutex_);
  const auto at = reports_.find(KeyOf(job));
  return at == reports_.end() ? std::nullopt : std::optional(at->second);
}

std::vector<OwnerConfigMapView> ClusterCache::OwnerConfigMaps() const {
  std::vector<OwnerConfigMapView> views;
  for (const kube::ObjectPtr& object : owner_config_maps_.All()) {
    if (OwnerConfigMapView owner_config_map = AsOwnerConfigMap(*object).View(); JobOf(owner_config_map).has_value())
      views.push_back(std::move(owner_config_map));
  }
  return views;
}

void ClusterCache::Wrote(const std::string& job_uid, const kube::Resource& resource, const std::string& answer) {
  const absl::StatusOr<kube::ObjectPtr> object = kube::DecodeMetadata(answer);
  if (!object.ok()) return;  // metav1.Status: it is gone, which is no reason to wait
  const kube::ObjectMeta& meta = (*object)->meta;
  const base::MutexLock lock(writes_mutex_);
  written_[job_uid].insert(meta.Key());
  (resource.plural == manifests::kPods.plural ? pod_writes_ : owner_config_map_writes_).Wrote(meta.Key(), meta.resource_version);
}

bool ClusterCache::SeenWrites(const std::string& job_uid) {
  const base::MutexLock lock(writes_mutex_);
  const auto at = written_.find(job_uid);
  if (at == written_.end()) return true;
  if (!AllSeenLocked(at->second)) return false;
  written_.erase(at);
  return true;
}

bool ClusterCache::AllSeenLocked(const std::set<kube::ObjectKey>& keys) {
  const auto matters = [&](const kube::ObjectKey& key) { return keys.contains(key); };
  return pod_writes_.AllSeen(matters) && owner_config_map_writes_.AllSeen(matters);
}

}  // namespace fusionllm::op::cache
