// Planners behind one interface: PlanRequest -> PlannedPipeline or PlanError.
//
// Pure and deterministic: the same request gives the same plan, bit for bit; search budgets count candidates, not time. A caller may stop a
// search, which then gives no plan. Thread-safe.
//   op-fence       clusters devices by bandwidth, cuts the graph by dynamic programming, then searches locally with the simulator
//   equal-ops      the naive baseline: every executor in declared order gets the same number of ops
//   equal-compute  every executor in declared order gets the same FLOPs
//   exact          every order of devices, subset and cut, by branch and bound; small instances only: the oracle of the tests. Of a graph
//                  whose ops have several orders it searches one, and takes op-fence's plan where that is better
//   dt-fm          the allocation of DT-FM (arXiv 2206.01288) with one pipeline: the devices along the cheapest path, equal numbers of ops
//   random         executors in an order drawn from the seed, equal numbers of ops
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/scheduler/assignment.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/reorder.h"

namespace fusionllm::scheduler {

class Planner {
 public:
  virtual ~Planner() = default;
  virtual absl::string_view name() const = 0;
  // Errors: InvalidArgument for a request that is no valid snapshot, Cancelled once `stop` says so. A job that cannot be placed is a
  // PlanError, not an error.
  absl::StatusOr<PlanOutcome> Plan(const PlanRequest& request, StopFunction stop = nullptr) const;

 protected:
  // A feasible assignment, or why there is none; whatever there is at hand when problem.Stopped(). `proven` may be set when no assignment
  // is faster.
  virtual std::variant<Assignment, PlanError> Search(const Problem& problem, Evaluator& evaluator, bool* proven) const = 0;
  // Something better than what Search found, along another order of the ops; null: nothing.
  virtual std::unique_ptr<Reordered> Reorder(const Problem& problem, Evaluator& evaluator, const Assignment& found) const;
};

std::vector<absl::string_view> PlannerNames();
// Errors: NotFound naming the choices.
absl::StatusOr<std::unique_ptr<Planner>> CreatePlanner(absl::string_view name);

// CreatePlanner and Plan in one.
absl::StatusOr<PlanOutcome> MakePlan(absl::string_view planner, const PlanRequest& request, StopFunction stop = nullptr);

// The refusal that fits an infeasible evaluation: names stage, device, ops, bytes.
PlanError PlanErrorFor(const Problem& problem, const Assignment& assignment, const Evaluation& evaluation);
// With what would help behind the message, where it is one for want of memory.
PlanError WithMemoryRemedy(PlanError refusal, absl::string_view also = ", or train a smaller model");
// Why no assignment at all fits, by memory or by links: the refusal of searches that found nothing.
PlanError ExplainInfeasible(const Problem& problem, Evaluator& evaluator);

// The plan of a feasible assignment with bound, gap, devices left out and sentences. `proven`: no assignment is faster.
PlannedPipeline CompletePlan(const Problem& problem, Evaluator& evaluator, const Assignment& assignment, absl::string_view planner,
                             bool proven = false);

std::unique_ptr<Planner> MakeEqualOps();
std::unique_ptr<Planner> MakeEqualCompute();
std::unique_ptr<Planner> MakeOpFence();
std::unique_ptr<Planner> MakeExact();
std::unique_ptr<Planner> MakeDtFm();
std::unique_ptr<Planner> MakeRandom();

}  // namespace fusionllm::scheduler
