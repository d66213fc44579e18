#include "lib/scheduler/reorder.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "lib/scheduler/chain_search.h"
#include "lib/scheduler/ideal_cuts.h"
#include "lib/scheduler/local_search.h"
#include "lib/scheduler/op_order.h"

namespace fusionllm::scheduler {
namespace {

constexpr size_t kMaxIdeals = 1'000;
constexpr size_t kMaxIdealPairs = 20'000'000;  // of ideals, over all stages: some hundredths of a second for a cap
constexpr size_t kTried = 3;
constexpr int64_t kShareOfBudget = 20;  // one in so many, for each order that is tried
constexpr int kGrid = 160;

std::unique_ptr<Reordered> Along(const Problem& problem, std::vector<int> order) {
  auto other = std::make_unique<Reordered>(Reordered{.request = problem.request()});
  other->request.order = std::move(order);
  auto created = Problem::Create(other->request, [&problem] { return problem.Stopped(); });
  if (!created.ok() || !std::holds_alternative<std::unique_ptr<Problem>>(*created)) return nullptr;
  other->problem = std::get<std::unique_ptr<Problem>>(*std::move(created));
  return other;
}

// The same stages with their ops in the planner's own order, as OrderOfStages gives it: sums of another order differ in their last bits.
std::unique_ptr<Reordered> InOwnOrder(const Problem& problem, const Reordered& other) {
  std::vector<int> position(problem.positions());
  for (int p = 0; p < problem.positions(); ++p) position[problem.op_at(p)] = p;
  std::vector<int> order = other.problem->order();
  const std::vector<int>& begins = other.assignment.begins;
  for (size_t s = 0; s < begins.size(); ++s) {
    const auto end = s + 1 < begins.size() ? order.begin() + begins[s + 1] : order.end();
    std::sort(order.begin() + begins[s], end, [&](int a, int b) { return position[a] < position[b]; });
  }
  std::unique_ptr<Reordered> same = Along(problem, std::move(order));
  if (same != nullptr) same->assignment = other.assignment;
  return same;
}

// The candidate in its own order, improved; null when it cannot be.
std::unique_ptr<Reordered> Try(const Problem& problem, const IdealCut& cut, const std::vector<int>& devices, Candidate& candidate) {
  std::unique_ptr<Reordered> other = Along(problem, cut.order);
  if (other == nullptr) return nullptr;
  Evaluator judge(*other->problem);
  candidate.assignment = {.begins = cut.begins, .devices = devices};
  candidate.evaluation = judge.Evaluate(candidate.assignment, Effort::kFull);
  if (!candidate.evaluation.feasible()) return nullptr;
  std::optional<ChainSearch> chain;
  const int64_t budget = problem.request().search_budget / kShareOfBudget;
  LocalSearch local_search(
      *other->problem, judge, [&]() -> ChainSearch& { return chain ? *chain : chain.emplace(*other->problem, kGrid); },
      [&] { return judge.work() >= budget || problem.Stopped(); });
  local_search.HillClimb(candidate, Effort::kFull);
  other->assignment = candidate.assignment;
  other = InOwnOrder(problem, *other);
  if (other == nullptr) return nullptr;
  candidate.evaluation = Evaluator(*other->problem).Evaluate(candidate.assignment, Effort::kFull);
  return candidate.evaluation.feasible() ? std::move(other) : nullptr;
}

bool IsTopological(const PlanRequest& request, const std::vector<int>& order) {
  std::vector<int> position(order.size());
  for (size_t p = 0; p < order.size(); ++p) position[order[p]] = static_cast<int>(p);
  return std::all_of(request.values.begin(), request.values.end(), [&](const ValueNode& value) {
    return std::all_of(value.consumers.begin(), value.consumers.end(),
                       [&](int consumer) { return position[consumer] > position[value.producer]; });
  });
}

}  // namespace

std::unique_ptr<Reordered> BetterOrder(const Problem& problem, Evaluator& evaluator, const Assignment& found) {
  const PlanRequest& request = problem.request();
  if (!request.order.empty() || static_cast<size_t>(problem.positions()) > kMaxIdeals) return nullptr;
  if (found.devices.size() < 2 || IsOnlyOrder(request, problem.order())) return nullptr;
  const std::optional<std::vector<Ideal>> ideals = IdealsOf(problem, kMaxIdeals);
  if (!ideals.has_value() || ideals->size() * ideals->size() / 2 * found.devices.size() > kMaxIdealPairs) return nullptr;
  std::unique_ptr<Reordered> best;
  Evaluation best_evaluation = evaluator.Evaluate(found, Effort::kFull);
  size_t best_stages = found.devices.size();
  for (const IdealCut& cut : CutOverIdeals(problem, *ideals, found.devices, kTried)) {
    if (cut.order == problem.order()) continue;
    Candidate candidate;
    std::unique_ptr<Reordered> other = Try(problem, cut, found.devices, candidate);
    if (other == nullptr) continue;
    if (!Better(candidate.evaluation, candidate.assignment.devices.size(), best_evaluation, best_stages)) continue;
    best = std::move(other);
    best_evaluation = candidate.evaluation;
    best_stages = candidate.assignment.devices.size();
  }
  return best;
}

Assignment ContiguousAssignment(const PlanRequest& request, const std::vector<NamedStage>& stages) {
  Assignment assignment;
  int begin = 0;
  for (const NamedStage& stage : stages) {
    const auto device =
        std::find_if(request.devices.begin(), request.devices.end(), [&](const Device& d) { return d.name == stage.device; });
    assignment.begins.push_back(begin);
    assignment.devices.push_back(static_cast<int>(device - request.devices.begin()));
    begin += static_cast<int>(stage.ops.size());
  }
  return assignment;
}

std::unique_ptr<Reordered> ReorderedAs(const Problem& problem, const std::vector<NamedStage>& stages) {
  const PlanRequest& request = problem.request();
  std::optional<std::vector<int>> order = OrderOfStages(request, stages);
  if (!order.has_value()) return nullptr;
  std::unique_ptr<Reordered> other = Along(problem, *std::move(order));
  if (other == nullptr) return nullptr;
  other->assignment = ContiguousAssignment(request, stages);
  return other;
}

std::optional<std::vector<int>> OrderOfStages(const PlanRequest& request, const std::vector<NamedStage>& stages) {
  const std::vector<int> own = OrderOps(request);
  if (IsOnlyOrder(request, own)) return std::nullopt;
  absl::flat_hash_map<absl::string_view, int> stage_of;
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const std::string& op : stages[s].ops) stage_of[op] = static_cast<int>(s);
  }
  std::vector<std::vector<int>> runs(stages.size());
  for (const int op : own) {
    const auto stage = stage_of.find(request.ops[op].name);
    if (stage == stage_of.end()) return std::nullopt;
    runs[stage->second].push_back(op);
  }
  std::vector<int> order;
  for (const std::vector<int>& run : runs) order.insert(order.end(), run.begin(), run.end());
  if (order == own || !IsTopological(request, order)) return std::nullopt;
  return order;
}

}  // namespace fusionllm::scheduler
