// A resolved job and measured hardware turned into a plan document, or a refusal that says what is short.
//
// Pure but for the CPU clock (search_cpu_seconds): equal inputs and seed give equal documents, that field aside. Blocks for the search:
// milliseconds to a few seconds. Thread-safe.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "lib/plan/plan.h"
#include "lib/planning/profiles.h"
#include "lib/planning/request.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/recost.h"
#include "lib/scheduler/replicas/replica_planner.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// Every stage of the plan fits its device by the runtime's own memory sums; recompute `auto` turns to full where
// memory is short and making activations again is faster than having fewer micro-batches in flight. A micro-batch size of `auto` becomes
// that of the fastest plan (micro_batch_choice.h). A refusal for want of memory says what size would fit, if any does. Errors:
// InvalidArgument for profiles that cannot be planned on, NotFound for an unknown planner (naming the choices), Cancelled once
// options.stop says so. A job that cannot be placed is a PlanError, not an error.
absl::StatusOr<plan::PlanResult> PlanWorkload(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options);

// The same with what the document leaves out: the planner's own answer, for those who go on with it.
struct PlannedWorkload {
  plan::PlanResult answer;
  scheduler::PlanOutcome outcome;
  // With several pipelines, for which the outcome is then a refusal: one who goes on with one must not take it for all.
  std::optional<scheduler::replicas::ReplicaPlan> replicated;
  runtime::Recompute recompute = runtime::Recompute::kNone;
  // Of a job that leaves the micro-batch size to the planner: the job and the devices at the size that was chosen. Null: as they were
  // given.
  std::unique_ptr<workload::Workload> workload;
  Profiles profiles;
};
absl::StatusOr<PlannedWorkload> PlanWorkloadDetailed(const workload::Workload& workload, const Profiles& profiles,
                                                     const PlanOptions& options);

// The same at the size that `workload` has, whatever its job says, and without advice where it is refused.
absl::StatusOr<PlannedWorkload> PlanWithFixedMicroBatchSize(const workload::Workload& workload, const Profiles& profiles,
                                                            const PlanOptions& options);

// The stages of a plan on other hardware or for another variant of its job: see scheduler::RecostPlan. `schedule`: absent: the job's.
absl::StatusOr<scheduler::PlannedPipeline> RecostWorkload(const workload::Workload& workload, const Profiles& profiles,
                                                          const PlanOptions& options, const PlannedWorkload& planned,
                                                          scheduler::RecostMode keep, std::optional<schedule::PipelineSchedule> schedule);

}  // namespace fusionllm::planning
