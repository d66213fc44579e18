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
#include "lib/scheduler/grid/draws.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

class SimulatorAnnealing {
 public:
  SimulatorAnnealing(const Problem& problem, Evaluator& evaluator) : problem_(problem), evaluator_(evaluator) {}

  // The best met from `start`, which is feasible and evaluated, while the evaluator does so much work. Times are of that effort.
  Candidate Run(const Candidate& start, Effort effort, int64_t max_work, grid::Draws& draws);

 private:
  bool Propose(const Assignment& from, grid::Draws& draws);
  bool ShiftCuts(grid::Draws& draws);
  bool ReplaceDevice(grid::Draws& draws);
  bool Reorder(grid::Draws& draws);
  bool AddStage(grid::Draws& draws);
  bool RemoveStage(grid::Draws& draws);
  bool CutsInOrder() const;
  int End(size_t stage) const;

  const Problem& problem_;
  Evaluator& evaluator_;
  Assignment proposed_;
  std::vector<int> unused_;  // devices without a stage of what is being changed
};

}  // namespace fusionllm::scheduler
