#include "operator/kueue/workload_reconciler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::kueue {
namespace {

using kube::TextAt;
using nlohmann::json;

// Somebody else, Kueue most often, has written meanwhile: what it was is in the cache soon, and is looked at again.
absl::Status UnlessOvertaken(const absl::Status& status) {
  const bool overtaken = kube::IsApiConflict(status) || kube::IsApiNotFound(status) || kube::IsApiAlreadyExists(status);
  return overtaken ? absl::OkStatus() : status;
}

bool IsReady(const lifecycle::Decision& decision) {
  return std::any_of(decision.conditions.begin(), decision.conditions.end(), [](const lifecycle::DesiredCondition& desired) {
    return desired.type == lifecycle::JobCondition::kReady && desired.status;
  });
}

}  // namespace

QueuedJob WorkloadReconciler::CurrentJob(const lifecycle::Observation& seen) const {
  return {.identity = identity_,
          .job = &job_,
          .queue = options_.queue,
          .priority_class = options_.priority_class,
          .started = seen.persisted.started_at.has_value()};
}

absl::Status WorkloadReconciler::Observe(lifecycle::Observation& seen) {
  if (!Applies() || seen.deleted_at.has_value()) return absl::OkStatus();
  identity_ = seen.identity;
  job_ = seen.job;
  access_ = options_.workloads->Access(identity_.ns);
  if (access_ == WorkloadAccess::kListed) {
    if (!options_.workloads->SeenWrites(Key())) return absl::UnavailableError("the cache of Workloads does not show the last write yet");
    workload_ = options_.workloads->Find(Key());
  }
  const bool waits = !options_.queue.empty() && !seen.job.spec.suspend && !seen.persisted.complete && !seen.persisted.failed;
  if (access_ == WorkloadAccess::kUnknown) return absl::UnavailableError("Workloads are not listed yet");
  seen.leaves_queue = !waits && workload_ != nullptr && WorkloadBelongsTo(*workload_, identity_);
  if (!waits) return absl::OkStatus();
  seen.queue = QueueStatusOf(CurrentJob(seen), access_, workload_.get());
  FUSIONLLM_RETURN_IF_ERROR(ReadPriority(seen));
  if (!seen.queue->admitted && access_ == WorkloadAccess::kListed) {
    if (const absl::Status made = DesiredWorkload().status(); !made.ok()) {
      seen.queue->message = absl::StrCat("Queued: no Workload can be made of the job: ", std::string(made.message()));
    }
  }
  if (!seen.queue->admitted) {
    if (workload_ != nullptr) options_.flavors->Forget(TextAt(*workload_, "metadata", "uid"));
    return absl::OkStatus();
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const Flavors::ByName flavors, options_.flavors->Of(*workload_, hub_, call_));
  seen.job = AsAdmitted(job_, *workload_, flavors);
  return absl::OkStatus();
}

absl::Status WorkloadReconciler::ReadPriority(lifecycle::Observation& seen) {
  if (access_ != WorkloadAccess::kListed) return absl::OkStatus();
  if (options_.priority_class.empty()) {
    priority_ = QueuePriority();
    return absl::OkStatus();
  }
  const bool has_it = workload_ != nullptr && WorkloadPriorityClassOf(*workload_) == options_.priority_class;
  if (has_it) {
    priority_ = QueuePriority{options_.priority_class, kube::IntegerOf(kube::At(*workload_, "spec", "priority"), 0)};
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> answer = hub_.Get(kWorkloadPriorityClasses, {"", options_.priority_class}, call_);
  if (kube::IsApiNotFound(answer.status())) {
    if (workload_ != nullptr) return absl::OkStatus();  // it waits with the priority that it has
    seen.queue->message = absl::StrCat("Queued: there is no WorkloadPriorityClass ", options_.priority_class, ", which the job's label ",
                                       manifests::kQueuePriorityLabel, " names.");
    seen.queue->requeue_after = kKueueDiscoveryPeriod;
    return absl::OkStatus();
  }
  FUSIONLLM_RETURN_IF_ERROR(answer.status());
  priority_ = QueuePriority{options_.priority_class, kube::IntegerOf(kube::At(kube::ParseJson(*answer), "value"), 0)};
  return absl::OkStatus();
}

absl::Status WorkloadReconciler::Reconcile(const lifecycle::Observation& seen, const lifecycle::Decision& decision) {
  if (!Applies() || access_ != WorkloadAccess::kListed || seen.deleted_at.has_value()) return absl::OkStatus();
  const WorkloadInputs inputs{
      .queued = !options_.queue.empty(),
      .suspended = job_.spec.suspend,
      .over = decision.persisted.complete || decision.persisted.failed,
      .has_pods = decision.state != lifecycle::JobState::kQueued && decision.state != lifecycle::JobState::kSuspended,
      .ready = IsReady(decision)};
  switch (NextAction(CurrentJob(seen), inputs, workload_.get())) {
    case WorkloadAction::kNone:
      return absl::OkStatus();
    case WorkloadAction::kCreate:
      return Create();
    case WorkloadAction::kUpdate:
      return Update();
    case WorkloadAction::kDelete:
      return Delete();
    case WorkloadAction::kRelease:
      return PatchStatus(ReleasedStatus(*workload_, seen.now));
    case WorkloadAction::kFinish:
      return PatchStatus(FinishedStatus(*workload_, decision.persisted.complete,
                                        decision.persisted.complete ? "The job has made all its steps." : "The job has failed.", seen.now));
    case WorkloadAction::kUpdatePodsReady:
      return PatchStatus(PodsReadyStatus(*workload_, inputs.ready, seen.now));
  }
  return absl::OkStatus();
}

absl::StatusOr<json> WorkloadReconciler::DesiredWorkload() const {
  return WorkloadObject(identity_, job_, options_.queue, priority_.value_or(QueuePriority()), *options_.images,
                        options_.hardware(job_.spec.placement));
}

absl::Status WorkloadReconciler::Create() {
  if (!priority_.has_value()) return absl::OkStatus();
  const absl::StatusOr<json> wanted = DesiredWorkload();
  if (!wanted.ok()) return absl::OkStatus();  // the job's status says why
  return Took(hub_.Create(kWorkloads, identity_.ns, wanted->dump(), {.field_manager = manifests::kFieldManager}, call_));
}

absl::Status WorkloadReconciler::Update() {
  if (!priority_.has_value()) return absl::OkStatus();
  const absl::StatusOr<json> wanted = DesiredWorkload();
  if (!wanted.ok()) return absl::OkStatus();  // the job's status says why
  return Took(hub_.Patch(kWorkloads, Key(), kube::PatchType::kMerge, WorkloadUpdate(*workload_, *wanted).dump(),
                         {.field_manager = manifests::kFieldManager}, call_));
}

absl::Status WorkloadReconciler::Delete() {
  const std::string uid = TextAt(*workload_, "metadata", "uid");
  const kube::DeleteOptions options{.uid = uid};
  const absl::Status status = hub_.Delete(kWorkloads, Key(), options, call_).status();
  if (status.ok()) options_.workloads->Deleted(Key(), uid);
  options_.flavors->Forget(uid);
  return UnlessOvertaken(status);
}

absl::Status WorkloadReconciler::PatchStatus(const json& patch) {
  return Took(hub_.Patch(kWorkloads, Key(), kube::PatchType::kMerge, patch.dump(),
                         {.field_manager = manifests::kFieldManager, .subresource = "status"}, call_));
}

absl::Status WorkloadReconciler::Took(const absl::StatusOr<std::string>& answer) {
  if (!answer.ok()) return UnlessOvertaken(answer.status());
  const std::string version = TextAt(kube::ParseJson(*answer), "metadata", "resourceVersion");
  if (!version.empty()) options_.workloads->Wrote(Key(), version);
  return absl::OkStatus();
}

}  // namespace fusionllm::op::kueue
