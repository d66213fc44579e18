#include "operator/members/pod_view.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::op {
namespace {

using nlohmann::json;

const json& At(const json& object, const char* key) {
  static const json kNothing;
  if (!object.is_object()) return kNothing;
  const auto at = object.find(key);
  return at == object.end() ? kNothing : *at;
}

std::string Text(const json& object, const char* key) {
  const json& value = At(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

int64_t Number(const json& object, const char* key, int64_t otherwise) {
  const json& value = At(object, key);
  return value.is_number_integer() ? value.get<int64_t>() : otherwise;
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
  for (const json& condition : At(status, "conditions")) {
    if (Text(condition, "type") == type) return condition;
  }
  return kNothing;
}

const json& MainContainer(const json& status, const std::string& role) {
  static const json kNothing;
  for (const json& container : At(status, "containerStatuses")) {
    if (Text(container, "name") == role) return container;
  }
  return kNothing;
}

// Why it is not where it should be: of the container first, then of the pod, then of the scheduler.
void ReadReason(const json& status, const json& container, PodView& view) {
  const json& state = At(container, "state");
  for (const char* kind : {"terminated", "waiting"}) {
    const json& what = At(state, kind);
    if (!what.is_object()) continue;
    view.reason = Text(what, "reason");
    view.message = Text(what, "message");
    if (kind == std::string("terminated") && At(what, "exitCode").is_number_integer()) view.exit_code = At(what, "exitCode").get<int>();
  }
  // A container that crashes again and again says so, and not what it crashed of.
  if (view.reason == "CrashLoopBackOff") {
    const json& last = At(At(container, "lastState"), "terminated");
    if (last.is_object()) {
      view.message = absl::StrCat("exit code ", Number(last, "exitCode", -1), ", ", Text(last, "reason"),
                                  Text(last, "message").empty() ? "" : ": ", Text(last, "message"));
    }
  }
  if (view.reason == "ContainerCreating" || view.reason == "PodInitializing") view.reason.clear();  // on its way
  if (!Text(status, "reason").empty()) {  // of the pod as a whole: Evicted, NodeLost
    view.reason = Text(status, "reason");
    view.message = Text(status, "message");
  }
  const json& scheduled = Condition(status, "PodScheduled");
  if (view.reason.empty() && Text(scheduled, "status") == "False") {
    view.reason = Text(scheduled, "reason");
    view.message = Text(scheduled, "message");
  }
}

}  // namespace

std::string JobUidOf(const json& pod) { return Text(At(At(pod, "metadata"), "labels"), kJobUidLabel); }

absl::StatusOr<PodView> ReadPod(const json& pod, const std::string& cluster) {
  const json &metadata = At(pod, "metadata"), &labels = At(metadata, "labels"), &status = At(pod, "status");
  PodView view;
  view.name = Text(metadata, "name");
  view.uid = Text(metadata, "uid");
  view.role = Text(labels, kRoleLabel);
  view.cluster = cluster;
  if (view.name.empty() || view.uid.empty()) return absl::InvalidArgumentError("a pod without a name or uid");
  if (view.role != kBrokerRole && view.role != kExecutorRole) {
    return absl::InvalidArgumentError(absl::StrCat("pod ", view.name, " has no label ", kRoleLabel, " of the operator's"));
  }
  if (!absl::SimpleAtoi(Text(labels, kAttemptLabel), &view.attempt)) view.attempt = -1;
  if (!absl::SimpleAtoi(Text(labels, kIndexLabel), &view.index)) view.index = -1;
  view.phase = PhaseOf(Text(status, "phase"));
  view.ready = Text(Condition(status, "Ready"), "status") == "True";
  view.address = Text(status, "podIP");
  if (absl::Time at; absl::ParseTime(absl::RFC3339_full, Text(metadata, "deletionTimestamp"), &at, nullptr)) view.deleted_at = at;
  const json& container = MainContainer(status, view.role);
  view.container_restarts = static_cast<int>(Number(container, "restartCount", 0));
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
