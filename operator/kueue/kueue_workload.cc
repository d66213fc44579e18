#include "operator/kueue/kueue_workload.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/api/time.h"
#include "operator/manifests/resources.h"
#include "operator/placement/placement.h"

namespace fusionllm::op::kueue {
namespace {

using kube::At;
using kube::ListOf;
using kube::MappingOf;
using kube::TextAt;
using nlohmann::json;

// Some of a Pod's name is left for the hash; Kueue puts the name of a Workload into labels.
constexpr size_t kNameBytesMax = 57;

// The last digits: the first are much the same for texts that differ at their end.
std::string ShortHash(const std::string& text) { return absl::StrCat(absl::Hex(base::StableHash(text), absl::kZeroPad16)).substr(11); }

json Only(const json& from, std::initializer_list<const char*> keys) {
  json to = json::object();
  for (const char* const key : keys) {
    if (const json& value = At(from, key); !value.is_null() && !value.empty()) to[key] = value;
  }
  return to;
}

// Of a Pod what a quota and a flavor depend on; the rest makes objects large and is of no use.
json PodSetTemplate(const json& pod) {
  const json& spec = At(pod, "spec");
  json out = Only(spec, {"nodeSelector", "affinity", "tolerations", "priorityClassName", "runtimeClassName", "overhead", "restartPolicy"});
  for (const char* const list : {"initContainers", "containers"}) {
    for (const json& container : ListOf(At(spec, list))) {
      out[list].push_back(Only(container, {"name", "image", "resources", "restartPolicy"}));
    }
  }
  return {{"spec", out}};
}

const json& ConditionOf(const json& workload, const char* type) {
  static const json kNone;
  for (const json& condition : ListOf(At(workload, "status", "conditions"))) {
    if (TextAt(condition, "type") == type) return condition;
  }
  return kNone;
}

struct NewCondition {
  const char* type;
  bool status;
  std::string reason, message;
};

// All conditions with these in them: a merge patch replaces a list whole.
json Conditions(const json& workload, const std::vector<NewCondition>& changed, absl::Time now) {
  json conditions = ListOf(At(workload, "status", "conditions"));
  for (const NewCondition& one : changed) {
    const char* const status = one.status ? "True" : "False";
    json next = {{"type", one.type}, {"status", status}, {"reason", one.reason}, {"message", one.message}};
    const json& before = ConditionOf(workload, one.type);
    const bool turned = TextAt(before, "status") != status;
    next["lastTransitionTime"] = turned ? kube::TimeText(now) : TextAt(before, "lastTransitionTime");
    if (const json& generation = At(workload, "metadata", "generation"); generation.is_number()) next["observedGeneration"] = generation;
    const auto at = std::find_if(conditions.begin(), conditions.end(), [&](const json& c) { return TextAt(c, "type") == one.type; });
    if (at == conditions.end()) {
      conditions.push_back(std::move(next));
    } else {
      *at = std::move(next);
    }
  }
  return conditions;
}

json AtThatVersion(const json& workload) {
  return {
      {"metadata", {{"uid", TextAt(workload, "metadata", "uid")}, {"resourceVersion", TextAt(workload, "metadata", "resourceVersion")}}}};
}

void AddNodes(const json& selector, const json& tolerations, json& pod_template) {
  json& spec = pod_template["spec"];
  for (const auto& [key, value] : MappingOf(selector).items()) spec["nodeSelector"][key] = value;
  json all = ListOf(At(spec, "tolerations"));
  for (const json& one : ListOf(tolerations)) {
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  }
  if (!all.empty()) spec["tolerations"] = std::move(all);
}

// A template of Pods with what the assignment of its podSet adds.
std::string Admitted(const std::string& pod_template, const json& workload, const json& assignment,
                     const std::map<std::string, json>& flavors) {
  json out = pod_template.empty() ? json::object() : kube::ParseJson(pod_template);
  if (!out.is_object()) return pod_template;  // what is wrong with it is reported when Pods are made of it
  const json before = out;
  for (const auto& [resource, flavor] : MappingOf(At(assignment, "flavors")).items()) {
    const auto at = flavors.find(kube::TextOf(flavor));
    if (at == flavors.end()) continue;
    AddNodes(At(at->second, "spec", "nodeLabels"), At(at->second, "spec", "tolerations"), out);
  }
  for (const json& check : ListOf(At(workload, "status", "admissionChecks"))) {
    for (const json& update : ListOf(At(check, "podSetUpdates"))) {
      if (TextAt(update, "name") != TextAt(assignment, "name")) continue;
      AddNodes(At(update, "nodeSelector"), At(update, "tolerations"), out);
      for (const char* const notes : {"labels", "annotations"}) {
        for (const auto& [key, value] : MappingOf(At(update, notes)).items()) out["metadata"][notes][key] = value;
      }
    }
  }
  if (At(out, "spec").is_null()) out.erase("spec");
  return out == before || out.empty() ? pod_template : out.dump();
}

}  // namespace

std::string WorkloadName(const manifests::JobIdentity& job) {
  return absl::StrCat(absl::StrCat("fusionjob-", job.name).substr(0, kNameBytesMax), "-", ShortHash(job.uid));
}

std::string PodSetsDigest(const job::FusionJob& job) {
  const job::Executors& executors = job.spec.executors;
  const job::Placement& placement = job.spec.placement;
  const json text = {QueuedExecutors(job),
                     placement::MinExecutorsToStart(job, 0),
                     executors.spares,
                     executors.pod_template.json,
                     job.spec.broker.pod_template.json,
                     placement.device,
                     placement.min_memory.has_value() ? placement.min_memory->bytes : 0};
  return absl::StrCat(absl::Hex(base::StableHash(text.dump()), absl::kZeroPad16));
}

int64_t QueuedExecutors(const job::FusionJob& job) {
  return placement::RequestedExecutors(job.spec.executors).value_or(placement::MinExecutorsToStart(job, 0)) + job.spec.executors.spares;
}

absl::StatusOr<json> WorkloadObject(const manifests::JobIdentity& identity, const job::FusionJob& job, const std::string& queue,
                                    const QueuePriority& priority, const manifests::Images& images, const manifests::DeviceKind& hardware) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json broker, manifests::BrokerPod(identity, job, {}, images, {}));
  FUSIONLLM_ASSIGN_OR_RETURN(const json executor, manifests::ExecutorPod(identity, job, {}, 0, {"broker:1"}, images, {}, hardware));
  const int64_t count = QueuedExecutors(job), fewest = placement::MinExecutorsToStart(job, 0) + job.spec.executors.spares;
  json executors = {{"name", manifests::kExecutorRole}, {"count", count}, {"template", PodSetTemplate(executor)}};
  if (fewest < count) executors["minCount"] = fewest;
  json workload = {{"apiVersion", kWorkloads.ApiVersion()},
                   {"kind", kWorkloads.kind},
                   {"metadata",
                    {{"name", WorkloadName(identity)},
                     {"namespace", identity.ns},
                     {"labels", {{manifests::kJobUidLabel, identity.uid}, {"kueue.x-k8s.io/job-uid", identity.uid}}},
                     {"annotations", {{kPodSetsAnnotation, PodSetsDigest(job)}}},
                     {"ownerReferences",
                      {{{"apiVersion", manifests::kFusionJobs.ApiVersion()},
                        {"kind", manifests::kFusionJobs.kind},
                        {"name", identity.name},
                        {"uid", identity.uid},
                        {"controller", true}}}}}},
                   {"spec",
                    {{"queueName", queue},
                     {"priority", priority.value},
                     {"podSets", {{{"name", manifests::kBrokerRole}, {"count", 1}, {"template", PodSetTemplate(broker)}}, executors}}}}};
  if (!priority.class_name.empty()) {
    workload["spec"]["priorityClassRef"] = {
        {"group", kWorkloadPriorityClasses.group}, {"kind", kWorkloadPriorityClasses.kind}, {"name", priority.class_name}};
  }
  return workload;
}

json WorkloadUpdate(const json& workload, const json& wanted) {
  json patch = AtThatVersion(workload);
  patch["spec"] = At(wanted, "spec");
  if (!patch["spec"].contains("priorityClassRef")) patch["spec"]["priorityClassRef"] = nullptr;
  if (WorkloadIs(workload, "QuotaReserved")) {
    patch["spec"].erase("podSets");
    patch["spec"].erase("queueName");
  } else {
    patch["metadata"]["annotations"] = At(wanted, "metadata", "annotations");
  }
  return patch;
}

bool WorkloadIs(const json& workload, const char* condition) { return TextAt(ConditionOf(workload, condition), "status") == "True"; }

bool WorkloadBelongsTo(const json& workload, const manifests::JobIdentity& job) {
  for (const json& owner : ListOf(At(workload, "metadata", "ownerReferences"))) {
    if (At(owner, "controller") == true) return TextAt(owner, "uid") == job.uid;
  }
  return false;
}

bool WorkloadIsDeleting(const json& workload) { return !TextAt(workload, "metadata", "deletionTimestamp").empty(); }

bool WorkloadFits(const json& workload, const std::string& digest, const std::string& queue) {
  return TextAt(workload, "metadata", "annotations", kPodSetsAnnotation) == digest && TextAt(workload, "spec", "queueName") == queue;
}

std::string WorkloadPriorityClassOf(const json& workload) { return TextAt(workload, "spec", "priorityClassRef", "name"); }

std::vector<std::string> FlavorsOf(const json& workload) {
  std::set<std::string> names;
  for (const json& assignment : ListOf(At(workload, "status", "admission", "podSetAssignments"))) {
    for (const auto& [resource, flavor] : MappingOf(At(assignment, "flavors")).items()) names.insert(kube::TextOf(flavor));
  }
  names.erase("");
  return {names.begin(), names.end()};
}

job::FusionJob AsAdmitted(const job::FusionJob& job, const json& workload, const std::map<std::string, json>& flavors) {
  job::FusionJob out = job;
  for (const json& assignment : ListOf(At(workload, "status", "admission", "podSetAssignments"))) {
    const std::string name = TextAt(assignment, "name");
    if (name == manifests::kBrokerRole) {
      job::RawExtension& pod_template = out.spec.broker.pod_template;
      pod_template.json = Admitted(pod_template.json, workload, assignment, flavors);
    }
    if (name != manifests::kExecutorRole) continue;
    job::Executors& executors = out.spec.executors;
    executors.pod_template.json = Admitted(executors.pod_template.json, workload, assignment, flavors);
    const int64_t count = kube::IntegerOf(At(assignment, "count"), QueuedExecutors(job)) - executors.spares;
    executors.replicas = std::max(executors.min, count);
  }
  return out;
}

json ReleasedStatus(const json& workload, absl::Time now) {
  const json& evicted = ConditionOf(workload, "Evicted");
  const std::string reason = TextAt(evicted, "reason"), message = TextAt(evicted, "message");
  // What else evicted it holds it back until somebody changes that, or until a time that Kueue keeps.
  const bool again = reason == "Preempted" || reason == "NodeFailures";
  std::vector<NewCondition> changed = {{"Requeued", again, reason, message}, {"QuotaReserved", false, "Pending", message}};
  json patch = AtThatVersion(workload);
  if (WorkloadIs(workload, "Admitted")) {
    changed.push_back({"Admitted", false, "NoReservation", "The workload has no reservation"});
    // Kueue bounds by it how long a Workload may be admitted in all.
    if (const auto since = kube::TimeFromText(TextAt(ConditionOf(workload, "Admitted"), "lastTransitionTime")); since.ok()) {
      const int64_t before = kube::IntegerOf(At(workload, "status", "accumulatedPastExecutionTimeSeconds"), 0);
      patch["status"]["accumulatedPastExecutionTimeSeconds"] = before + std::max<int64_t>(0, absl::ToInt64Seconds(now - *since));
    }
  }
  if (!ConditionOf(workload, "PodsReady").is_null()) {
    changed.push_back({"PodsReady", false, "WaitForStart", "Not all pods are ready or succeeded"});
  }
  patch["status"]["admission"] = nullptr;
  patch["status"]["conditions"] = Conditions(workload, changed, now);
  return patch;
}

json FinishedStatus(const json& workload, bool complete, const std::string& message, absl::Time now) {
  json patch = AtThatVersion(workload);
  patch["status"]["conditions"] = Conditions(workload, {{"Finished", true, complete ? "Succeeded" : "Failed", message}}, now);
  return patch;
}

json PodsReadyStatus(const json& workload, bool ready, absl::Time now) {
  const json& before = ConditionOf(workload, "PodsReady");
  const bool was = TextAt(before, "status") == "True";
  const std::string reason_before = TextAt(before, "reason");
  const bool recovering = was || reason_before == "WaitForRecovery" || reason_before == "Recovered";
  const NewCondition next =
      ready
          ? NewCondition{"PodsReady", true, recovering ? "Recovered" : "Started", "All pods reached readiness and the workload is running"}
          : NewCondition{"PodsReady", false, recovering ? "WaitForRecovery" : "WaitForStart",
                         recovering ? "At least one pod has failed, waiting for recovery" : "Not all pods are ready or succeeded"};
  json patch = AtThatVersion(workload);
  patch["status"]["conditions"] = Conditions(workload, {next}, now);
  return patch;
}

}  // namespace fusionllm::op::kueue
