#include "operator/controller/job_status.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/job/fusion_job_fields.h"
#include "lib/kubeapi/objects.h"
#include "operator/controller/stale_checkpoint.h"
#include "operator/lifecycle/failed_reason.h"
#include "operator/lifecycle/pod_diagnosis.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

// As Kubernetes writes times.
absl::Time ToSecond(absl::Time time) { return absl::FromUnixSeconds(absl::ToUnixSeconds(time)); }

std::optional<absl::Time> ToSecond(std::optional<absl::Time> time) {
  return time.has_value() ? std::optional(ToSecond(*time)) : std::nullopt;
}

std::optional<int64_t> Milliseconds(std::optional<double> seconds) {
  return seconds.has_value() ? std::optional<int64_t>(std::llround(*seconds * 1e3)) : std::nullopt;
}

bool Removed(const lifecycle::ClusterView& view) { return !view.reachable && !view.registered; }

std::string TroubleIn(const lifecycle::ClusterView& view) {
  if (view.refusal.has_value()) return view.refusal->message;
  if (Removed(view)) return view.lost ? kRemovedAndLost : kRemoved;
  if (!view.reachable && view.lost) return "Out of reach for longer than its workerLostTimeoutSeconds.";
  return view.waiting.empty() ? "" : absl::StrCat("Waiting: ", view.waiting, ".");
}

kubeapi::ClusterStatus PartIn(const lifecycle::ClusterView& view, const lifecycle::Decision& decision, absl::Time now,
                              kubeapi::ClusterStatus cluster) {
  cluster.name = view.name;
  cluster.active = cluster.ready = cluster.succeeded = cluster.failed = cluster.terminating = 0;
  cluster.state = view.reachable ? "Connected" : Removed(view) ? kRemovedState : view.lost ? "Lost" : "Unreachable";
  if (view.reachable) {
    cluster.last_heartbeat_time.reset();
  } else if (!cluster.last_heartbeat_time.has_value()) {
    cluster.last_heartbeat_time = ToSecond(now);
  }
  cluster.message = TroubleIn(view);
  for (const lifecycle::PodView& pod : view.pods) {
    if (view.lost || pod.role != manifests::kExecutorRole || pod.attempt != decision.persisted.attempt) continue;
    if (pod.deleted_at.has_value()) {
      ++cluster.terminating;
    } else if (pod.phase == lifecycle::PodPhase::kSucceeded) {
      ++cluster.succeeded;
    } else if (pod.phase == lifecycle::PodPhase::kFailed) {
      ++cluster.failed;
    } else {
      ++cluster.active;
      if (pod.ready) ++cluster.ready;
    }
  }
  return cluster;
}

bool IsSeenEmpty(const std::string& cluster, const std::vector<lifecycle::ClusterView>& seen) {
  return std::any_of(seen.begin(), seen.end(), [&](const lifecycle::ClusterView& view) {
    return view.name == cluster && view.reachable && !view.owner_config_map && view.pods.empty();
  });
}

// Each cluster that has, or has had, a part in the job: what may be left where is known from here alone when a cluster is away.
void CountPods(const lifecycle::Observation& seen, const lifecycle::Decision& decision, kubeapi::FusionJobStatus& status) {
  std::vector<kubeapi::ClusterStatus> clusters = std::move(status.cluster_statuses);
  // Of those that are not known any more.
  for (kubeapi::ClusterStatus& cluster : clusters) {
    const auto is_it = [&](const lifecycle::ClusterView& view) { return view.name == cluster.name; };
    if (std::any_of(seen.clusters.begin(), seen.clusters.end(), is_it)) continue;
    cluster = PartIn({.name = cluster.name, .reachable = false, .registered = false}, decision, seen.now, cluster);
  }
  for (const lifecycle::ClusterView& view : seen.clusters) {
    const bool is_hub = &view == &seen.clusters.front();
    const bool wanted = decision.prepare && std::any_of(seen.slots.begin(), seen.slots.end(),
                                                        [&](const manifests::ExecutorSlot& slot) { return slot.cluster == view.name; });
    const bool there =
        (view.owner_config_map && !is_hub) ||
        std::any_of(view.pods.begin(), view.pods.end(), [](const lifecycle::PodView& pod) { return pod.role == manifests::kExecutorRole; });
    auto at = std::find_if(clusters.begin(), clusters.end(), [&](const auto& cluster) { return cluster.name == view.name; });
    if (at == clusters.end()) {
      if (!wanted && !there && !view.refusal.has_value()) continue;
      at = clusters.insert(clusters.end(), kubeapi::ClusterStatus());
    }
    *at = PartIn(view, decision, seen.now, std::move(*at));  // what somebody else has said of it stays
    at->local = is_hub;
    if (wanted) at->epoch = seen.persisted.attempt;
    if (view.endpoint.has_value()) at->endpoint = view.endpoint->empty() ? std::nullopt : view.endpoint;
  }
  // The list is bounded; what is seen to be empty, and of an earlier attempt, is the first that can go.
  const auto over = [&](const kubeapi::ClusterStatus& cluster) {
    if (clusters.size() <= job::kMaxClusters || cluster.epoch == decision.persisted.attempt) return false;
    return IsSeenEmpty(cluster.name, seen.clusters);
  };
  for (auto at = clusters.begin(); at != clusters.end();) at = over(*at) ? clusters.erase(at) : at + 1;
  status.replicas = status.ready_replicas = 0;
  for (const kubeapi::ClusterStatus& cluster : clusters) {
    status.replicas += cluster.active;
    status.ready_replicas += cluster.ready;
  }
  status.cluster_statuses = std::move(clusters);
}

kubeapi::TrainerStatus TrainerOf(const lifecycle::Progress& progress, absl::Time now) {
  kubeapi::TrainerStatus trainer;
  trainer.step = progress.step;
  trainer.steps = progress.steps;
  if (progress.steps > 0) trainer.progress_percentage = std::clamp<int64_t>(progress.step * 100 / progress.steps, 0, 100);
  if (progress.eta_seconds.has_value()) trainer.estimated_remaining_seconds = std::llround(std::max(0.0, *progress.eta_seconds));
  if (progress.loss.has_value()) trainer.loss = absl::StrFormat("%.4f", *progress.loss);
  if (progress.tokens_per_second.has_value()) trainer.tokens_per_second = absl::StrFormat("%.0f", *progress.tokens_per_second);
  if (!progress.slowest_link.empty()) trainer.slowest_link = progress.slowest_link;
  trainer.predicted_step_milliseconds = Milliseconds(progress.predicted_step_seconds);
  trainer.measured_step_milliseconds = Milliseconds(progress.step_seconds);
  if (progress.learning_rate.has_value()) trainer.metrics.push_back({"learningRate", absl::StrFormat("%.4g", *progress.learning_rate)});
  if (progress.recoveries > 0) trainer.metrics.push_back({"recoveries", absl::StrCat(progress.recoveries)});
  trainer.last_updated_time = ToSecond(now);
  return trainer;
}

// Both are reported together, no more often than kProgressEvery; but a checkpoint is news by itself, too: the last one of a run is whole
// only after its last step has been reported.
void TellProgress(const lifecycle::Observation& seen, const lifecycle::Progress& progress, bool ended, kubeapi::FusionJobStatus& status) {
  if (progress.steps == 0) return;  // it knows nothing yet
  // Where it lies the spec says, if it can be read and still does, or what was reported before.
  const bool has_place = seen.job.spec.checkpoint.has_value() || status.checkpoint.has_value();
  const bool newer_checkpoint = progress.checkpoint_step.has_value() && has_place &&
                                (!status.checkpoint.has_value() || status.checkpoint->step != *progress.checkpoint_step);
  // A broker that has made no step of its own yet goes on from a checkpoint, or will: what was reported before is nearer to the truth.
  const bool made_steps = progress.step > 0 || !status.trainer_status.has_value();
  if (!newer_checkpoint && !made_steps) return;
  const bool no_checkpoint = seen.job.spec.checkpoint.has_value() && !status.checkpoint.has_value() && !newer_checkpoint;
  const auto trainer_at = [&](absl::Time now) {
    kubeapi::TrainerStatus trainer = TrainerOf(progress, now);
    if (no_checkpoint) trainer.metrics.push_back(FirstStep(progress.step, status));
    return trainer;
  };
  if (status.trainer_status.has_value() && status.trainer_status->last_updated_time.has_value()) {
    kubeapi::TrainerStatus same = trainer_at(*status.trainer_status->last_updated_time);
    same.progress = status.trainer_status->progress;
    same.eta = status.trainer_status->eta;
    if (!newer_checkpoint && same == *status.trainer_status) return;
    if (!ended && seen.now < *status.trainer_status->last_updated_time + kProgressEvery) return;
  }
  if (made_steps) status.trainer_status = trainer_at(seen.now);
  if (made_steps && progress.stages > 0) {
    kubeapi::PlanStatus plan = status.plan.value_or(kubeapi::PlanStatus());
    plan.epoch = progress.epoch;
    plan.stages = progress.stages;
    plan.replicas = progress.replicas;
    plan.predicted_step_milliseconds = Milliseconds(progress.predicted_step_seconds);
    status.plan = plan;
  }
  if (newer_checkpoint) {
    const std::string path = seen.job.spec.checkpoint.has_value() ? seen.job.spec.checkpoint->path : status.checkpoint->uri;
    // A run that falls back to an older one has saved nothing.
    const bool saved = !status.checkpoint.has_value() || *progress.checkpoint_step > status.checkpoint->step;
    const auto time = saved ? std::optional(ToSecond(seen.now)) : status.checkpoint->time;
    status.checkpoint = {.uri = path, .step = *progress.checkpoint_step, .time = time};
  }
}

std::map<std::string, std::string> Avoided(const kubeapi::FusionJobStatus& status) {
  std::map<std::string, std::string> avoided;
  for (const kubeapi::ClusterStatus& cluster : status.cluster_statuses) {
    if (const kubeapi::Condition* left = kubeapi::FindCondition(cluster.conditions, kubeapi::kExcluded);
        left != nullptr && left->status == kubeapi::ConditionStatus::kTrue) {
      avoided[cluster.name] = left->message;
    }
  }
  return avoided;
}

void TellAvoided(const lifecycle::PersistedState& persisted, absl::Time now, kubeapi::FusionJobStatus& status) {
  for (kubeapi::ClusterStatus& cluster : status.cluster_statuses) {
    const auto why = persisted.avoided.find(cluster.name);
    const bool left = why != persisted.avoided.end();
    if (!left && !kubeapi::IsTrue(cluster.conditions, kubeapi::kExcluded)) continue;
    SetCondition(cluster.conditions,
                 {.type = std::string(kubeapi::kExcluded),
                  .status = left ? kubeapi::ConditionStatus::kTrue : kubeapi::ConditionStatus::kFalse,
                  .reason = left ? "ReplaceCluster" : "Eligible",
                  .message = left ? why->second : ""},
                 now);
  }
}

// As the condition tells it.
std::string OutOfMemory(const kubeapi::FusionJobStatus& status) {
  const kubeapi::Condition* const ready = kubeapi::FindCondition(status.conditions, kubeapi::kReady);
  if (ready == nullptr || ready->reason != lifecycle::kOutOfMemory) return "";
  const size_t at = ready->message.find(lifecycle::kAreReady);
  return at == std::string::npos ? "" : ready->message.substr(at + std::string(lifecycle::kAreReady).size());
}

// As the condition tells it. A spec of which no sense can be made is another matter: it is looked at again whenever the job is.
std::optional<lifecycle::RefusedSpec> RefusedSpecOf(const kubeapi::FusionJobStatus& status) {
  const kubeapi::Condition* const accepted = kubeapi::FindCondition(status.conditions, kubeapi::kAccepted);
  if (accepted == nullptr || accepted->status != kubeapi::ConditionStatus::kFalse) return std::nullopt;
  if (accepted->reason == lifecycle::Name(lifecycle::FailedReason::kInvalidSpec)) return std::nullopt;
  return lifecycle::RefusedSpec{accepted->observed_generation, accepted->reason, accepted->message, accepted->last_transition_time};
}

}  // namespace

lifecycle::PersistedState PersistedStateOf(const kubeapi::FusionJobStatus& status) {
  const auto since = [&](absl::string_view type, bool holds) {
    const kubeapi::Condition* const condition = kubeapi::FindCondition(status.conditions, type);
    const bool so =
        condition != nullptr && condition->status == (holds ? kubeapi::ConditionStatus::kTrue : kubeapi::ConditionStatus::kFalse);
    return so ? std::optional(condition->last_transition_time) : std::nullopt;
  };
  const auto reason = [&](absl::string_view type) {
    const kubeapi::Condition* const condition = kubeapi::FindCondition(status.conditions, type);
    return condition == nullptr ? std::nullopt : std::optional(condition->reason);
  };
  // It is ready in the sense of was_ready below while either holds.
  const std::optional<absl::Time> not_ready = since(kubeapi::kReady, false), not_degraded = since(kubeapi::kDegraded, false);
  const std::optional<std::string> suspension = reason(kubeapi::kSuspended), dispatch = reason(kubeapi::kScheduled);
  // It may be refused, too, which is another wait.
  const bool short_of_room = dispatch == lifecycle::kInsufficientCapacity || dispatch == lifecycle::kPlacementFailed;
  return {.attempt = status.attempt,
          .restarts = status.restarts,
          .counted_restarts = status.restarts_count_towards_max,
          .started_at = status.start_time,
          .completed_at = status.completion_time,
          .complete = kubeapi::IsTrue(status.conditions, kubeapi::kComplete),
          .failed = kubeapi::IsTrue(status.conditions, kubeapi::kFailed),
          .made_steps = status.checkpoint.has_value() || (status.trainer_status.has_value() && status.trainer_status->step > 0),
          .refused_spec = RefusedSpecOf(status),
          .was_ready = kubeapi::IsTrue(status.conditions, kubeapi::kReady) || kubeapi::IsTrue(status.conditions, kubeapi::kDegraded),
          .out_of_memory = OutOfMemory(status),
          .quota_exceeded = since(kubeapi::kQuotaReserved, false).has_value(),
          .capacity_wait_since = short_of_room ? since(kubeapi::kScheduled, false) : std::nullopt,
          .restarting_since = since(kubeapi::kRestarting, true),
          .unready_since = not_ready.has_value() && not_degraded.has_value() ? std::max(not_ready, not_degraded) : std::nullopt,
          .resized = reason(kubeapi::kRestarting) == lifecycle::Name(lifecycle::RestartCause::kResized),
          .was_suspended = suspension.has_value() && *suspension != "NotSuspended",
          .suspending = suspension == "Suspending",
          .resumed_at = suspension == "Resumed" ? since(kubeapi::kSuspended, false) : std::nullopt,
          .extra_capacity_since = since(kubeapi::kResizing, true),
          .avoided = Avoided(status)};
}

std::set<std::string> NamedFor(const std::vector<lifecycle::ClusterView>& seen, const std::vector<kubeapi::ClusterStatus>& parts) {
  std::set<std::string> named;
  if (!seen.empty()) named.insert(seen.front().name);
  for (const kubeapi::ClusterStatus& part : parts) {
    if (!IsSeenEmpty(part.name, seen)) named.insert(part.name);
  }
  return named;
}

kubeapi::FusionJobStatus BuildStatus(const cache::JobView& view, const lifecycle::Observation& seen, const lifecycle::Decision& decision,
                                     const std::optional<lifecycle::Progress>& progress) {
  kubeapi::FusionJobStatus status = view.job.ok() ? view.status : RefusedStatus(view, "", seen.now);
  status.observed_generation = view.generation;
  const auto set = [&](const lifecycle::DesiredCondition& desired) {
    SetCondition(status.conditions,
                 {.type = lifecycle::Name(desired.type),
                  .status = desired.status ? kubeapi::ConditionStatus::kTrue : kubeapi::ConditionStatus::kFalse,
                  .observed_generation = view.generation,
                  .reason = desired.reason,
                  .message = desired.message},
                 seen.now);
  };
  const bool refused = std::any_of(decision.conditions.begin(), decision.conditions.end(), [](const lifecycle::DesiredCondition& desired) {
    return desired.type == lifecycle::JobCondition::kAccepted;
  });
  if (view.job.ok() && !refused) set({lifecycle::JobCondition::kAccepted, true, "Valid", "The job is valid."});
  // That of a time in a queue says nothing of one outside. While there is a Workload it tells that one is to be looked for.
  if (!seen.queue.has_value() && !seen.leaves_queue &&
      !(decision.persisted.complete || decision.persisted.failed || seen.deleted_at.has_value())) {
    std::erase_if(status.conditions, [](const kubeapi::Condition& condition) { return condition.type == kubeapi::kAdmitted; });
  }
  for (const lifecycle::DesiredCondition& desired : decision.conditions) set(desired);
  status.start_time = ToSecond(decision.persisted.started_at);
  status.completion_time = ToSecond(decision.persisted.completed_at);
  status.attempt = decision.persisted.attempt;
  status.restarts = decision.persisted.restarts;
  status.restarts_count_towards_max = decision.persisted.counted_restarts;
  status.selector = absl::StrCat(manifests::JobSelector(view.identity), ",", manifests::kRoleLabel, "=", manifests::kExecutorRole);
  CountPods(seen, decision, status);
  if (!seen.broker_endpoint.empty()) status.endpoint = seen.broker_endpoint;
  TellAvoided(decision.persisted, seen.now, status);
  // The last word of a run, also of one that was suspended: it is not asked again.
  const bool ended = decision.persisted.complete || decision.persisted.failed || (progress.has_value() && progress->exit_code.has_value());
  if (progress.has_value()) TellProgress(seen, *progress, ended, status);
  if (view.job.ok()) {
    if (const auto stale = StaleCheckpoint(seen.job.spec, view.generation, status)) set(*stale);
  }
  const std::string executors = status.executors;
  kubeapi::Summarize(seen.wanted + seen.job.spec.executors.spares, status);
  if (!view.job.ok()) status.executors = executors;  // how many are wanted is not known
  status.state = lifecycle::Name(decision.state);
  return status;
}

kubeapi::FusionJobStatus RefusedStatus(const cache::JobView& view, absl::string_view kept, absl::Time now) {
  kubeapi::FusionJobStatus status = view.status;
  status.observed_generation = view.generation;
  SetCondition(status.conditions,
               {.type = lifecycle::Name(lifecycle::JobCondition::kAccepted),
                .status = kubeapi::ConditionStatus::kFalse,
                .observed_generation = view.generation,
                .reason = lifecycle::Name(lifecycle::FailedReason::kInvalidSpec),
                .message = absl::StrCat(std::string(view.job.status().message()), kept)},
               now);
  return status;
}

std::string StatusBody(const cache::JobView& view, const std::string& resource_version, const kubeapi::FusionJobStatus& status) {
  const nlohmann::json body = {
      {"apiVersion", manifests::kFusionJobs.ApiVersion()},
      {"kind", manifests::kFusionJobs.kind},
      {"metadata",
       {{"name", view.identity.name}, {"namespace", view.identity.ns}, {"uid", view.identity.uid}, {"resourceVersion", resource_version}}},
      {"status", kubeapi::ToJson(status)}};
  return body.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace fusionllm::op::controller
