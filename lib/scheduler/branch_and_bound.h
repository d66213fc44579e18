// Every subset and order of devices and every cut of the op order, by branch and bound under the simulator: stages are fixed from the first
// on, the most promising first, and dropped when no completion can beat what is known (CompletionBound).
//
// Complete, so what it ends with is the best there is, unless the budget ran out. Practical to about a dozen devices. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/completion_bound.h"

namespace fusionllm::scheduler {

struct BranchPrefix;

class BranchAndBound {
 public:
  static constexpr size_t kMaxUsableDevices = 31;  // usable ones

  // `known`: a feasible assignment, or none (no devices). The better it is the less is left to search.
  BranchAndBound(const Problem& problem, Evaluator& evaluator, const Assignment& known);

  // Until no assignment can be better by more than `slack` (a share of its cost): a large one is soon done and finds what is much better.
  // Spends up to so many simulations, and looks at segments in proportion. False when that was not enough or the plan is not wanted any
  // more; best() may be better than what was known all the same.
  bool Run(double slack, int64_t simulations);
  // To start from something better.
  void Consider(const Assignment& assignment);

  const Assignment& best() const { return best_; }  // no devices: none is known, or none is feasible
  const Evaluation& evaluation() const { return best_evaluation_; }

 private:
  bool CanPrune(double min_s) const;
  std::vector<CompletionBound::Traffic> TrafficInto(int begin) const;
  bool Extend(const BranchPrefix& prefix, int begin, int end, int device, const CompletionBound::Traffic& traffic,
              BranchPrefix& longer) const;
  bool Cross(const BranchPrefix& prefix, const CompletionBound::Traffic& traffic, int device, BranchPrefix& longer) const;
  double MinSeconds(const BranchPrefix& prefix, int end, int device);
  void Descend(int begin, const BranchPrefix& prefix);

  const Problem& problem_;
  Evaluator& evaluator_;
  Assignment partial_, best_;
  Evaluation best_evaluation_;
  std::optional<CompletionBound> bound_;  // of this pass
  int64_t max_evaluations_ = 0;
  double slack_ = 0;  // what is better by no more than this share is passed over
  bool exhausted_ = false;
  uint32_t used_ = 0;  // bits of indices into usable()
};

}  // namespace fusionllm::scheduler
