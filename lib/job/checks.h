// What the field table cannot say: rules over several fields. Internal to lib/job.
#pragma once

#include <functional>
#include <initializer_list>

#include "absl/strings/string_view.h"
#include "lib/job/fusion_job.h"
#include "lib/job/topology.h"

namespace fusionllm::job {

// Takes the fields that a finding is about, the one to blame first ("spec.training.microBatchSize"), and what is wrong with it.
using Report = std::function<void(std::initializer_list<absl::string_view> paths, absl::string_view message)>;

void CheckJob(const FusionJob& job, const Report& report);
void CheckTopology(const Topology& topology, const Report& report);

// The part of CheckJob that concerns spec.model; model_config.h gives the result.
void CheckModel(const Spec& spec, const Report& report);

}  // namespace fusionllm::job
