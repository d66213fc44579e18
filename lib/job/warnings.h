// What is odd about a valid job: things a user may want but more likely overlooked. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "lib/job/fusion_job.h"
#include "lib/job/topology.h"

namespace fusionllm::job {

// One sentence each, beginning with the field. Short runs of a long job are common (--set spec.training.steps=5), so these are no errors.
std::vector<std::string> Warnings(const FusionJob& job);

// What is odd about the two together: devices that the job excludes and the topology does not have. A slip of the pen, or a job that is
// used elsewhere too.
std::vector<std::string> Warnings(const FusionJob& job, const Topology& topology);

// The fields that are set and that only Kubernetes reads (Rule::kubernetes_only), in one sentence by name, for where there is none; empty:
// none are.
std::string KubernetesOnlyWarning(const FusionJob& job);

}  // namespace fusionllm::job
