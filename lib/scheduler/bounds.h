// What no plan can beat. Each bound holds for every plan the model allows, so a gap is never negative.
#pragma once

#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

// Seconds of a step: the largest of
//   balanced work: micro_batches x the work shared out over the fastest devices that may be used, without any idle time;
//   the largest op on the device that runs it fastest, micro_batches times;
//   one micro-batch down the longest path of the graph and back, each op on its fastest device;
// plus the fixed cost of a step. Links are left out: a plan may need none.
double LowerBoundSeconds(const Problem& problem);

// Seconds of one micro-batch in the busiest stage: the first two bounds without the factor. Where searches start.
double LeastBottleneckSeconds(const Problem& problem);

}  // namespace fusionllm::scheduler
