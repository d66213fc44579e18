// What the clusters that there are offer a job: which it may use, and for how many of its executors they have room.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/job/fusion_job.h"
#include "operator/manifests/run_objects.h"
#include "operator/members/member.h"
#include "operator/placement/placement.h"
#include "operator/placement/reservations.h"

namespace fusionllm::op {

struct SurveyRequest {
  JobIdentity identity;
  const job::FusionJob* job = nullptr;
  const Images* images = nullptr;
  // Clusters that the job was told to leave, with why.
  std::map<std::string, std::string> avoided;
  absl::Time now;
};

// The hub first, then the others by name. `reservations` may be null.
std::vector<ClusterOffer> Survey(const SurveyRequest& request, const Member& hub, const Members& members, Reservations* reservations);

// What a pod of the job's executors asks of a node of such hardware. InvalidArgument names the field of executors.template, or
// spec.placement.minMemory.
absl::StatusOr<PodShape> ExecutorShape(const JobIdentity& identity, const job::FusionJob& job, const Images& images,
                                       const DeviceKind& hardware);

// The hardware that spec.placement.device and minMemory name, in a cluster. FailedPrecondition: it has none, or does not tell.
absl::StatusOr<DeviceKind> HardwareIn(const ClusterCapacity* capacity, const job::Placement& placement);

}  // namespace fusionllm::op
