#include "operator/cache/pod_view.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/watch/object.h"
#include "operator/cache/termination_message.h"

namespace fusionllm::op::cache {
namespace {

using kube::ContainerState;

lifecycle::PodPhase PhaseOf(absl::string_view text) {
  if (text == "Pending") return lifecycle::PodPhase::kPending;
  if (text == "Running") return lifecycle::PodPhase::kRunning;
  if (text == "Succeeded") return lifecycle::PodPhase::kSucceeded;
  if (text == "Failed") return lifecycle::PodPhase::kFailed;
  return lifecycle::PodPhase::kUnknown;
}

const kube::PodCondition& Condition(const kube::Pod& pod, absl::string_view type) {
  static const auto* const kNone = new kube::PodCondition;
  for (const kube::PodCondition& condition : pod.conditions) {
    if (condition.type == type) return condition;
  }
  return *kNone;
}

const kube::ContainerStatus& MainContainer(const kube::Pod& pod, absl::string_view role) {
  static const auto* const kNone = new kube::ContainerStatus;
  for (const kube::ContainerStatus& container : pod.containers) {
    if (container.name == role) return container;
  }
  return *kNone;
}

// It ended with 0 only for the kubelet to leave it alone: its work is not done, so it counts as failed.
void TellApartWhoGaveUp(lifecycle::PodView& view) {
  const std::string prefix = absl::StrCat(manifests::kBrokerLostReason, ": ");
  if (view.role != manifests::kExecutorRole || view.exit_code != 0 || !absl::StartsWith(view.message, prefix)) return;
  view.phase = lifecycle::PodPhase::kFailed;
  view.reason = manifests::kBrokerLostReason;
  view.message = view.message.substr(prefix.size());
}

std::string EndInWords(const ContainerState& end) {
  const std::string sentence = TerminationSummary(end.message);
  return absl::StrCat("exit code ", end.exit_code.value_or(-1), ", ", end.reason, sentence.empty() ? "" : ": ", sentence);
}

bool IsOnItsWay(const ContainerState& state) { return state.reason == "ContainerCreating" || state.reason == "PodInitializing"; }

bool WasKilledForMemory(const kube::ContainerStatus& container) {
  return container.last_state.kind == ContainerState::Kind::kTerminated && container.last_state.reason == lifecycle::kKilledForMemory;
}

// A container that crashes again and again says so, and not what it crashed of. The kernel's word is the reason itself: what helps
// against it is known.
std::string ReasonOf(const kube::ContainerStatus& container) {
  const std::string& reason = container.state.reason;
  return reason == "CrashLoopBackOff" && WasKilledForMemory(container) ? lifecycle::kKilledForMemory : reason;
}

std::string WordsOf(const kube::ContainerStatus& container) {
  const ContainerState& last = container.last_state;
  const bool crashes = container.state.reason == "CrashLoopBackOff" && last.kind == ContainerState::Kind::kTerminated;
  // Who is killed leaves no sentence, but perhaps the tail of a log.
  if (crashes) return WasKilledForMemory(container) ? "" : EndInWords(last);
  const ContainerState& state = container.state;
  return state.kind == ContainerState::Kind::kTerminated ? TerminationSummary(state.message) : state.message;
}

// Of the first container beside the main one that waits for something or has failed: those that come before it hold it up, and the pod is
// not ready without the others.
void ReadReasonOfOthers(const kube::Pod& pod, lifecycle::PodView& view) {
  for (const auto* containers : {&pod.init_containers, &pod.containers}) {
    for (const kube::ContainerStatus& container : *containers) {
      const ContainerState& state = container.state;
      const bool failed = state.kind == ContainerState::Kind::kTerminated && state.exit_code != 0;
      const bool waits = state.kind == ContainerState::Kind::kWaiting && !state.reason.empty() && !IsOnItsWay(state);
      if ((!failed && !waits) || container.name == view.role) continue;
      const std::string words = failed ? EndInWords(state) : WordsOf(container);
      view.reason = failed && state.reason.empty() ? "Error" : ReasonOf(container);
      view.message = absl::StrCat("container ", container.name, words.empty() ? "" : ": ", words);
      return;
    }
  }
}

// Why it is not where it should be: of the main container first, then of others, then of the pod, then of the scheduler.
void ReadReason(const kube::Pod& pod, const kube::ContainerStatus& container, lifecycle::PodView& view) {
  const ContainerState& state = container.state;
  const bool ended = state.kind == ContainerState::Kind::kTerminated;
  if (ended) view.exit_code = state.exit_code;
  view.reason = ReasonOf(container);
  view.message = WordsOf(container);
  if (IsOnItsWay(state)) view.reason.clear();
  if (view.reason.empty() && !ended && !view.ready) ReadReasonOfOthers(pod, view);
  if (!pod.reason.empty()) {  // of the pod as a whole: Evicted, NodeLost
    view.reason = pod.reason;
    view.message = pod.message;
  }
  const kube::PodCondition& scheduled = Condition(pod, "PodScheduled");
  if (view.reason.empty() && scheduled.status == "False") {
    view.reason = scheduled.reason;
    view.message = scheduled.message;
  }
}

// Labels are easily copied, into any namespace: a pod of the operator's has a name of its own besides, and an owner.
void ReadOwner(const kube::Pod& pod, lifecycle::PodView& view) {
  const manifests::JobIdentity job{.name = std::string(pod.meta.Label(manifests::kJobLabel)),
                                   .uid = std::string(pod.meta.Label(manifests::kJobUidLabel))};
  if (job.name.empty() || job.uid.empty()) return;
  const manifests::ExecutorSlot slot{.cluster = std::string(pod.meta.Label(manifests::kClusterLabel)), .index = view.index};
  const bool broker = view.role == manifests::kBrokerRole;
  if (view.name != (broker ? manifests::BrokerPodName(job, view.attempt) : manifests::ExecutorPodName(job, slot, view.attempt))) return;
  if (pod.controller.kind != "ConfigMap" || pod.controller.name != manifests::OwnerConfigMapName(job) || pod.controller.uid.empty()) return;
  view.job = job.name;
  view.owner = pod.controller.uid;
}

}  // namespace

bool IsPodOf(const lifecycle::PodView& pod, const manifests::JobIdentity& job, const std::set<std::string>& owner_config_maps) {
  return pod.ns == job.ns && pod.job == job.name && owner_config_maps.contains(pod.owner);
}

absl::StatusOr<lifecycle::PodView> ReadPod(absl::string_view json, const std::string& cluster) {
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ObjectPtr decoded, kube::DecodePod(json));
  const auto& pod = static_cast<const kube::Pod&>(*decoded);
  lifecycle::PodView view;
  view.ns = pod.meta.ns;
  view.name = pod.meta.name;
  view.uid = pod.meta.uid;
  view.role = std::string(pod.meta.Label(manifests::kRoleLabel));
  view.cluster = cluster;
  if (view.uid.empty()) return absl::InvalidArgumentError("a pod without a uid");
  if (view.role != manifests::kBrokerRole && view.role != manifests::kExecutorRole) {
    return absl::InvalidArgumentError(absl::StrCat("pod ", view.name, " has no label ", manifests::kRoleLabel, " of the operator's"));
  }
  if (!absl::SimpleAtoi(pod.meta.Label(manifests::kAttemptLabel), &view.attempt)) view.attempt = -1;
  if (!absl::SimpleAtoi(pod.meta.Label(manifests::kIndexLabel), &view.index)) view.index = -1;
  ReadOwner(pod, view);
  view.phase = PhaseOf(pod.phase);
  view.ready = Condition(pod, "Ready").status == "True";
  if (const kube::PodCondition& ends = Condition(pod, "DisruptionTarget"); ends.status == "True") view.disruption = ends.reason;
  view.address = pod.pod_ip;
  view.created_at = pod.meta.created_at;
  if (absl::Time at; absl::ParseTime(absl::RFC3339_full, pod.meta.deletion_timestamp, &at, nullptr)) view.deleted_at = at;
  const kube::ContainerStatus& container = MainContainer(pod, view.role);
  view.container_restarts = container.restarts;
  view.killed_for_memory = WasKilledForMemory(container);
  ReadReason(pod, container, view);
  TellApartWhoGaveUp(view);
  if (view.role == manifests::kBrokerRole && absl::StartsWith(view.message, "{")) {
    if (const auto report = lifecycle::ParseProgress(view.message); report.ok()) {
      view.report = *report;
      view.message = report->reason.empty() ? report->error : absl::StrCat(report->reason, ": ", report->error);
    }
  }
  return view;
}

}  // namespace fusionllm::op::cache
