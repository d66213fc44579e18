#include "operator/kueue/queue_status.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/kube/api/json_fields.h"
#include "operator/kueue/kueue_workload.h"

namespace fusionllm::op::kueue {
namespace {

using kube::At;
using kube::ListOf;
using kube::TextAt;
using nlohmann::json;

std::string MessageOf(const json& workload, const char* type, const char* field = "message") {
  for (const json& condition : ListOf(At(workload, "status", "conditions"))) {
    if (TextAt(condition, "type") == type) return TextAt(condition, field);
  }
  return "";
}

std::string After(const char* before, const std::string& text) { return text.empty() ? "" : absl::StrCat(before, text); }

lifecycle::QueueStatus Holds(const char* reason, std::string message) {
  return {.holds = true, .reason = reason, .message = std::move(message)};
}

// Nothing begins without Kueue, and nothing ends for want of it: who takes it away, or the right to it, does not mean the jobs that run.
lifecycle::QueueStatus WithoutKueue(const QueuedJob& queued, const char* reason, const std::string& what) {
  return {.holds = !queued.started,
          .admitted = false,
          .reason = reason,
          .message = absl::StrCat(what, " The job waits for LocalQueue ", queued.queue, " of Kueue, by its label ",
                                  manifests::kQueueNameLabel, queued.started ? "; what runs goes on." : ", and holds nothing."),
          .requeue_after = kKueueDiscoveryPeriod};
}

std::string PendingChecks(const json& workload) {
  std::vector<std::string> pending;
  for (const json& check : ListOf(At(workload, "status", "admissionChecks"))) {
    if (TextAt(check, "state") == "Ready") continue;
    pending.push_back(
        absl::StrCat(TextAt(check, "name"), After(" (", TextAt(check, "message")), TextAt(check, "message").empty() ? "" : ")"));
  }
  return absl::StrJoin(pending, ", ");
}

lifecycle::QueueStatus Waiting(const QueuedJob& queued, const json& workload) {
  if (WorkloadIs(workload, "QuotaReserved")) {
    const std::string checks = PendingChecks(workload);
    return Holds(lifecycle::kQueued, absl::StrCat("Queued: ClusterQueue ", TextAt(workload, "status", "admission", "clusterQueue"),
                                                  " has reserved quota; waiting for ",
                                                  checks.empty() ? "its admission" : absl::StrCat("admission checks: ", checks), "."));
  }
  return Holds(lifecycle::kQueued, absl::StrCat("Queued: waiting for quota in LocalQueue ", queued.queue,
                                                After(": ", MessageOf(workload, "QuotaReserved")), "."));
}

}  // namespace

std::optional<lifecycle::QueueStatus> QueueStatusOf(const QueuedJob& queued, WorkloadAccess access, const json* workload) {
  switch (access) {
    case WorkloadAccess::kUnknown:
      return std::nullopt;
    case WorkloadAccess::kMissing:
      return WithoutKueue(queued, lifecycle::kKueueNotInstalled,
                          absl::StrCat("The API server does not serve ", kWorkloads.ApiVersion(), "."));
    case WorkloadAccess::kForbidden:
      return WithoutKueue(queued, lifecycle::kKueueNotAllowed,
                          "The operator may not list Workloads: the chart gives it that right with operator.kueue.enabled=true.");
    case WorkloadAccess::kListed:
      break;
  }
  const std::string place = absl::StrCat("LocalQueue ", queued.queue);
  if (workload == nullptr || WorkloadIsDeleting(*workload)) {
    return Holds(lifecycle::kQueued, absl::StrCat("Queued: the Workload for ", place, " is about to be made."));
  }
  if (!WorkloadBelongsTo(*workload, queued.identity)) {
    return Holds(lifecycle::kQueued,
                 absl::StrCat("Queued: Workload ", WorkloadName(queued.identity), " is there and does not belong to the job."));
  }
  if (!WorkloadFits(*workload, PodSetsDigest(*queued.job), queued.queue)) {
    return Holds(
        lifecycle::kQueued,
        absl::StrCat("Queued: the job wants other Pods, or another queue, than its Workload says; it waits again in ", place, "."));
  }
  if (WorkloadIs(*workload, "Finished")) {
    return Holds(lifecycle::kQueued, absl::StrCat("Queued: its Workload was finished by another client",
                                                  After(": ", MessageOf(*workload, "Finished")), "; it waits again in ", place, "."));
  }
  if (WorkloadIs(*workload, "Evicted")) {
    const std::string why = MessageOf(*workload, "Evicted"), now = MessageOf(*workload, "QuotaReserved");
    const bool waits = !WorkloadIs(*workload, "QuotaReserved") && now != why;
    return Holds(lifecycle::kEvictedByKueue,
                 absl::StrCat("Evicted by Kueue (", MessageOf(*workload, "Evicted", "reason"), ")", After(": ", why),
                              ". Waiting for quota in ", place, waits ? After(": ", now) : "", "."));
  }
  if (!WorkloadIs(*workload, "Admitted")) return Waiting(queued, *workload);
  return lifecycle::QueueStatus{
      .holds = false,
      .admitted = true,
      .reason = lifecycle::kAdmittedByKueue,
      .message = absl::StrCat("Admitted by ClusterQueue ", TextAt(*workload, "status", "admission", "clusterQueue"), ".")};
}

WorkloadAction NextAction(const QueuedJob& queued, const WorkloadInputs& inputs, const json* workload) {
  if (workload == nullptr) {
    return inputs.queued && !inputs.suspended && !inputs.over && !inputs.has_pods ? WorkloadAction::kCreate : WorkloadAction::kNone;
  }
  if (!WorkloadBelongsTo(*workload, queued.identity) || WorkloadIsDeleting(*workload)) return WorkloadAction::kNone;
  if (inputs.over) return WorkloadIs(*workload, "Finished") ? WorkloadAction::kNone : WorkloadAction::kFinish;
  if (!inputs.queued) return WorkloadAction::kDelete;
  // Quota is held as long as there are Pods.
  const bool fits = WorkloadFits(*workload, PodSetsDigest(*queued.job), queued.queue);
  if (inputs.suspended || WorkloadIs(*workload, "Finished")) return inputs.has_pods ? WorkloadAction::kNone : WorkloadAction::kDelete;
  const bool reserved = WorkloadIs(*workload, "QuotaReserved");
  if (!fits && inputs.has_pods) return WorkloadAction::kNone;
  if (!fits) return reserved ? WorkloadAction::kDelete : WorkloadAction::kUpdate;
  if (WorkloadIs(*workload, "Evicted")) return reserved && !inputs.has_pods ? WorkloadAction::kRelease : WorkloadAction::kNone;
  // With quota it may change, and neither come nor go.
  const std::string priority_class = WorkloadPriorityClassOf(*workload);
  const bool may_change = !reserved || (!priority_class.empty() && !queued.priority_class.empty());
  if (priority_class != queued.priority_class && may_change) return WorkloadAction::kUpdate;
  if (!WorkloadIs(*workload, "Admitted")) return WorkloadAction::kNone;
  const bool reported = !MessageOf(*workload, "PodsReady", "status").empty();
  return reported && WorkloadIs(*workload, "PodsReady") == inputs.ready ? WorkloadAction::kNone : WorkloadAction::kUpdatePodsReady;
}

}  // namespace fusionllm::op::kueue
