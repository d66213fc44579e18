#include "operator/controller/orphan_collector.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

using kube::ReconcileResult;
using nlohmann::json;

// It is gone, or another has its name.
bool IsDone(const absl::Status& status) { return status.ok() || kube::IsApiNotFound(status) || kube::IsApiConflict(status); }

std::string Describe(const cache::OwnerConfigMapView& owner_config_map) {
  return absl::StrCat("job ", owner_config_map.ns, "/", owner_config_map.job, " (uid ", owner_config_map.job_uid, ")");
}

}  // namespace

OrphanMetrics::OrphanMetrics(metrics::Registry& registry)
    : orphans_(
          registry.AddGauge({.name = "orphans",
                             .help = "Jobs that are gone and have objects left in the cluster, or may have while it is away, as last seen.",
                             .labels = {"cluster"}})),
      deleted_(registry.AddCounter(
          {.name = "gc_deleted_total", .help = "Jobs' leftovers that were deleted from the cluster.", .labels = {"cluster"}})) {}

ReconcileResult OrphanCollector::Collect(cache::Member& member, std::stop_token stop) {
  if (!member.reachable()) return CountPendingCleanup(member.name(), stop);
  const absl::StatusOr<std::vector<Tombstone>> tombstones = tombstones_.In(member.name(), stop);
  if (!tombstones.ok()) return ReconcileResult::Failed(tombstones.status());
  std::set<std::string> owed;
  for (const Tombstone& tombstone : *tombstones) {
    owed.insert(tombstone.job_uid);
    if (absl::Status status = ProcessTombstone(member, tombstone, stop); !status.ok()) return ReconcileResult::Failed(status);
  }

  std::set<std::string> before, suspects;
  {
    const base::MutexLock lock(mutex_);
    before = known_[member.name()].suspects;
  }
  for (const cache::OwnerConfigMapView& owner_config_map : member.OwnerConfigMaps()) {
    if (hub_uid_.empty() || owner_config_map.hub != hub_uid_ || owner_config_map.preserved || owner_config_map.terminating ||
        owed.contains(owner_config_map.job_uid))
      continue;
    if (knows_job_({owner_config_map.ns, owner_config_map.job}, owner_config_map.job_uid)) continue;
    const absl::StatusOr<bool> exists = JobExists(owner_config_map, stop);
    if (!exists.ok()) return ReconcileResult::Failed(exists.status());
    if (*exists) continue;
    suspects.insert(owner_config_map.uid);
    if (!before.contains(owner_config_map.uid)) continue;
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("cluster ", member.name(), ": ", Describe(owner_config_map), " is gone from the hub: deleting what it left"));
    if (absl::Status status = Delete(member, owner_config_map, stop); !status.ok()) return ReconcileResult::Failed(status);
  }
  if (metrics_ != nullptr) {
    metrics_->orphans_.Set(static_cast<double>(owed.size() + suspects.size()), {member.name()});
    metrics_->deleted_.Add(0, {member.name()});  // counted from zero: the first is a rise that can be seen
  }
  const base::MutexLock lock(mutex_);
  known_[member.name()] = {.suspects = std::move(suspects)};
  return ReconcileResult::RequeueAfter(kEvery);
}

ReconcileResult OrphanCollector::CountPendingCleanup(const std::string& cluster, const std::stop_token& stop) {
  {
    const base::MutexLock lock(mutex_);
    if (known_[cluster].passes_while_unreachable++ % kPassesBetweenCounts != 0) return ReconcileResult::RequeueAfter(kUnreachablePeriod);
  }
  const absl::StatusOr<std::vector<Tombstone>> tombstones = tombstones_.In(cluster, stop);
  if (!tombstones.ok()) return ReconcileResult::Failed(tombstones.status());
  if (metrics_ != nullptr) metrics_->orphans_.Set(static_cast<double>(tombstones->size()), {cluster});
  return ReconcileResult::RequeueAfter(kUnreachablePeriod);
}

void OrphanCollector::Leave(const std::string& cluster) {
  if (metrics_ != nullptr) metrics_->orphans_.Remove({cluster});
  const base::MutexLock lock(mutex_);
  known_.erase(cluster);
}

absl::Status OrphanCollector::ProcessTombstone(cache::Member& member, const Tombstone& tombstone, const std::stop_token& stop) {
  const manifests::JobIdentity job{.name = tombstone.job, .ns = tombstone.ns, .uid = tombstone.job_uid, .origin = ""};
  const std::optional<cache::OwnerConfigMapView> owner_config_map = member.OwnerConfigMapOf(job);
  if (!owner_config_map.has_value()) {
    // Nothing is left, or only pods that the cluster's own garbage collector is about to find without their owner.
    if (!tombstone.preserve && !member.PodsOf(job).empty()) return absl::OkStatus();
    base::Log(base::LogLevel::kInfo,
              absl::StrCat("cluster ", member.name(), ": nothing is left of job ", tombstone.ns, "/", tombstone.job));
    return tombstones_.Remove(tombstone, stop);
  }
  if (!tombstone.preserve) return owner_config_map->terminating ? absl::OkStatus() : Delete(member, *owner_config_map, stop);
  if (!owner_config_map->preserved) {
    const json patch = {{"metadata", {{"uid", owner_config_map->uid}, {"annotations", {{manifests::kPreservedAnnotation, "true"}}}}}};
    const absl::StatusOr<std::string> marked =
        member.client().Patch(manifests::kConfigMaps, {owner_config_map->ns, owner_config_map->name}, kube::PatchType::kMerge, patch.dump(),
                              {.field_manager = manifests::kFieldManager}, {.stop = stop});
    if (!IsDone(marked.status())) return marked.status();
  }
  return tombstones_.Remove(tombstone, stop);
}

absl::Status OrphanCollector::Delete(cache::Member& member, const cache::OwnerConfigMapView& owner_config_map,
                                     const std::stop_token& stop) {
  const kube::DeleteOptions options{.propagation = kube::DeletionPropagation::kForeground, .uid = owner_config_map.uid};
  const absl::Status status =
      member.client().Delete(manifests::kConfigMaps, {owner_config_map.ns, owner_config_map.name}, options, {.stop = stop}).status();
  if (status.ok() && metrics_ != nullptr) metrics_->deleted_.Add(1, {member.name()});
  return IsDone(status) ? absl::OkStatus() : status;
}

absl::StatusOr<bool> OrphanCollector::JobExists(const cache::OwnerConfigMapView& owner_config_map, const std::stop_token& stop) const {
  // A list, not a get: a hub that does not serve FusionJobs at all answers the first with an error and the second as if the job were gone.
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string answer,
                             hub_.List(manifests::kFusionJobs, owner_config_map.ns,
                                       {.field_selector = absl::StrCat("metadata.name=", owner_config_map.job)}, {.stop = stop}));
  const json list = kube::ParseJson(answer);
  const json& jobs = kube::At(list, "items");
  if (!jobs.is_array()) return absl::InternalError("the hub's answer to a list of FusionJobs is none");
  return std::any_of(jobs.begin(), jobs.end(),
                     [&](const json& job) { return kube::TextAt(job, "metadata", "uid") == owner_config_map.job_uid; });
}

}  // namespace fusionllm::op::controller
