// The baselines: one rule for the order of the executors, one for the cuts, whatever their speeds. Nothing is searched or weighed.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "lib/scheduler/grid/grid_cost.h"
#include "lib/scheduler/grid/rng.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/planner.h"

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

// The matrix of hops is dense.
constexpr size_t kMaxHops = 4096;

std::vector<int> Declared(const Problem& problem, int stages) { return {problem.usable().begin(), problem.usable().begin() + stages}; }

std::vector<int> Shuffled(const Problem& problem, int stages) {
  std::vector<int> devices = problem.usable();
  grid::Rng(problem.request().seed).Shuffle(devices);
  devices.resize(stages);
  return devices;
}

// What DT-FM (arXiv 2206.01288, section 3.3) does with one pipeline: the cheapest path through the devices, where a hop costs
// 2 (alpha + c_PP / beta) for the whole batch, both directions of a link counting with their mean. There are no replicas, so the cost of
// data parallelism is nought. The paper's devices and layers are all alike: neither speed nor memory counts, and cuts are equal.
std::vector<int> AlongTheCheapestPath(const Problem& problem, int stages) {
  double bytes = 0;  // that cross a cut, on average over the cuts there will be
  const std::vector<int> begins = CutByCount(problem, stages);
  for (size_t s = 1; s < begins.size(); ++s)
    bytes += static_cast<double>(problem.LossyBytesAt(begins[s]) + problem.LosslessBytesAt(begins[s]));
  bytes *= static_cast<double>(problem.request().micro_batches) / std::max<size_t>(begins.size() - 1, 1);
  const std::vector<int>& devices = problem.usable();
  const int n = static_cast<int>(devices.size());
  std::vector<double> hop_s(static_cast<size_t>(n) * n);
  for (int i = 0; i < n; ++i) {
    for (int j = i + 1; j < n; ++j) {
      const DirectedLink there = problem.link(devices[i], devices[j]), back = problem.link(devices[j], devices[i]);
      const double latency_s = (there.latency_s + back.latency_s) / 2, bytes_per_s = (there.bytes_per_s + back.bytes_per_s) / 2;
      // A pair without a link both ways is no hop; finite, so that paths that need one still compare.
      hop_s[i * n + j] = hop_s[j * n + i] = problem.Connected(devices[i], devices[j]) ? 2 * (latency_s + bytes / bytes_per_s) : 1e12;
    }
  }
  std::vector<int> order;
  for (const int node : grid::CheapestPath(hop_s, n).order) order.push_back(devices[node]);
  // A path may be walked from either end: from the one whose device was declared first.
  if (std::find(devices.begin(), devices.end(), order.back()) < std::find(devices.begin(), devices.end(), order.front())) {
    std::reverse(order.begin(), order.end());
  }
  order.resize(stages);
  return order;
}

class FixedRule final : public Planner {
 public:
  using Rule = std::vector<int> (*)(const Problem&, int stages);
  FixedRule(absl::string_view name, Rule order, Rule cut, size_t max_devices = std::numeric_limits<size_t>::max())
      : name_(name), order_(order), cut_(cut), max_devices_(max_devices) {}
  absl::string_view name() const override { return name_; }

 protected:
  std::variant<Assignment, PlanError> Search(const Problem& problem, Evaluator& evaluator, bool*) const override {
    if (problem.usable().size() > max_devices_) {
      return PlanError{
          plan_errors::kTooManyDevices,
          absl::StrFormat("the planner %s is for at most %d devices, there are %d", name_, max_devices_, problem.usable().size()),
          {}};
    }
    const int stages = problem.max_stages();
    const Assignment assignment{.begins = cut_(problem, stages), .devices = order_(problem, stages)};
    const Evaluation evaluation = evaluator.Evaluate(assignment, Effort::kFull);
    if (!evaluation.feasible()) return WithMemoryRemedy(PlanErrorFor(problem, assignment, evaluation));
    return assignment;
  }

 private:
  absl::string_view name_;
  Rule order_, cut_;
  size_t max_devices_;
};

}  // namespace

std::unique_ptr<Planner> MakeEqualOps() { return std::make_unique<FixedRule>("equal-ops", Declared, CutByCount); }
std::unique_ptr<Planner> MakeEqualCompute() { return std::make_unique<FixedRule>("equal-compute", Declared, CutByFlops); }
std::unique_ptr<Planner> MakeDtFm() { return std::make_unique<FixedRule>("dt-fm", AlongTheCheapestPath, CutByCount, kMaxHops); }
std::unique_ptr<Planner> MakeRandom() { return std::make_unique<FixedRule>("random", Shuffled, CutByCount); }

}  // namespace fusionllm::scheduler
