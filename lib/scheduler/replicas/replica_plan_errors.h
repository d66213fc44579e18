// Why there is no plan with several pipelines, and what to do about it, in words of the job's fields.
//
// Pure functions, deterministic.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/replicas/replica_search.h"

namespace fusionllm::scheduler::replicas {

// What limits the grid as a whole; of a single pipeline nothing is requested.
struct GridConstraints {
  int replicas = 0;     // kAutoReplicas: any
  int stages = 0;       // 0: any
  int min_devices = 1;  // executors.min, or all of them
  int max_devices = 1;
  int max_stages = 1;             // of a pipeline: each has an op
  bool use_all_devices = false;   // min_devices are all that the job may use
  std::string max_devices_why;    // a clause: why it may use no more; empty: there are no more
  std::string fewer_devices_why;  // a clause: why there are no more, with the sign before it; empty: there are none
};

// Why the constraints leave no grid: TooManyReplicas, TooFewExecutors; TooManyStages where the model has too few ops for executors.min;
// ConflictingConstraints where another number of executors is asked for than such a grid has. Precondition: they leave none; a number of
// replicas is requested.
PlanError NoFeasibleShape(const GridConstraints& constraints, int micro_batches);

// Why several pipelines are out of the question for this job. `why` is for a plan with one, the refusal's message also says what to do.
struct SinglePipelineConstraint {
  PlanError refusal;
  std::string why;
};
std::optional<SinglePipelineConstraint> SinglePipelineConstraintOf(absl::string_view planner, const PlanRequest& request,
                                                                   const Problem& problem);

// Of the shapes that there are, none fits; this one was judged.
PlanError NoGridFits(const Problem& problem, const FoundGrid& failed);

}  // namespace fusionllm::scheduler::replicas
