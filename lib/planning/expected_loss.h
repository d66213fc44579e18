// What a plan's codecs are expected to cost in loss, all links and tied gradients together, and where that figure comes from.
#pragma once

#include "lib/job/fusion_job.h"
#include "lib/plan/plan.h"

namespace fusionllm::planning {

// Reason of the warning where a codec that the job names costs more than the job's own limit.
inline constexpr char kLossAboveLimit[] = "ExpectedLossAboveLimit";

// Sets loss_cost and its source from those of links and tied gradients: their sum, over replicas the mean by their micro-batches; adds the
// warning.
void SetExpectedLoss(const job::Spec& spec, plan::Plan& plan);

}  // namespace fusionllm::planning
