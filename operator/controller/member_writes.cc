#include "operator/controller/member_writes.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/controller/job_objects.h"
#include "operator/controller/refusal.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;

bool IsGone(const absl::Status& status) { return kube::IsApiNotFound(status); }

std::string Described(const manifests::JobIdentity& job, const std::string& pod) {
  return absl::StrCat("Pod ", pod, " in namespace ", job.ns);
}

}  // namespace

absl::StatusOr<json> FindPodOfThatName(cache::Member& member, const manifests::JobIdentity& job, const json& wanted,
                                       const kube::CallOptions& call) {
  const std::string name = kube::TextAt(wanted, "metadata", "name");
  FUSIONLLM_ASSIGN_OR_RETURN(
      const std::string answer,
      member.client().List(manifests::kPods, job.ns, {.field_selector = absl::StrCat("metadata.name=", name)}, call));
  const json list = kube::ParseJson(answer);
  const json& items = kube::ListOf(kube::At(list, "items"));
  if (items.empty()) return json();
  // By its labels alone anybody's may look like the job's.
  if (kube::TextAt(items.front(), "metadata", "labels", manifests::kJobUidLabel) != job.uid ||
      OwnerNameOf(items.front()) != manifests::OwnerConfigMapName(job)) {
    return absl::AlreadyExistsError(absl::StrCat(Described(job, name), " exists already and is not owned by this job"));
  }
  return items.front();
}

absl::Status MemberWrites::CreatePod(json pod) {
  // Where the chart's admission policy compares it with the owner ConfigMap's, a request that was stopped on its way is refused.
  if (fence_ != nullptr) pod["metadata"]["annotations"][manifests::kEpochAnnotation] = absl::StrCat(fence_->epoch());
  const absl::StatusOr<std::string> answer =
      member_.client().Create(manifests::kPods, job_.ns, pod.dump(), {.field_manager = manifests::kFieldManager}, call_);
  if (answer.ok()) member_.Wrote(job_.uid, manifests::kPods, *answer);
  const absl::Status& status = answer.status();
  return kube::IsApiAlreadyExists(status) ? Adopt(pod) : MarkPodError(status);
}

// A pod of that name is there: ours, which the cache does not show yet, or one that must not stand for it.
absl::Status MemberWrites::Adopt(const json& wanted) {
  const std::string name = kube::TextAt(wanted, "metadata", "name");
  const std::string which = Described(job_, name);
  FUSIONLLM_ASSIGN_OR_RETURN(const json there, FindPodOfThatName(member_, job_, wanted, call_));
  if (there.is_null()) return absl::UnavailableError(absl::StrCat(which, " was there and is gone"));
  if (!kube::At(there, "metadata", "deletionTimestamp").is_null()) return absl::OkStatus();  // its end brings us back
  const auto attempt = [](const json& pod) { return kube::TextAt(pod, "metadata", "labels", manifests::kAttemptLabel); };
  if (OwnerUidOf(there) == OwnerUidOf(wanted) && attempt(there) == attempt(wanted)) {
    member_.Wrote(job_.uid, manifests::kPods, there.dump());
    return absl::OkStatus();
  }
  // Of an owner ConfigMap that is gone, whose garbage it is.
  const kube::DeleteOptions options{.uid = kube::TextAt(there, "metadata", "uid")};
  const absl::Status deleted = member_.client().Delete(manifests::kPods, {job_.ns, name}, options, call_).status();
  if (!deleted.ok() && !IsGone(deleted) && !kube::IsApiConflict(deleted)) return deleted;
  return absl::UnavailableError(absl::StrCat(which, " had another owner, and is created again"));
}

absl::Status MemberWrites::RemovePods(const std::string& cluster, const std::vector<lifecycle::PodRemoval>& removals) {
  for (const lifecycle::PodRemoval& removal : removals) {
    if (removal.cluster != cluster) continue;
    const kube::DeleteOptions options{.uid = removal.uid, .grace_period_seconds = removal.grace_seconds};
    const absl::Status status = member_.client().Delete(manifests::kPods, {job_.ns, removal.name}, options, call_).status();
    // A conflict: another pod has taken the name.
    if (!status.ok() && !IsGone(status) && !kube::IsApiConflict(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status MemberWrites::DeleteOwnerConfigMap() {
  const auto owner_config_map = member_.OwnerConfigMapOf(job_);
  if (!owner_config_map.has_value() || owner_config_map->terminating) return absl::OkStatus();
  // In the foreground: while it is there, something of the job is.
  const kube::DeleteOptions options{.propagation = kube::DeletionPropagation::kForeground, .uid = owner_config_map->uid};
  const absl::Status status =
      member_.client().Delete(manifests::kConfigMaps, {job_.ns, manifests::OwnerConfigMapName(job_)}, options, call_).status();
  return IsGone(status) || kube::IsApiConflict(status) ? absl::OkStatus() : status;
}

absl::Status MemberWrites::PreserveOwnerConfigMap() {
  const auto owner_config_map = member_.OwnerConfigMapOf(job_);
  if (!owner_config_map.has_value() || owner_config_map->preserved) return absl::OkStatus();
  const json patch = {{"metadata", {{"uid", owner_config_map->uid}, {"annotations", {{manifests::kPreservedAnnotation, "true"}}}}}};
  const absl::StatusOr<std::string> answer =
      member_.client().Patch(manifests::kConfigMaps, {job_.ns, manifests::OwnerConfigMapName(job_)}, kube::PatchType::kMerge, patch.dump(),
                             {.field_manager = manifests::kFieldManager}, call_);
  if (answer.ok()) member_.Wrote(job_.uid, manifests::kConfigMaps, *answer);
  return IsGone(answer.status()) || kube::IsApiConflict(answer.status()) ? absl::OkStatus() : answer.status();
}

}  // namespace fusionllm::op::controller
