// Simulated annealing of an assignment under the simulator: order of devices, cuts and who takes part, all at once.
//
// For few devices, where a simulation is cheap and closed forms mislead most: a candidate costs some ten microseconds here. Unlike climbs,
// which stop at what no single change betters, it passes through worse assignments, those with another number of stages too.
//
// Deterministic. One thread; borrows Problem and Evaluator.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/grid/rng.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

class SimulatorAnnealing {
 public:
  SimulatorAnnealing(const Problem& problem, Evaluator& evaluator) : problem_(problem), evaluator_(evaluator) {}

  // The best met from `start`, which is feasible and evaluated, while the evaluator does so much work. Times are of that effort.
  Candidate Run(const Candidate& start, Effort effort, int64_t max_work, grid::Rng& rng);

 private:
  bool Propose(const Assignment& from, grid::Rng& rng);
  bool ShiftCuts(grid::Rng& rng);
  bool ReplaceDevice(grid::Rng& rng);
  bool Reorder(grid::Rng& rng);
  bool AddStage(grid::Rng& rng);
  bool RemoveStage(grid::Rng& rng);
  bool CutsInOrder() const;
  int End(size_t stage) const;

  const Problem& problem_;
  Evaluator& evaluator_;
  Assignment proposed_;
  std::vector<int> unused_;  // devices without a stage of what is being changed
};

}  // namespace fusionllm::scheduler
