// OP-Fence (arXiv 2410.12707 names it; the steps are ours): communities of devices by bandwidth -> orders that cross slow links seldom ->
// cuts by dynamic programming over compute, cut bytes and memory -> local search over order, cuts and subset, scored by the simulator ->
// the cuts once more over all order ideals, where the graph has others than the prefixes of one order. Devices that would slow the job get
// no stage.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"
#include "lib/base/philox.h"
#include "lib/scheduler/bounds.h"
#include "lib/scheduler/branch_and_bound.h"
#include "lib/scheduler/chain_search.h"
#include "lib/scheduler/communities.h"
#include "lib/scheduler/device_choice.h"
#include "lib/scheduler/greedy_packing.h"
#include "lib/scheduler/local_search.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/reorder.h"
#include "lib/scheduler/simulator_annealing.h"
#include "lib/scheduler/stage_annealing.h"

namespace fusionllm::scheduler {
namespace {

constexpr size_t kMaxOrders = 64;
constexpr size_t kFillFrom = 11;   // devices: fills seed the search
constexpr size_t kSeeds = 16;      // plans of a fill that the simulator looks at
constexpr size_t kRecut = 3;       // of them that are cut afresh
constexpr size_t kOnesTried = 16;  // devices tried alone where no other plan was found
// Steps of a fill that are charged as one simulation. With thousands of devices simulations are long and few: there fills must do more.
constexpr int64_t kFillStepsPerSimulation = 50;
constexpr int64_t kManyDevices = 1'000;
constexpr size_t kAllAtWorkBelow = 11;  // devices: plans in which everybody has a stage are tried besides
constexpr double kWorthKeeping = 2;     // of the best: what may be climbed from
constexpr size_t kResults = 12;         // of one dynamic program that the simulator looks at
constexpr size_t kClimbs = 4;
constexpr size_t kMaxExhaustiveDevices = 12;  // devices: above, the tree of all plans is too large
constexpr int kMaxExhaustiveOps = 256;        // likewise
constexpr int kMaxRestarts = 64;
constexpr int64_t kWorkPerSimulation = 2'000;  // inner steps of the dynamic program that cost as much as one simulation
constexpr double kCloseEnough = 1e-6;
constexpr int64_t kAnnealsOfFew = 4;                // under the simulator, of few devices
constexpr int64_t kMaxAnnealingWork = 7'500;        // of its work: long ones get used to what the closed form does not see
constexpr int64_t kMaxWorkBeforeAnnealing = 5'000;  // of the budget, for fills, orders and cuts: they find what they find soon
constexpr int64_t kBudgetOfAChain = 7'000;
constexpr double kHottestOfAChain = 7e-4;  // of the cost: how much worse the simulator may find what a chain goes on from, at its start
constexpr size_t kStarts = 4;
constexpr double kShareOfChains = 0.35;  // of the phase; the rest is for the last ones, from the best
constexpr int64_t kLastChains = 2;
constexpr int64_t kAnnealingPerSimulation = 1'800;  // its work that takes as long as one simulation

// Fewer devices are searched as a whole; of more, too few orders could be tried.
bool MayAnneal(const Problem& problem) { return StageAnnealing::Suits(problem); }

// PlanRequest::search_budget has the rule: orders of some dozen devices are worth more search, and take less time than that of thousands.
int64_t BudgetOf(const Problem& problem) {
  const int64_t asked = problem.request().search_budget;
  return MayAnneal(problem) ? asked + std::max<int64_t>(0, asked - kQuickSearchBudget) * 9 / 2 : asked;
}

class OpFenceSearch {
 public:
  OpFenceSearch(const Problem& problem, Evaluator& evaluator)
      : problem_(problem),
        evaluator_(evaluator),
        fill_(problem),
        budget_(BudgetOf(problem)),
        bound_s_(LowerBoundSeconds(problem)),
        local_search_(
            problem, evaluator, [this]() -> ChainSearch& { return Chain(); }, [this] { return Done(); }) {}

  std::variant<Assignment, PlanError> Run(bool* proven) {
    limit_ = MayAnneal(problem_) ? std::min(budget_ / 4, kMaxWorkBeforeAnnealing) : budget_ / 2;
    if (problem_.usable().size() >= kFillFrom) ConsiderFills();
    if (problem_.usable().size() <= kMaxSearchedDevices) {
      for (const std::vector<int>& order : CandidateOrders(problem_, kMaxOrders)) ConsiderCuts(order);
    } else if (pool_.empty()) {
      for (const std::vector<int>& window : DeviceWindows(problem_)) ConsiderCuts(window);
    } else {
      // Who serves in the best plans so far, with the others of their sites.
      const size_t seeds = std::min(kClimbs, pool_.size());
      std::vector<std::vector<int>> orders;
      for (size_t i = 0; i < seeds; ++i) orders.push_back(WithNeighbours(problem_, pool_[i].assignment.devices));
      for (const std::vector<int>& order : orders) ConsiderCuts(order);
    }
    ConsiderSitesAlone();
    if (pool_.empty()) {
      *proven = Complete();
      if (pool_.empty()) return ExplainInfeasible(problem_, evaluator_);
      return pool_[0].assignment;
    }
    SortPool();
    if (Few()) AnnealFew();
    limit_ = budget_ * 3 / 4;
    if (MayAnneal(problem_)) {
      Anneal();
      pool_ = Diverse(kClimbs);
    } else {
      pool_ = Diverse(kClimbs);
      for (size_t i = 0; i < pool_.size() && !Done(); ++i) local_search_.HillClimb(pool_[i], effort_);
      SortPool();
      Restart();
    }
    Finish();
    *proven = Complete();
    return pool_[0].assignment;
  }

 private:
  static int GridFor(const Problem& problem) {
    const double devices = static_cast<double>(std::min(problem.usable().size(), kMaxSearchedDevices));
    const int stages = std::min<int>(problem.max_stages(), kMaxSearchedDevices);
    return std::max<int>(std::clamp(static_cast<int>(900 / devices), 48, 160), 2 * stages);
  }

  ChainSearch& Chain() {
    if (!chain_) chain_.emplace(problem_, GridFor(problem_));
    return *chain_;
  }

  int64_t FillSteps() const {
    const auto devices = static_cast<int64_t>(problem_.usable().size());
    return kFillStepsPerSimulation * std::max<int64_t>(1, devices / kManyDevices);
  }

  // In simulations. The first half of the budget goes to fills, orders, cuts and, of few devices, anneals, the next quarter to climbs;
  // where MayAnneal(), a quarter at most goes to fills, orders and cuts, and all up to three quarters to anneals.
  int64_t Spent() const {
    return evaluator_.work() + (chain_ ? chain_->work() : 0) / kWorkPerSimulation + fill_.work() / FillSteps() +
           (annealing_ ? annealing_->work() / kAnnealingPerSimulation : 0);
  }
  bool Done() const {
    return Spent() >= limit_ || problem_.Stopped() || (!pool_.empty() && pool_[0].evaluation.cost_s() <= bound_s_ * (1 + kCloseEnough));
  }

  void ConsiderFills() {
    const int64_t share = problem_.usable().size() > kMaxSearchedDevices ? limit_ * 3 / 4 : limit_ / 2;
    std::vector<EstimatedPlan> plans = fill_.Plans(kSeeds, share * FillSteps());
    const size_t seeds = plans.size();
    for (size_t i = 0; i < std::min(kRecut, seeds); ++i) {
      if (Spent() > limit_) break;
      if (const auto recut = fill_.Recut(plans[i].assignment.devices)) Consider(recut->assignment);
    }
    for (const EstimatedPlan& plan : plans) {
      if (problem_.Stopped() || (!pool_.empty() && Spent() > limit_)) break;
      Consider(plan.assignment);
    }
    if (pool_.empty()) ConsiderOneStage();
    SortPool();
  }

  bool Few() const { return problem_.usable().size() <= kMaxExhaustiveDevices; }

  // Where a chain of anneals ends is luck to a percent: some from plans with different numbers of stages, by different draws, as the budget
  // allows, and then two from the best so far.
  void Anneal() {
    if (!annealing_) annealing_.emplace(problem_, problem_.usable());
    const int64_t begin = Spent(), all = limit_ - begin, chains = budget_ / kBudgetOfAChain;
    const std::vector<Candidate> starts = Diverse(kStarts);
    for (int64_t chain = 0; chain < chains; ++chain) {
      limit_ = begin + static_cast<int64_t>(kShareOfChains * static_cast<double>(all)) * (chain + 1) / chains;
      AnnealFrom(starts[static_cast<size_t>(chain) % starts.size()], static_cast<uint64_t>(chain));
    }
    for (int64_t last = 0; last < kLastChains; ++last) {
      const int64_t from = Spent();
      limit_ = from + (begin + all - from) / (kLastChains - last);
      AnnealFrom(pool_[0], static_cast<uint64_t>(chains + last));
    }
  }

  // Annealing whose moves are short anneals under closed forms, by turns, and whose judge is the simulator.
  void AnnealFrom(Candidate current, uint64_t chain) {
    grid::Rng rng(problem_.request().seed + chain);
    const int64_t begin = Spent(), all = limit_ - begin;
    const int64_t part = std::max<int64_t>(1, all / static_cast<int64_t>(std::size(StageAnnealing::kUsualShares)));
    const int64_t work = std::min(part * kAnnealingPerSimulation, kMaxAnnealingWork);
    Candidate best = current;
    for (size_t i = 0; !Done(); ++i) {
      const double left = static_cast<double>(limit_ - Spent()) / static_cast<double>(all);
      const double worse = -kHottestOfAChain * left * std::log(1 - rng.Uniform());
      const double cutoff_s = current.evaluation.cost_s() * (1 + worse);
      const double share = StageAnnealing::kUsualShares[i % std::size(StageAnnealing::kUsualShares)];
      const Assignment found = annealing_->Run(current.assignment, share, work, rng);
      if (found == current.assignment) continue;
      const Evaluation evaluation = evaluator_.Evaluate(found, effort_, cutoff_s);
      if (!evaluation.feasible() || evaluation.cost_s() > cutoff_s) continue;
      current = {found, evaluation};
      if (!Better(evaluation, found.devices.size(), best.evaluation, best.assignment.devices.size())) continue;
      best = current;
      pool_.push_back(best);
    }
    SortPool();
  }

  // Several times from the best plan so far; what is left of the phase in equal parts.
  void AnnealFew() {
    SimulatorAnnealing annealing(problem_, evaluator_);
    grid::Rng rng(problem_.request().seed);
    const Candidate start = pool_[0];
    for (int64_t run = 0; run < kAnnealsOfFew && !Done(); ++run) {
      const int64_t part = std::max<int64_t>(1, (limit_ - Spent()) / (kAnnealsOfFew - run));
      pool_.push_back(annealing.Run(start, effort_, part, rng));
    }
    SortPool();
  }

  void ConsiderCuts(const std::vector<int>& order) {
    if (order.size() > kMaxSearchedDevices || problem_.Stopped() || (!pool_.empty() && Spent() > limit_)) return;
    const bool may_skip = order.size() > static_cast<size_t>(problem_.min_stages());
    for (const ChainSearch::Result& result : Chain().Partition(order, may_skip, kResults)) Consider(result.assignment);
    // The closed form undervalues stages that only the schedule can use well: let the simulator see everybody at work, too.
    if (may_skip && order.size() < kAllAtWorkBelow && problem_.AllowsStages(order.size())) {
      for (const ChainSearch::Result& result : Chain().Partition(order, false, kResults)) Consider(result.assignment);
    }
  }

  // On the device that is fastest alone: what no link can forbid.
  void ConsiderOneStage() {
    if (!problem_.AllowsStages(1)) return;
    std::vector<int> devices = problem_.usable();
    const size_t count = std::min(kOnesTried, devices.size());
    const auto seconds = [&](int d) {
      return problem_.ForwardSeconds(0, problem_.positions(), d) + problem_.BackwardSeconds(0, problem_.positions(), d);
    };
    std::partial_sort(devices.begin(), devices.begin() + count, devices.end(),
                      [&](int a, int b) { return std::pair(seconds(a), a) < std::pair(seconds(b), b); });
    for (size_t i = 0; i < count && pool_.empty(); ++i) Consider({.begins = {0}, .devices = {devices[i]}});
  }

  // What stays inside a site sends nothing to others. With codecs that make a slow link cheap by the closed form, no cut of an order over
  // all sites may leave the others out. Whatever was spent before: a few sites are soon looked at.
  void ConsiderSitesAlone() {
    constexpr size_t kMaxSites = 16;
    std::map<absl::string_view, std::vector<int>> sites;
    for (int device : problem_.usable()) {
      std::vector<int>& devices = sites[problem_.request().devices[device].site];
      if (devices.size() < kMaxSearchedDevices) devices.push_back(device);
    }
    const bool must = pool_.empty() && problem_.request().max_egress_bytes.has_value();
    if (sites.size() < 2 || (sites.size() > kMaxSites && !must)) return;
    const int64_t limit = std::exchange(limit_, std::numeric_limits<int64_t>::max());
    for (const auto& [site, devices] : sites) {
      if (devices.size() >= static_cast<size_t>(problem_.min_stages())) ConsiderCuts(devices);
    }
    limit_ = limit;
  }

  void Consider(const Assignment& assignment) {
    const bool known = std::any_of(pool_.begin(), pool_.end(), [&](const Candidate& c) { return c.assignment == assignment; });
    if (known) return;
    Candidate candidate{assignment, evaluator_.Evaluate(assignment, effort_, kWorthKeeping * BestCost())};
    if (candidate.evaluation.feasible() && candidate.evaluation.cost_s() <= kWorthKeeping * BestCost())
      pool_.push_back(std::move(candidate));
  }

  double BestCost() const {
    double best_s = std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : pool_) best_s = std::min(best_s, candidate.evaluation.cost_s());
    return best_s;
  }

  void SortPool() {
    std::stable_sort(pool_.begin(), pool_.end(), [](const Candidate& a, const Candidate& b) {
      return Better(a.evaluation, a.assignment.devices.size(), b.evaluation, b.assignment.devices.size());
    });
  }

  // The best of each number of stages: a step that adds a stage and one that shifts its cuts may only pay together.
  std::vector<Candidate> Diverse(size_t most) const {
    std::vector<Candidate> kept;
    for (const Candidate& candidate : pool_) {
      const auto as_many = [&](const Candidate& other) { return other.assignment.devices.size() == candidate.assignment.devices.size(); };
      if (kept.size() < most && std::none_of(kept.begin(), kept.end(), as_many)) kept.push_back(candidate);
    }
    return kept;
  }

  // Out of the valley: by turns the best with some devices swapped, and a random choice of devices, cut afresh.
  void Restart() {
    const base::CounterRng random(problem_.request().seed, "op-fence");
    const std::vector<int> usable = DeviceChoice(problem_, pool_[0].assignment.devices);
    const bool too_few = usable.size() < std::max<size_t>(3, problem_.min_stages());
    if (too_few || usable.size() > kMaxSearchedDevices) return;
    const auto below = [&](size_t bound) { return static_cast<size_t>(random.Below(draw_++, bound)); };
    for (int restart = 0; restart < kMaxRestarts && !Done(); ++restart) {
      const bool kick = restart % 2 == 0;
      std::vector<int> order = kick ? pool_[0].assignment.devices : std::vector<int>{};
      for (int device : usable) {
        if (std::find(order.begin(), order.end(), device) == order.end()) order.insert(order.begin() + below(order.size() + 1), device);
      }
      for (int i = 0; kick && i < 2; ++i) {
        const size_t a = below(order.size()), b = below(order.size());
        std::swap(order[a], order[b]);
      }
      const size_t least = problem_.min_stages(), most = std::min<size_t>(problem_.max_stages(), order.size());
      if (!kick) order.resize(least + below(most - least + 1));
      const bool may_skip = kick && usable.size() > static_cast<size_t>(problem_.min_stages());
      if (kick && !may_skip) order.resize(most);
      for (const ChainSearch::Result& result : Chain().Partition(order, may_skip, 1)) {
        Candidate candidate{result.assignment, evaluator_.Evaluate(result.assignment, effort_)};
        if (!candidate.evaluation.feasible()) continue;
        local_search_.HillClimb(candidate, effort_);
        pool_.push_back(std::move(candidate));
      }
      SortPool();
    }
  }

  // The quick evaluation fixes the depth of the pipeline by a formula; the last word has the search over depths, which on tight memory
  // may rank candidates otherwise.
  void Finish() {
    effort_ = Effort::kFull;
    limit_ = budget_;
    if (pool_.size() > 2 * kClimbs) pool_.resize(2 * kClimbs);
    // The best in any case; where simulations are long there may be no budget for the others.
    size_t judged = 0;
    while (judged < pool_.size() && (judged == 0 || Spent() < limit_)) {
      pool_[judged].evaluation = evaluator_.Evaluate(pool_[judged].assignment, effort_);
      ++judged;
    }
    pool_.resize(judged);
    SortPool();
    for (size_t i = 0; i < pool_.size() && i < kClimbs && !Done(); ++i) local_search_.HillClimb(pool_[i], effort_);
    SortPool();
  }

  // What is left when not everything could be ruled out.
  void LookElsewhere() {
    if (pool_.empty()) return;
    const int64_t part = budget_ / 4;
    limit_ = Spent() + 2 * part;
    AnnealFew();
    limit_ = Spent() + part;
    for (size_t i = 0; i < std::min(kClimbs, pool_.size()) && !Done(); ++i) local_search_.HillClimb(pool_[i], effort_);
    SortPool();
    limit_ = Spent() + part;
    Restart();
  }

  // Few devices leave few enough plans to rule out all that cannot be better, the much better ones first; true when that was done. Takes
  // about as long again as what was before.
  bool Complete() {
    if (problem_.usable().size() > kMaxExhaustiveDevices || problem_.positions() > kMaxExhaustiveOps) return false;
    BranchAndBound search(problem_, evaluator_, pool_.empty() ? Assignment{} : pool_[0].assignment);
    for (const double slack : {0.1, 0.03, 0.01, 0.003, 0.0}) {
      if (search.best().devices.empty() && slack > 0) continue;  // nothing to be better than
      const bool found_all = search.Run(slack, budget_);
      if (!search.best().devices.empty()) {
        pool_.assign(1, {search.best(), search.evaluation()});
        limit_ = Spent() + budget_ / 10;
        if (slack > 0) local_search_.HillClimb(pool_[0], effort_);
        search.Consider(pool_[0].assignment);
      }
      if (found_all) continue;
      LookElsewhere();
      return false;
    }
    return true;
  }

  const Problem& problem_;
  Evaluator& evaluator_;
  GreedyPacking fill_;
  std::optional<ChainSearch> chain_;  // made when first asked: its tables take time
  std::optional<StageAnnealing> annealing_;
  const int64_t budget_;
  const double bound_s_;
  LocalSearch local_search_;
  Effort effort_ = Effort::kQuick;
  int64_t limit_ = 0;
  uint64_t draw_ = 0;  // of Restart
  std::vector<Candidate> pool_;
};

class OpFence final : public Planner {
 public:
  absl::string_view name() const override { return "op-fence"; }

 protected:
  std::variant<Assignment, PlanError> Search(const Problem& problem, Evaluator& evaluator, bool* proven) const override {
    return OpFenceSearch(problem, evaluator).Run(proven);
  }
  std::unique_ptr<Reordered> Reorder(const Problem& problem, Evaluator& evaluator, const Assignment& found) const override {
    return BetterOrder(problem, evaluator, found);
  }
};

}  // namespace

std::unique_ptr<Planner> MakeOpFence() { return std::make_unique<OpFence>(); }

}  // namespace fusionllm::scheduler
