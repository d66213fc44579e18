// What the field table cannot say: rules over several fields. Internal to lib/job.
#pragma once

#include "lib/job/fusion_job.h"
#include "lib/job/topology.h"
#include "lib/models/family.h"

namespace fusionllm::job {

using models::Report;

void CheckJob(const FusionJob& job, const Report& report);
void CheckTopology(const Topology& topology, const Report& report);

// The part of CheckJob that concerns spec.model; model_config.h gives the result.
void CheckModel(const Spec& spec, const Report& report);

}  // namespace fusionllm::job
