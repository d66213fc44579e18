// Whether checkpoints of a run were due and none came: what a crash would cost, which nothing else in a job's status tells. Pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/job/fusion_job.h"
#include "lib/kubeapi/fusion_job_status.h"
#include "operator/lifecycle/decide.h"

namespace fusionllm::op::controller {

// The figure of a run that has no checkpoint yet which says at what step it was seen first: it may have begun with another run's. It is in
// the status for the attempts, and the operators, that come after. `step`: the newest that is reported; `before`: the status as it was.
kubeapi::Metric FirstStep(int64_t step, const kubeapi::FusionJobStatus& before);

// The condition CheckpointStale of that status; nothing: it stays absent. Judged by what the status tells of steps and checkpoints, so
// nothing is written that would not be written anyway. True stays so until a newer checkpoint is there or the spec has changed: an attempt
// that begins at an earlier step has saved nothing by that.
std::optional<lifecycle::DesiredCondition> StaleCheckpoint(const job::Spec& spec, int64_t generation,
                                                           const kubeapi::FusionJobStatus& status);

}  // namespace fusionllm::op::controller
