// Plans with replicas: data parallelism times pipeline, as the job asks for.
//
// Pure and deterministic: equal requests give equal plans, bit for bit. Thread-safe. Limits: kMaxDevices.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/replicas/all_reduce.h"

namespace fusionllm::scheduler::replicas {

inline constexpr int kMaxDevices = 256;         // usable, for more than one pipeline
inline constexpr int kAutoReplicas = 0;         // how many pipelines: the planner decides
inline constexpr char kPlanner[] = "op-fence";  // the one planner for more than one pipeline

// Pipelines with equal cuts. Each is a plan of its own for its share of the micro-batches (pipelines[d].micro_batches), without bounds.
struct ReplicaPlan {
  std::vector<PlannedPipeline> pipelines;
  std::vector<Chain> chains;  // by stage: how its replicas add up gradients; empty with one pipeline
  AllReduceUsage sync;        // what that does to links
  double pipelines_s = 0;     // the slowest of them
  double sync_s = 0;          // then the gradients
  int64_t sync_bytes = 0;     // that they put on links, all together, once a step
  double predicted_step_s = 0;
  std::vector<LowerBound> lower_bounds;
  double lower_bound_s = 0;  // no plan with as many pipelines as were allowed is faster
  double gap = 0;
  int64_t evaluations = 0;
  std::vector<std::string> left_out;
  std::vector<std::string> explain;
  bool operator==(const ReplicaPlan&) const = default;
};

using ReplicaOutcome = std::variant<ReplicaPlan, PlanError>;

// `replicas`: exactly so many pipelines, or kAutoReplicas: the number that is fastest, never slower than the planner's plan with one. One
// is what MakePlan answers for the planner. More than one is op-fence's alone, and neither pins nor PlanRequest::first_device go with it:
// an op then runs on several devices. With kAutoReplicas they leave one pipeline, and a sentence says so. Errors: as MakePlan;
// InvalidArgument for a negative number. Refusals beside MakePlan's: TooManyReplicas (than micro-batches), TooFewExecutors, TooManyStages,
// ConflictingConstraints (a number of executors that no such grid has), InstanceTooLarge, PinConflict, NotAvailable.
absl::StatusOr<ReplicaOutcome> PlanReplicas(absl::string_view planner, const PlanRequest& request, int replicas,
                                            StopFunction stop = nullptr);

// What no plan with up to so many pipelines on up to so many devices can beat: as LowerBounds, with all work shared out over the fastest of
// the devices; and otherwise for the pipeline that has its share of the micro-batches or more.
absl::StatusOr<std::vector<LowerBound>> ReplicaBounds(const Problem& problem, int max_pipelines, int max_devices);

// Judges the plan by these bounds, and has `explain` end with a sentence about them.
void SetBounds(std::vector<LowerBound> bounds, ReplicaPlan& plan);

}  // namespace fusionllm::scheduler::replicas
