// The oracle: the best of all assignments, by branch and bound.
#include <memory>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "lib/scheduler/branch_and_bound.h"
#include "lib/scheduler/op_order.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/reorder.h"

namespace fusionllm::scheduler {
namespace {

constexpr int64_t kBudgetFactor = 50;

// Nothing where it has no answer.
std::vector<NamedStage> OpFencesStages(const Problem& problem, const PlanRequest& request) {
  const absl::StatusOr<PlanOutcome> outcome = MakeOpFence()->Plan(request, [&problem] { return problem.Stopped(); });
  return outcome.ok() && std::holds_alternative<PlannedPipeline>(*outcome) ? StagesOf(std::get<PlannedPipeline>(*outcome))
                                                                           : std::vector<NamedStage>();
}

// A good first answer prunes most of the tree; it decides nothing else.
Assignment OpFencesAnswer(const Problem& problem) {
  PlanRequest request = problem.request();
  request.order = problem.order();  // cuts of another order would say nothing here
  return ContiguousAssignment(request, OpFencesStages(problem, request));
}

class Exact final : public Planner {
 public:
  absl::string_view name() const override { return "exact"; }

 protected:
  std::variant<Assignment, PlanError> Search(const Problem& problem, Evaluator& evaluator, bool* proven) const override {
    const size_t devices = problem.usable().size();
    if (devices > BranchAndBound::kMaxUsableDevices) {
      return PlanError{plan_errors::kInstanceTooLarge,
                       absl::StrFormat("the exact planner is for at most %d devices, there are %d; op-fence plans this size",
                                       BranchAndBound::kMaxUsableDevices, devices),
                       {"executors", static_cast<double>(devices), static_cast<double>(BranchAndBound::kMaxUsableDevices)}};
    }
    BranchAndBound search(problem, evaluator, OpFencesAnswer(problem));
    const int64_t budget = problem.request().search_budget * kBudgetFactor;
    // Better answers first, as far as they are cheap: they spare the last search more than they cost.
    for (const double slack : {0.1, 0.02}) {
      if (!search.best().devices.empty() && !search.Run(slack, budget / 20)) break;
    }
    if (!search.Run(0, budget)) {
      return PlanError{plan_errors::kInstanceTooLarge,
                       absl::StrFormat("the exact planner gave up after %d simulations on %d ops and %d devices; op-fence plans this size",
                                       evaluator.evaluations(), problem.positions(), devices),
                       {"simulations", 0, static_cast<double>(budget)}};
    }
    if (search.best().devices.empty()) return ExplainInfeasible(problem, evaluator);
    *proven = true;
    return search.best();
  }

  // The search keeps to one order of the ops. Where there are others nothing is proven, but no plan is worse than op-fence's.
  std::unique_ptr<Reordered> Reorder(const Problem& problem, Evaluator& evaluator, const Assignment& found) const override {
    const PlanRequest& request = problem.request();
    if (!request.order.empty() || IsOnlyOrder(request, problem.order())) return nullptr;
    std::unique_ptr<Reordered> other = ReorderedAs(problem, OpFencesStages(problem, request));
    if (other == nullptr) return nullptr;
    const Evaluation theirs = Evaluator(*other->problem).Evaluate(other->assignment, Effort::kFull);
    const Evaluation own = evaluator.Evaluate(found, Effort::kFull);
    const bool better = theirs.feasible() && Better(theirs, other->assignment.devices.size(), own, found.devices.size());
    return better ? std::move(other) : nullptr;
  }
};

}  // namespace

std::unique_ptr<Planner> MakeExact() { return std::make_unique<Exact>(); }

}  // namespace fusionllm::scheduler
