// The memory that each stage of a plan really asks for: the runtime's own sums, not the planner's estimate of them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/planning/profiles.h"
#include "lib/runtime/stage_program.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// What an executor's process needs beside its tensors: code that its kernels generate, connections, threads, the heap's slack. Measured as
// high-water mark less tensors: 9 MiB alone, 14 MiB among three stages, 16 to 24 MiB among six; the same for models of 8 to 225 MB.
int64_t ProcessBytes(int stages);

// Bytes by stage: runtime::MemoryOf of the stage's program and the largest workspace of its kernels; on the CPU ProcessBytes, and messages:
// two copies of each that it sends or receives, and those that are queued when the network, or the stage on the other side, is slower; on a
// GPU what compresses messages there, not what its driver and its libraries take (no card has reported it). `sync_bytes_in_flight`: by
// stage, of a pipeline that has others beside it, the gradients on their way to and from these (scheduler::replicas::BytesInFlight), on a
// GPU's host; empty: none. Errors: those of runtime::BuildStageProgram.
absl::StatusOr<std::vector<int64_t>> StageMemoryOf(const workload::Workload& workload, const Profiles& profiles,
                                                   const scheduler::PlannedPipeline& plan, runtime::Recompute recompute,
                                                   const std::vector<int64_t>& sync_bytes_in_flight = {});

// The planner's memory model is linear in ops, the runtime's arenas are not: how often a plan that does not fit is sent back with less
// memory to plan on.
inline constexpr int kMaxMemoryRounds = 6;

// By how much that is: what the planner's model was off by each time, on top of what was taken before; or what it was off by this time
// alone. The first comes to plans that fit in fewer rounds, the second to some that the first passes over.
enum class MemoryReduction { kCumulative, kLatestOnly };

// Puts StageMemoryOf into the plan. Nothing when every stage fits its device; else why the last that does not is refused, and `request` has
// less memory where it was short, to be planned on again.
absl::StatusOr<std::optional<plan::PlanError>> FitStageMemory(const workload::Workload& workload, const Profiles& profiles,
                                                              runtime::Recompute recompute, scheduler::PlannedPipeline& plan,
                                                              scheduler::PlanRequest& request,
                                                              MemoryReduction lowering = MemoryReduction::kCumulative,
                                                              const std::vector<int64_t>& sync_bytes_in_flight = {});

}  // namespace fusionllm::planning
