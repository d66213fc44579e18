// A job's strategy for an attempt that has not the devices of the one before: a site was lost, or the job was scaled.
#pragma once

#include <string>
#include <vector>

#include "lib/job/fusion_job.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::placement {

// Drops pins to devices that `slots` lack. Where fewer train and are not excluded than `replicas` of `stages` need, leaves the number of
// replicas to the planner, and makes `stages` no more than there are. So does a broker that loses devices within an attempt: the planner
// refuses all three, for good. Says what it has changed, as a sentence; empty: nothing. Not for a first attempt, in which such a pin is a
// mistake that its user should learn of.
std::string FitStrategy(job::Strategy& strategy, const std::vector<manifests::ExecutorSlot>& slots);

}  // namespace fusionllm::op::placement
