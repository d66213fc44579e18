// What happened to a job between two of its statuses, as events that `kubectl describe` shows. A pure function of what is written, so that
// an event comes once, whichever process writes. What a decision itself says (Ready, Restarting, the ends) is not reported twice.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lib/kubeapi/fusion_job_status.h"
#include "operator/lifecycle/decide.h"

namespace fusionllm::op::controller {

// Of checkpoints, which may come every few seconds, one event is enough for so long.
inline constexpr absl::Duration kCheckpointEventEvery = absl::Minutes(10);

std::vector<lifecycle::EventRecord> EventsForTransition(const kubeapi::FusionJobStatus& before, const kubeapi::FusionJobStatus& after);

}  // namespace fusionllm::op::controller
