// A plan's pipeline under schedules that the runtime does not run yet: what they would be worth. For GPipe and 1F1B see recost.h.
//
// Pure functions. Both respect the memory that limited the plan's depth. The results are for the same devices and ops.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/scheduler/planned_pipeline.h"

namespace fusionllm::scheduler {

inline constexpr int kMaxVirtualStages = 64;
// InvalidArgument outside 2 .. kMaxVirtualStages.
absl::Status CheckVirtualStages(int chunks);

// The backward split in gradients of inputs and of weights (arXiv 2401.10241), at the plan's depths or, where that is faster, a pipeline's
// length deeper. Errors: FailedPrecondition when no op's gradients of weights stand apart.
absl::StatusOr<PipelineInput> SplitBackward(const StepModel& pipeline);

// Every stage cut into `chunks` equal parts, chunk c of all stages before chunk c + 1 (arXiv 2104.04473): messages between neighbours are
// sent once for each chunk, and from the last device back to the first between chunks, as large as the slowest of the others. An estimate:
// the ops are not placed again, and coding what goes round is not counted.
// Errors: those of CheckVirtualStages; InvalidArgument for one stage; FailedPrecondition when the last and the first device
// are not joined or memory does not hold the micro-batches that must be in flight.
absl::StatusOr<PipelineInput> Interleave(const StepModel& pipeline, int chunks);

}  // namespace fusionllm::scheduler
