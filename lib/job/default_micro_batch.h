// The micro-batch size of a job that leaves it to the planner (spec.training.microBatchSize: auto), as long as no planner has chosen one.
#pragma once

#include <cstdint>

namespace fusionllm::job {

// The largest divisor of the global batch that leaves eight micro-batches, so that a pipeline has something to overlap. Devices are
// measured at it, the planner begins with it, and runs of releases before the planner chose had it. Precondition: global_batch_size > 0.
int64_t DefaultMicroBatchSize(int64_t global_batch_size);

}  // namespace fusionllm::job
