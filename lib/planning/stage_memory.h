// The memory that each stage of a plan really asks for: the runtime's own sums, not the planner's estimate of them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/planning/profiles.h"
#include "lib/runtime/stage_program.h"
#include "lib/scheduler/plan.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// What an executor's process needs beside its tensors: code that its kernels generate, connections, threads, the heap's slack. Measured as
// high-water mark less tensors: 9 MiB alone, 14 MiB among three stages, 16 to 24 MiB among six; the same for models of 8 to 225 MB.
int64_t ProcessBytes(int stages);

// Bytes by stage: ProcessBytes, runtime::MemoryOf of the stage's program, the largest workspace of its kernels, and messages on their way:
// two copies of each that it sends or receives, and those that wait because the stage before may be further ahead. Errors: those of
// runtime::BuildStageProgram.
absl::StatusOr<std::vector<int64_t>> StageMemoryOf(const workload::Workload& workload, const Profiles& profiles,
                                                   const scheduler::Plan& plan, runtime::Recompute recompute);

}  // namespace fusionllm::planning
