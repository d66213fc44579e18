// The oracle: every subset and order of devices and every cut of the op order, by branch and bound under the simulator.
#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "lib/scheduler/chain_search.h"
#include "lib/scheduler/communities.h"
#include "lib/scheduler/strategy.h"

namespace fusionllm::scheduler {
namespace {

constexpr int64_t kBudgetFactor = 25;
constexpr double kRounding = 1 - 1e-9;

class ExactSearch {
 public:
  ExactSearch(const Problem& problem, Evaluator& evaluator)
      : problem_(problem), evaluator_(evaluator), budget_(problem.request().search_budget * kBudgetFactor) {
    used_.assign(problem.request().devices.size(), 0);
  }

  std::variant<Assignment, Refusal> Run() {
    // A good first answer prunes most of the tree; it decides nothing else.
    ChainSearch chain(problem_, 64);
    for (const std::vector<int>& order : CandidateOrders(problem_, 8)) {
      const bool may_skip = order.size() > static_cast<size_t>(problem_.min_stages());
      for (const ChainSearch::Result& result : chain.Partition(order, may_skip, 2)) Consider(result.assignment);
    }
    Descend(0, 0);
    if (exhausted_) {
      return Refusal{"InstanceTooLarge",
                     absl::StrFormat("the exact planner gave up after %d simulations on %d ops and %d devices; op-fence plans this size",
                                     budget_, problem_.positions(), problem_.usable().size()),
                     {"simulations", 0, static_cast<double>(budget_)}};
    }
    if (!best_evaluation_.feasible() || best_.devices.empty()) return ExplainInfeasible(problem_, evaluator_);
    return best_;
  }

 private:
  void Consider(const Assignment& assignment) {
    const Evaluation evaluation = evaluator_.Evaluate(assignment, Effort::kFull);
    if (!evaluation.feasible()) return;
    if (best_.devices.empty() || Better(evaluation, assignment.devices.size(), best_evaluation_, best_.devices.size())) {
      best_ = assignment;
      best_evaluation_ = evaluation;
    }
  }

  // Chooses the device of the next stage, which begins at `begin`, and its end; slowest_s: the busiest stage so far.
  void Descend(int begin, double slowest_s) {
    if (problem_.Stopped()) exhausted_ = true;
    const int n = problem_.positions();
    const int chosen = static_cast<int>(partial_.devices.size());
    if (chosen >= problem_.max_stages()) return;
    for (int device : problem_.usable()) {
      if (used_[device]) continue;
      used_[device] = 1;
      partial_.devices.push_back(device);
      partial_.begins.push_back(begin);
      const int first_end = begin == 0 ? problem_.first_cut() : begin + 1;
      for (int end = first_end; end <= n && !exhausted_; ++end) {
        const double stage_s = problem_.ForwardSeconds(begin, end, device) + problem_.BackwardSeconds(begin, end, device);
        const double busiest_s = std::max(slowest_s, stage_s);
        const double least_step_s = busiest_s * problem_.request().micro_batches * kRounding + problem_.request().step_overhead_s;
        if (!best_.devices.empty() && least_step_s > best_evaluation_.cost_s()) break;  // longer segments only take longer
        if (end < n) {
          Descend(end, busiest_s);
        } else if (chosen + 1 >= problem_.min_stages()) {
          if (evaluator_.evaluations() > budget_) exhausted_ = true;
          Consider(partial_);
        }
      }
      partial_.devices.pop_back();
      partial_.begins.pop_back();
      used_[device] = 0;
    }
  }

  const Problem& problem_;
  Evaluator& evaluator_;
  int64_t budget_;
  bool exhausted_ = false;
  std::vector<char> used_;
  Assignment partial_, best_;
  Evaluation best_evaluation_;
};

class Exact final : public Strategy {
 public:
  absl::string_view name() const override { return "exact"; }

 protected:
  std::variant<Assignment, Refusal> Search(const Problem& problem, Evaluator& evaluator, bool* proven) const override {
    auto found = ExactSearch(problem, evaluator).Run();
    *proven = std::holds_alternative<Assignment>(found);
    return found;
  }
};

}  // namespace

std::unique_ptr<Strategy> MakeExact() { return std::make_unique<Exact>(); }

}  // namespace fusionllm::scheduler
