#include "operator/members/pod_view.h"

#include <climits>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/api/json_fields.h"

namespace fusionllm::op {
namespace {

using kube::At;
using kube::ListOf;
using kube::TextAt;
using nlohmann::json;

// What no int holds is not what Kubernetes writes there.
int Integer(const json& object, const char* key, int otherwise) {
  const int64_t value = kube::IntegerOf(At(object, key), otherwise);
  return value < INT_MIN || value > INT_MAX ? otherwise : static_cast<int>(value);
}

PodPhase PhaseOf(const std::string& text) {
  if (text == "Pending") return PodPhase::kPending;
  if (text == "Running") return PodPhase::kRunning;
  if (text == "Succeeded") return PodPhase::kSucceeded;
  if (text == "Failed") return PodPhase::kFailed;
  return PodPhase::kUnknown;
}

const json& Condition(const json& status, const char* type) {
  static const json kNothing;
  for (const json& condition : ListOf(At(status, "conditions"))) {
    if (TextAt(condition, "type") == type) return condition;
  }
  return kNothing;
}

const json& MainContainer(const json& status, const std::string& role) {
  static const json kNothing;
  for (const json& container : ListOf(At(status, "containerStatuses"))) {
    if (TextAt(container, "name") == role) return container;
  }
  return kNothing;
}

// Why it is not where it should be: of the container first, then of the pod, then of the scheduler.
void ReadReason(const json& status, const json& container, PodView& view) {
  const json& state = At(container, "state");
  for (const char* kind : {"terminated", "waiting"}) {
    const json& what = At(state, kind);
    if (!what.is_object()) continue;
    view.reason = TextAt(what, "reason");
    view.message = TextAt(what, "message");
    if (kind == std::string("terminated") && At(what, "exitCode").is_number_integer()) view.exit_code = Integer(what, "exitCode", -1);
  }
  // A container that crashes again and again says so, and not what it crashed of.
  if (view.reason == "CrashLoopBackOff") {
    const json& last = At(container, "lastState", "terminated");
    if (last.is_object()) {
      view.message = absl::StrCat("exit code ", Integer(last, "exitCode", -1), ", ", TextAt(last, "reason"),
                                  TextAt(last, "message").empty() ? "" : ": ", TextAt(last, "message"));
    }
  }
  if (view.reason == "ContainerCreating" || view.reason == "PodInitializing") view.reason.clear();  // on its way
  if (!TextAt(status, "reason").empty()) {  // of the pod as a whole: Evicted, NodeLost
    view.reason = TextAt(status, "reason");
    view.message = TextAt(status, "message");
  }
  const json& scheduled = Condition(status, "PodScheduled");
  if (view.reason.empty() && TextAt(scheduled, "status") == "False") {
    view.reason = TextAt(scheduled, "reason");
    view.message = TextAt(scheduled, "message");
  }
}

}  // namespace

std::string JobUidOf(const json& pod) { return TextAt(pod, "metadata", "labels", kJobUidLabel); }

absl::StatusOr<PodView> ReadPod(const json& pod, const std::string& cluster) {
  const json &metadata = At(pod, "metadata"), &labels = At(metadata, "labels"), &status = At(pod, "status");
  PodView view;
  view.name = TextAt(metadata, "name");
  view.uid = TextAt(metadata, "uid");
  view.role = TextAt(labels, kRoleLabel);
  view.cluster = cluster;
  if (view.name.empty() || view.uid.empty()) return absl::InvalidArgumentError("a pod without a name or uid");
  if (view.role != kBrokerRole && view.role != kExecutorRole) {
    return absl::InvalidArgumentError(absl::StrCat("pod ", view.name, " has no label ", kRoleLabel, " of the operator's"));
  }
  if (!absl::SimpleAtoi(TextAt(labels, kAttemptLabel), &view.attempt)) view.attempt = -1;
  if (!absl::SimpleAtoi(TextAt(labels, kIndexLabel), &view.index)) view.index = -1;
  view.phase = PhaseOf(TextAt(status, "phase"));
  view.ready = TextAt(Condition(status, "Ready"), "status") == "True";
  view.address = TextAt(status, "podIP");
  if (absl::Time at; absl::ParseTime(absl::RFC3339_full, TextAt(metadata, "deletionTimestamp"), &at, nullptr)) view.deleted_at = at;
  const json& container = MainContainer(status, view.role);
  view.container_restarts = Integer(container, "restartCount", 0);
  ReadReason(status, container, view);
  if (view.role == kBrokerRole && absl::StartsWith(view.message, "{")) {
    if (const auto report = ParseProgress(view.message); report.ok()) {
      view.report = *report;
      view.message = report->reason.empty() ? report->error : absl::StrCat(report->reason, ": ", report->error);
    }
  }
  return view;
}

}  // namespace fusionllm::op
