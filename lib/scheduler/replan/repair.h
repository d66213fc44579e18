// Plans near a running one: where its stages would go when devices have gone, and what a few changed cuts or devices make of it.
//
// One thread; borrows problem and evaluator.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/replan/migration.h"

namespace fusionllm::scheduler::replan {

// The running stages as an assignment of `problem`, -1 for devices that may not run a stage any more. Nothing when the stages are no
// consecutive runs of its op order or do not hold all of its ops.
std::optional<Assignment> AssignmentOf(const Problem& problem, const RunningPlan& running);

// `assignment` with the stages of device -1 filled: given to devices that have no stage, or to the stages beside them. Several, unjudged;
// none when none is left.
std::vector<Assignment> ReassignStages(const Problem& problem, const Assignment& assignment);

struct ScoredAssignment {
  Assignment assignment;
  Evaluation evaluation;
  double total_s = 0;
};

// Seconds by which a feasible candidate is judged.
using TotalSeconds = std::function<double(const Assignment&, const Evaluation&)>;

// Climbs from `start`, which is feasible, by single changes at the stages that matter: the slowest and those beside them; a cut shifted, a
// device replaced, a stage given up or shared with a device that has none. Ends when none helps or the evaluations are spent.
ScoredAssignment HillClimb(const Problem& problem, Evaluator& evaluator, ScoredAssignment start, const TotalSeconds& total,
                           int64_t evaluations);

}  // namespace fusionllm::scheduler::replan
