// A FusionJob as Kueue's Workload: pure functions from a job to JSON and from a Workload to what it says. Why so: docs/design/adr/0040.
//
// What is written are the fields that Kueue's own job controllers write, of kueue.x-k8s.io/v1beta2.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/job/fusion_job.h"
#include "lib/kube/api/resource.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op::kueue {

inline const kube::Resource kWorkloads{"kueue.x-k8s.io", "v1beta2", "workloads", "Workload", true};
inline const kube::Resource kResourceFlavors{"kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", false};
inline const kube::Resource kWorkloadPriorityClasses{"kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass",
                                                     false};

// Of a Workload: what of its job it counts, as PodSetsDigest() has it.
inline constexpr char kPodSetsAnnotation[] = "fusionllm.io/pod-sets";

// The names of a Workload's podSets are the roles of Pods (manifests/identity.h).

struct QueuePriority {
  std::string class_name;  // of a WorkloadPriorityClass; empty: none
  int64_t value = 0;

  bool operator==(const QueuePriority&) const = default;
};

// The name of a job's Workload: another one for each job, so that one of a former job of the same name is never taken for it.
std::string WorkloadName(const manifests::JobIdentity& job);

// Of all that the user says of how many Pods there are and what they ask for; the same text, the same quota. It does not change with the
// operator's release, by which requests of its own may: a job that runs must not wait in its queue again for that.
std::string PodSetsDigest(const job::FusionJob& job);

// How many executors the podSet counts, spares included: those that the job names, and where it names no number, the fewest with which it
// begins.
int64_t QueuedExecutors(const job::FusionJob& job);

// To create. `hardware`: by which an executor asks for the device of spec.placement. InvalidArgument naming the field of a template.
absl::StatusOr<nlohmann::json> WorkloadObject(const manifests::JobIdentity& identity, const job::FusionJob& job, const std::string& queue,
                                              const QueuePriority& priority, const manifests::Images& images,
                                              const manifests::DeviceKind& hardware);
// To merge into `workload`, which has no quota, so that it is the one of the above; into one that has, its priority alone.
nlohmann::json WorkloadUpdate(const nlohmann::json& workload, const nlohmann::json& wanted);

// What a Workload says.
bool WorkloadIs(const nlohmann::json& workload, const char* condition);  // True
bool WorkloadBelongsTo(const nlohmann::json& workload, const manifests::JobIdentity& job);
bool WorkloadIsDeleting(const nlohmann::json& workload);
// Whether it counts what the job wants now, in that queue.
bool WorkloadFits(const nlohmann::json& workload, const std::string& digest, const std::string& queue);
std::string WorkloadPriorityClassOf(const nlohmann::json& workload);
// Names of the ResourceFlavors that its podSets are assigned, sorted, each once.
std::vector<std::string> FlavorsOf(const nlohmann::json& workload);
// The job as it was admitted: so many executors, on nodes of the flavors, and with what admission checks add to Pods. `flavors`: objects by
// name, of all that FlavorsOf() names.
job::FusionJob AsAdmitted(const job::FusionJob& job, const nlohmann::json& workload, const std::map<std::string, nlohmann::json>& flavors);

// Bodies of merge patches of its status, which a write by somebody else meanwhile makes a conflict.
// Gives the quota back, of one that is evicted and whose Pods are gone.
nlohmann::json ReleasedStatus(const nlohmann::json& workload, absl::Time now);
nlohmann::json FinishedStatus(const nlohmann::json& workload, bool complete, const std::string& message, absl::Time now);
nlohmann::json PodsReadyStatus(const nlohmann::json& workload, bool ready, absl::Time now);

}  // namespace fusionllm::op::kueue
