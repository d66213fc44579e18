// A job planned, and its step simulated: as planned, under another schedule, with noise, and under changes with and without a new plan.
//
// Pure but for the CPU clock in the plan documents: equal inputs and seeds give equal documents, search_cpu_seconds aside. Blocks for the
// searches (one, and one for each change) and simulations. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/planning/request.h"
#include "lib/planning/what_if.h"
#include "lib/scheduler/timeline.h"
#include "lib/wire/simulation_json.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

inline constexpr size_t kMaxWhatIfs = 64;

// The job with further overrides ("spec.training.microBatchSize=8").
using WorkloadSource = std::function<absl::StatusOr<std::unique_ptr<workload::Workload>>(const std::vector<std::string>& overrides)>;

struct SimulateOptions {
  PlanOptions plan;
  ScheduleRequest schedule;
  double jitter = 0;                    // see scheduler::NoiseSpec; in [0, 10]
  std::vector<std::string> stragglers;  // DEVICE:FACTOR[@PROBABILITY]; devices without a stage do not matter
  uint64_t noise_seed = 0;
  int steps = 1;                     // more than one: how they vary
  std::vector<std::string> what_if;  // see ApplyWhatIf; one scenario each
  bool timeline = false;
};

struct SimulationOutcome {
  wire::SimulationResult answer;
  scheduler::Timeline timeline;  // of the step as it is, when asked for
};

// With noise the step that is shown is the first of those that vary. Without, and as planned, its time is the plan's prediction, bit for
// bit.
// Errors: as PlanWorkload; InvalidArgument for options out of range and changes that do not apply; FailedPrecondition for a schedule that
// the plan cannot have. A job that cannot be placed is a PlanError, not an error; so it is within a what-if.
absl::StatusOr<SimulationOutcome> SimulateWorkload(const WorkloadSource& source, const Hardware& hardware, const SimulateOptions& options);

}  // namespace fusionllm::planning
