// A job that wants replicas, spec.strategy.replicas other than 1, turned into a plan document.
//
// As plan_workload.h, which calls it. The document's stages list their devices in the order of pipelines; their numbers are those of the
// busiest replica, memory_bytes and in_flight the largest.
#pragma once

#include "absl/status/statusor.h"
#include "lib/planning/plan_of_pipeline.h"
#include "lib/planning/plan_workload.h"
#include "lib/scheduler/replicas/replica_planner.h"

namespace fusionllm::planning {

// With several pipelines `outcome` is a refusal (NotAvailable): there is no single plan to go on with.
absl::StatusOr<PlannedWorkload> PlanReplicatedWorkload(const workload::Workload& workload, const Profiles& profiles,
                                                       const PlanOptions& options);

// cpu_seconds: of the search.
plan::Plan PlanOfReplicas(const scheduler::replicas::ReplicaPlan& plan, const PlanContext& context, double cpu_seconds);

}  // namespace fusionllm::planning
