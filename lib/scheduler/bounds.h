// What no plan can beat. Each bound that is said to hold does so for every plan the model allows, so a gap is never negative.
#pragma once

#include <vector>

#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

// Every bound on the seconds of a step, whether it holds for this job or not:
//   work           micro-batches x the work, and the update, shared out over the fastest devices that may be used, without any idle time
//   largest-op     micro-batches x the largest op, and its update, on the device that runs it fastest
//   longest-path   one micro-batch down the longest path of the graph and back, each op on its fastest device
//   cut-bytes      when a plan needs several stages, because it was asked or by the memory of the devices: micro-batches x what some cut
//   must carry, over the fastest link spanning-tree  when every device must be used: likewise, over the links that join even the worst
//   connected devices
// each with the fixed cost of a step. Of the rest of its end (tied gradients, the norm) no plan need have anything: all uses of a parameter
// may be on one device. Where recomputation is a choice, of the job without it, which has less to compute. How the last two
// follow: bounds.cc.
std::vector<LowerBound> LowerBounds(const Problem& problem);
// What a search proved that ruled out every faster plan than its own of `step_s`. It holds only for what was searched: one order of the
// ops, the memory and the recomputation of this request, and the least time to an equal loss, which is the time of a step only where no
// codec can lose anything.
LowerBound SearchBound(const Problem& problem, double step_s);
// The largest that holds; null when none does.
const LowerBound* BindingBound(const std::vector<LowerBound>& bounds);

// The largest of the first three without the update, quickly: where searches may stop.
double LowerBoundSeconds(const Problem& problem);

// Seconds of one micro-batch in the busiest stage: the first two bounds without the factor. Where searches start.
double MinBottleneckSeconds(const Problem& problem);

}  // namespace fusionllm::scheduler
