// Local search from one assignment under the simulator: cuts, order of devices, who takes part; until no single change helps.
//
// Deterministic. One thread; borrows Problem and Evaluator.
#pragma once

#include <functional>
#include <utility>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/chain_search.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

class LocalSearch {
 public:
  // `chain`: cuts a changed order afresh. `done`: asked before each candidate; true ends the climb where it is.
  LocalSearch(const Problem& problem, Evaluator& evaluator, std::function<ChainSearch&()> chain, std::function<bool()> done)
      : problem_(problem), evaluator_(evaluator), chain_(std::move(chain)), done_(std::move(done)) {}

  // `current` is feasible and evaluated, and so is what becomes of it, with that effort.
  void HillClimb(Candidate& current, Effort effort);

 private:
  bool TryImprove(Candidate& current, const Assignment& assignment);
  bool ShiftCuts(Candidate& current);
  bool TrySettled(Candidate& current, const Assignment& assignment);
  bool ChangeDevices(Candidate& current);
  bool SplitStage(Candidate& current);

  const Problem& problem_;
  Evaluator& evaluator_;
  const std::function<ChainSearch&()> chain_;
  const std::function<bool()> done_;
  Effort effort_ = Effort::kQuick;
};

}  // namespace fusionllm::scheduler
