// A running plan and a snapshot of now: whether to stay, and if not, the change that is cheapest over the steps that are left.
//
// Candidates are the running stages with their cuts, devices and number changed a little (so that few ops move), with all cuts made again
// and few devices exchanged (PlanFromWarmStart), of some dozen devices what annealing makes of that, and a plan from scratch. All are
// judged by one sum: steps left x the time of a step to an equal loss (docs/design/adr/0003) + the cost of the move, which is its transfers
// (MigrationModel) and the fixed cost of any move. Leaving a plan that still runs must gain `min_improvement` of a step as well, so that
// noise moves nothing. A snapshot says everything that may have happened: a device that is missing was lost, a new one joined, a slower one
// has a larger time_scale, a link another rate.
//
// Pure and deterministic: equal inputs give equal answers; the search counts evaluations, not time. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/replan/migration.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler::replan {

// Of a step, and of what a move costs: sums over all steps that may be left stay finite.
inline constexpr double kMaxReplanSeconds = 1e9;

struct ReplanOptions {
  int64_t steps_left = 0;  // >= 0
  // Of the running plan, as measured under the new conditions; 0: simulated, with codecs chosen again.
  double running_step_s = 0;
  // What predictions are multiplied by: measured over predicted of the running plan while it ran well.
  double bias = 1;
  double fixed_s = 0;             // what any move costs beside its transfers: draining, loading, warming up
  double min_improvement = 0.05;  // of a step
  Restore restore;
  bool figures_only = false;   // look for no other plan: stay, or a PlanError when the running plan cannot go on
  bool from_scratch = true;    // consider a plan from scratch, too: the costly part on large instances
  int64_t evaluations = 2000;  // of the search around the running plan
};

struct ReplanResult {
  enum class Decision {
    kStay,
    kMove,      // it pays
    kMustMove,  // the running plan cannot go on
  };
  Decision decision = Decision::kStay;
  std::string reason;  // a sentence with the figures
  // Of the running plan in the new conditions; without a value it cannot run, and `reason` says why.
  std::optional<double> running_step_s;
  PlannedPipeline plan;  // to run from now on; when staying the running stages as the snapshot of now sees them
  Migration migration;   // into `plan`; empty when staying
  double gain_s = 0;     // over the steps left, the move subtracted; 0 when staying or forced
  bool operator==(const ReplanResult&) const = default;
};

using ReplanOutcome = std::variant<ReplanResult, PlanError>;

// When a device of the running plan is missing, spares may get stages.
// Errors: InvalidArgument for a snapshot, plan or options that are none (naming the field), Cancelled once `stop` says so. A PlanError when
// the job cannot go on with what is left.
absl::StatusOr<ReplanOutcome> Replan(const PlanRequest& now, const RunningPlan& running, const ReplanOptions& options,
                                     StopFunction stop = nullptr);

}  // namespace fusionllm::scheduler::replan
