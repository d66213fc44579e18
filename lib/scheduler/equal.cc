// The baselines: every usable executor in declared order, one after the other, whatever its speed and links.
#include <cmath>

#include "lib/scheduler/strategy.h"

namespace fusionllm::scheduler {
namespace {

// First positions of `stages` runs; the first op that is no placeholder stands at first_cut() - 1.
std::vector<int> CutByCount(const Problem& problem, int stages) {
  const int first = problem.first_cut() - 1;
  const int64_t ops = problem.positions() - first;
  std::vector<int> begins = {0};
  for (int s = 1; s < stages; ++s) begins.push_back(first + static_cast<int>(ops * s / stages));
  return begins;
}

// Each cut at the position whose FLOPs before it are nearest to its share; every stage keeps at least one op.
std::vector<int> CutByFlops(const Problem& problem, int stages) {
  const int n = problem.positions();
  const double total = problem.Flops(0, n);
  std::vector<int> begins = {0};
  for (int s = 1; s < stages; ++s) {
    const double share = total * s / stages;
    int cut = std::max(begins.back() + 1, problem.first_cut());
    const int last = n - (stages - s);
    while (cut < last && std::abs(problem.Flops(0, cut + 1) - share) < std::abs(problem.Flops(0, cut) - share)) ++cut;
    begins.push_back(cut);
  }
  return begins;
}

class EqualStrategy final : public Strategy {
 public:
  EqualStrategy(absl::string_view name, std::vector<int> (*cut)(const Problem&, int)) : name_(name), cut_(cut) {}
  absl::string_view name() const override { return name_; }

 protected:
  std::variant<Assignment, Refusal> Search(const Problem& problem, Evaluator& evaluator, bool*) const override {
    const int stages = problem.max_stages();
    Assignment assignment{.begins = cut_(problem, stages)};
    assignment.devices.assign(problem.usable().begin(), problem.usable().begin() + stages);
    const Evaluation evaluation = evaluator.Evaluate(assignment, Effort::kFull);
    if (!evaluation.feasible()) return RefusalFor(problem, assignment, evaluation);
    return assignment;
  }

 private:
  absl::string_view name_;
  std::vector<int> (*cut_)(const Problem&, int);
};

}  // namespace

std::unique_ptr<Strategy> MakeEqualOps() { return std::make_unique<EqualStrategy>("equal-ops", CutByCount); }
std::unique_ptr<Strategy> MakeEqualCompute() { return std::make_unique<EqualStrategy>("equal-compute", CutByFlops); }

}  // namespace fusionllm::scheduler
