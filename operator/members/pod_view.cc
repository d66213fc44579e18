#include "operator/members/pod_view.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/watch/object.h"

namespace fusionllm::op {
namespace {

using kube::ContainerState;

PodPhase PhaseOf(absl::string_view text) {
  if (text == "Pending") return PodPhase::kPending;
  if (text == "Running") return PodPhase::kRunning;
  if (text == "Succeeded") return PodPhase::kSucceeded;
  if (text == "Failed") return PodPhase::kFailed;
  return PodPhase::kUnknown;
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
void TellApartWhoGaveUp(PodView& view) {
  const std::string prefix = absl::StrCat(kBrokerLostReason, ": ");
  if (view.role != kExecutorRole || view.exit_code != 0 || !absl::StartsWith(view.message, prefix)) return;
  view.phase = PodPhase::kFailed;
  view.reason = kBrokerLostReason;
  view.message = view.message.substr(prefix.size());
}

// Why it is not where it should be: of the container first, then of the pod, then of the scheduler.
void ReadReason(const kube::Pod& pod, const kube::ContainerStatus& container, PodView& view) {
  const ContainerState &state = container.state, &last = container.last_state;
  view.reason = state.reason;
  view.message = state.message;
  if (state.kind == ContainerState::Kind::kTerminated) view.exit_code = state.exit_code;
  // A container that crashes again and again says so, and not what it crashed of.
  if (view.reason == "CrashLoopBackOff" && last.kind == ContainerState::Kind::kTerminated) {
    view.message =
        absl::StrCat("exit code ", last.exit_code.value_or(-1), ", ", last.reason, last.message.empty() ? "" : ": ", last.message);
  }
  if (view.reason == "ContainerCreating" || view.reason == "PodInitializing") view.reason.clear();  // on its way
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

}  // namespace

absl::StatusOr<PodView> ReadPod(absl::string_view json, const std::string& cluster) {
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ObjectPtr decoded, kube::DecodePod(json));
  const auto& pod = static_cast<const kube::Pod&>(*decoded);
  PodView view;
  view.name = pod.meta.name;
  view.uid = pod.meta.uid;
  view.role = std::string(pod.meta.Label(kRoleLabel));
  view.cluster = cluster;
  if (view.uid.empty()) return absl::InvalidArgumentError("a pod without a uid");
  if (view.role != kBrokerRole && view.role != kExecutorRole) {
    return absl::InvalidArgumentError(absl::StrCat("pod ", view.name, " has no label ", kRoleLabel, " of the operator's"));
  }
  if (!absl::SimpleAtoi(pod.meta.Label(kAttemptLabel), &view.attempt)) view.attempt = -1;
  if (!absl::SimpleAtoi(pod.meta.Label(kIndexLabel), &view.index)) view.index = -1;
  view.phase = PhaseOf(pod.phase);
  view.ready = Condition(pod, "Ready").status == "True";
  if (const kube::PodCondition& ends = Condition(pod, "DisruptionTarget"); ends.status == "True") view.disruption = ends.reason;
  view.address = pod.pod_ip;
  if (absl::Time at; absl::ParseTime(absl::RFC3339_full, pod.meta.deletion_timestamp, &at, nullptr)) view.deleted_at = at;
  const kube::ContainerStatus& container = MainContainer(pod, view.role);
  view.container_restarts = container.restarts;
  ReadReason(pod, container, view);
  TellApartWhoGaveUp(view);
  if (view.role == kBrokerRole && absl::StartsWith(view.message, "{")) {
    if (const auto report = ParseProgress(view.message); report.ok()) {
      view.report = *report;
      view.message = report->reason.empty() ? report->error : absl::StrCat(report->reason, ": ", report->error);
    }
  }
  return view;
}

}  // namespace fusionllm::op
