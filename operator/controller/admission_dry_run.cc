#include "operator/controller/admission_dry_run.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "operator/controller/dry_run_pods.h"
#include "operator/controller/prepare.h"

namespace fusionllm::op::controller {
namespace {

// What the job would still have to get in a cluster.
struct Lack {
  bool broker = false;
  std::optional<manifests::ExecutorSlot> executor;  // the first
  bool any() const { return broker || executor.has_value(); }
};

// The broker is in the first, whichever clusters lend devices.
bool IsHub(const lifecycle::Observation& seen, const lifecycle::ClusterView& cluster) { return &cluster == &seen.clusters.front(); }

// At the beginning of a sentence. What the hub is called as one that lends devices few know, and no one where it lends none.
std::string Called(const lifecycle::Observation& seen, const lifecycle::ClusterView& cluster) {
  return IsHub(seen, cluster) ? "The hub" : absl::StrCat("Cluster ", cluster.name);
}

Lack LackIn(const lifecycle::Observation& seen, const lifecycle::ClusterView& cluster) {
  Lack lack;
  if (seen.IsInactive() || seen.slots.empty()) return lack;
  bool has_broker = false;
  std::set<int> executors;  // by index
  for (const lifecycle::PodView& pod : cluster.pods) {
    if (pod.attempt != seen.persisted.attempt) continue;
    has_broker = has_broker || pod.role == manifests::kBrokerRole;
    if (pod.role == manifests::kExecutorRole) executors.insert(pod.index);
  }
  lack.broker = IsHub(seen, cluster) && !has_broker;
  const auto first = std::find_if(seen.slots.begin(), seen.slots.end(), [&](const manifests::ExecutorSlot& slot) {
    return slot.cluster == cluster.name && !executors.contains(slot.index);
  });
  if (first != seen.slots.end()) lack.executor = *first;
  return lack;
}

}  // namespace

void AdmissionDryRun::Observe(lifecycle::Observation& seen) const {
  for (lifecycle::ClusterView& cluster : seen.clusters) {
    const DryRunResults::Result result = dry_run_.Of(KeyOf(seen, cluster.name));
    const bool lacks = LackIn(seen, cluster).any();
    if (lacks || seen.deleted_at.has_value()) {
      cluster.refusal = result.refusal;
      cluster.retry_at = result.retry_at;
      cluster.dry_run_accepted = result.accepted;
    }
    if (IsHub(seen, cluster) || !lacks || !cluster.reachable || result.accepted || result.refusal.has_value()) continue;
    // Before the hub's owner ConfigMap says where the attempt is placed no member knows what it would have to take.
    cluster.dry_run_pending = !seen.placed || seen.now < dry_run_.Await(KeyOf(seen, cluster.name), seen.now) + kAnswerTimeout;
  }
}

bool AdmissionDryRun::IsClosed(const lifecycle::Observation& seen, const std::string& cluster) const {
  return seen.now < dry_run_.Of(KeyOf(seen, cluster)).retry_at;
}

std::string AdmissionDryRun::ConflictIn(const lifecycle::Observation& seen, const std::string& cluster) const {
  const std::optional<lifecycle::Refusal> refusal = dry_run_.Of(KeyOf(seen, cluster)).refusal;
  return refusal.has_value() && refusal->reason == kConflict ? refusal->message : "";
}

void AdmissionDryRun::Try(cache::Member& member, const lifecycle::Observation& seen, lifecycle::ClusterView& here, const std::string& hub,
                          std::stop_token stop) {
  const Lack lack = LackIn(seen, here);
  if (!lack.any()) return;
  const DryRunResults::Key key = KeyOf(seen, here.name);
  const DryRunResults::Result result = dry_run_.Of(key);
  if (result.accepted || seen.now < result.retry_at) return;
  const absl::StatusOr<std::optional<Refused>> answer =
      DryRunPods(member,
                 {.identity = &seen.identity,
                  .job = &seen.job,
                  .images = &images_,
                  .attempt = {.number = seen.persisted.attempt, .slots = seen.slots, .hub = hub},
                  .where = Called(seen, here),
                  .broker = lack.broker,
                  .executor = lack.executor},
                 std::move(stop));
  if (!answer.ok()) return;  // what is made meets the same
  here.dry_run_pending = false;
  here.dry_run_accepted = accepts_ = !answer->has_value();
  if (accepts_) return;
  changed_ = dry_run_.Refuse(key, **answer, seen.now);
  here.refusal = (*answer)->refusal;
  here.retry_at = seen.now + (*answer)->retry_after;
}

bool AdmissionDryRun::RecordOutcome(const lifecycle::Observation& seen, const lifecycle::Decision& decision,
                                    const lifecycle::ClusterView& here, const absl::Status& status) {
  const DryRunResults::Key key = KeyOf(seen, here.name);
  const std::optional<Refused> refused = RefusalOf(status, Called(seen, here));
  // An address that does not come yet is no refusal of anything.
  if (accepts_ && !refused.has_value() && (status.ok() || AwaitsAddress(status))) changed_ = dry_run_.Accept(key) || changed_;
  if (status.ok()) {
    const bool tried = (decision.prepare || decision.delete_owner_config_maps) && here.retry_at <= seen.now;
    if (tried && here.refusal.has_value() && dry_run_.Succeed(key)) changed_ = needs_requeue_ = true;
    return false;
  }
  if (!refused.has_value()) return false;
  const bool was_closed = IsClosed(seen, here.name);
  const bool changed = dry_run_.Refuse(key, *refused, seen.now);
  changed_ = changed_ || changed;
  // Something is to be removed, which does not wait: it is tried again as any failure is, ever later.
  if (was_closed && !changed) return false;
  needs_requeue_ = true;
  return true;
}

}  // namespace fusionllm::op::controller
