// A plan near a known one: what is left of its stages after a device was lost, joined or slowed down, or links changed, with few devices
// exchanged and all cuts made again; of some dozen devices, what a few milliseconds of annealing make of that, which moves more. A warm
// start for those who must answer while a job runs; planning from scratch takes many times as long and may find better.
//
// Pure and deterministic; thread-safe. Cost: a Problem, up to twenty cuttings by closed form (ClosedForm) and four evaluations; where it
// anneals, two or three cuttings, ten short anneals (StageAnnealing) and up to fifteen evaluations.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler {

// A stage by names, since a later snapshot may number its devices and ops otherwise.
struct NamedStage {
  std::string device;
  std::vector<std::string> ops;
  bool operator==(const NamedStage&) const = default;
};

std::vector<NamedStage> StagesOf(const PlannedPipeline& plan);

// How much may move: few devices, or any where annealing suits (StageAnnealing::Suits).
enum class WarmStartMoves { kFew, kAny };

// Devices of `previous` that the request lacks or may not use have lost their stages; ops that it does not know are passed over. The
// previous stages themselves, where they can go on, are among the candidates: the answer is no slower. When nothing near is feasible the
// plan is made from scratch.
// Errors: as Planner::Plan.
absl::StatusOr<PlanOutcome> PlanFromWarmStart(const PlanRequest& request, const std::vector<NamedStage>& previous,
                                              const StopFunction& stop = nullptr, WarmStartMoves moves = WarmStartMoves::kAny);

}  // namespace fusionllm::scheduler
