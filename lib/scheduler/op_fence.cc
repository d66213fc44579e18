// OP-Fence (arXiv 2410.12707 names it; the steps are ours): communities of devices by bandwidth -> orders that cross slow links seldom ->
// cuts by dynamic programming over compute, cut bytes and memory -> local search over order, cuts and subset, scored by the simulator.
// Devices that would slow the job get no stage.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "absl/strings/string_view.h"
#include "lib/base/philox.h"
#include "lib/scheduler/bounds.h"
#include "lib/scheduler/branch_and_bound.h"
#include "lib/scheduler/capped_fill.h"
#include "lib/scheduler/chain_search.h"
#include "lib/scheduler/communities.h"
#include "lib/scheduler/neighbour_orders.h"
#include "lib/scheduler/simulator_annealing.h"
#include "lib/scheduler/stage_annealing.h"
#include "lib/scheduler/strategy.h"

namespace fusionllm::scheduler {
namespace {

constexpr size_t kMaxOrders = 64;
constexpr size_t kMaxSkippingDevices = 64;  // beyond, those that a fill has chosen are searched: the program is quadratic in them
constexpr size_t kFillFrom = 11;            // devices: fills seed the search
constexpr size_t kSeeds = 16;               // plans of a fill that the simulator looks at
constexpr size_t kRecut = 3;                // of them that are cut afresh
constexpr size_t kOnesTried = 16;           // devices tried alone where no other plan was found
// Steps of a fill that are charged as one simulation. With thousands of devices simulations are long and few: there fills must do more.
constexpr int64_t kFillStepsPerSimulation = 50;
constexpr int64_t kManyDevices = 1'000;
constexpr size_t kRebalanceBelow = 24;  // devices: re-cut after each change of the order
constexpr size_t kSettleBelow = 10;     // devices: and let the cuts settle before judging
constexpr double kNear = 1.25;          // of the best step time: what is worth settling
constexpr double kWorthKeeping = 2;     // of the best: what may be climbed from
constexpr int kSplits = 12;             // positions tried in a stage for a new device
constexpr size_t kResults = 12;         // of one dynamic program that the simulator looks at
constexpr size_t kClimbs = 4;
constexpr size_t kMostComplete = 12;   // devices: above, the tree of all plans is too large
constexpr int kMostCompleteOps = 256;  // likewise
constexpr int kMaxRestarts = 64;
constexpr int64_t kWorkPerSimulation = 2'000;  // inner steps of the dynamic program that cost as much as one simulation
constexpr double kCloseEnough = 1e-6;
// Closed forms that are annealed under: see StageAnnealing.
constexpr double kShares[] = {0.1, 0.25, 0.4, 0.7};
constexpr int64_t kAnnealsOfFew = 4;                // under the simulator, of few devices
constexpr int64_t kMostOfAnAnneal = 100;            // of the budget: long ones get used to what the closed form does not see
constexpr int64_t kAnnealingPerSimulation = 2'500;  // its work that takes as long as one simulation

struct Candidate {
  Assignment assignment;
  Evaluation evaluation;
};

class OpFenceSearch {
 public:
  OpFenceSearch(const Problem& problem, Evaluator& evaluator)
      : problem_(problem), evaluator_(evaluator), fill_(problem), bound_s_(LowerBoundSeconds(problem)) {}

  std::variant<Assignment, Refusal> Run(bool* proven) {
    limit_ = problem_.request().search_budget / (MayAnneal() ? 4 : 2);
    if (problem_.usable().size() >= kFillFrom) ConsiderFills();
    if (problem_.usable().size() <= kMaxSkippingDevices) {
      for (const std::vector<int>& order : CandidateOrders(problem_, kMaxOrders)) ConsiderCuts(order);
    } else if (pool_.empty()) {
      for (const std::vector<int>& window : Windows()) ConsiderCuts(window);
    } else {
      // Who serves in the best plans so far, with the others of their sites.
      const size_t seeds = std::min(kClimbs, pool_.size());
      std::vector<std::vector<int>> orders;
      for (size_t i = 0; i < seeds; ++i) orders.push_back(WithNeighbours(pool_[i].assignment.devices));
      for (const std::vector<int>& order : orders) ConsiderCuts(order);
    }
    if (pool_.empty() && problem_.request().max_egress_bytes.has_value()) ConsiderSitesAlone();
    if (pool_.empty()) {
      *proven = Complete();
      if (pool_.empty()) return ExplainInfeasible(problem_, evaluator_);
      return pool_[0].assignment;
    }
    SortPool();
    if (Few()) AnnealFew();
    limit_ = problem_.request().search_budget * 3 / 4;
    if (MayAnneal()) Anneal();
    KeepDiverse();
    for (size_t i = 0; i < pool_.size() && !Done(); ++i) Climb(pool_[i]);
    SortPool();
    Restart();
    Finish();
    *proven = Complete();
    return pool_[0].assignment;
  }

 private:
  static int GridFor(const Problem& problem) {
    const double devices = static_cast<double>(std::min(problem.usable().size(), kMaxSkippingDevices));
    const int stages = std::min<int>(problem.max_stages(), kMaxSkippingDevices);
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

  // What is left of the budget for this phase: the first half goes to orders, cuts and, of few devices, anneals, the next quarter to
  // climbs.
  int64_t Spent() const {
    return evaluator_.work() + (chain_ ? chain_->work() : 0) / kWorkPerSimulation + fill_.work() / FillSteps() +
           (annealing_ ? annealing_->work() / kAnnealingPerSimulation : 0);
  }
  bool Done() const {
    return Spent() >= limit_ || problem_.Stopped() || (!pool_.empty() && pool_[0].evaluation.cost_s() <= bound_s_ * (1 + kCloseEnough));
  }

  void ConsiderFills() {
    const int64_t share = problem_.usable().size() > kMaxSkippingDevices ? limit_ * 3 / 4 : limit_ / 2;
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

  bool Few() const { return problem_.usable().size() <= kMostComplete; }

  // Fewer are searched as a whole; of more, too few could be tried.
  bool MayAnneal() const {
    const size_t devices = problem_.usable().size();
    return devices > kMostComplete && devices <= kMaxSkippingDevices;
  }

  // From the best plan so far, under closed forms from the most to the least hopeful.
  void Anneal() {
    if (!annealing_) annealing_.emplace(problem_, problem_.usable());
    grid::Draws draws(problem_.request().seed);
    const int64_t budget = std::clamp<int64_t>((limit_ - Spent()) / static_cast<int64_t>(std::size(kShares)), 1, kMostOfAnAnneal);
    for (size_t i = 0; !Done(); ++i) {
      const double share = kShares[i % std::size(kShares)];
      Consider(annealing_->Run(pool_[0].assignment, share, budget * kAnnealingPerSimulation, draws));
      SortPool();
    }
  }

  // Several times from the best plan so far; what is left of the phase in equal parts.
  void AnnealFew() {
    SimulatorAnnealing annealing(problem_, evaluator_);
    grid::Draws draws(problem_.request().seed);
    const SimulatorAnnealing::Result start{pool_[0].assignment, pool_[0].evaluation};
    for (int64_t run = 0; run < kAnnealsOfFew && !Done(); ++run) {
      const int64_t part = std::max<int64_t>(1, (limit_ - Spent()) / (kAnnealsOfFew - run));
      const SimulatorAnnealing::Result found = annealing.Run(start, effort_, part, draws);
      pool_.push_back({found.assignment, found.evaluation});
    }
    SortPool();
  }

  void ConsiderCuts(const std::vector<int>& order) {
    if (order.size() > kMaxSkippingDevices || problem_.Stopped() || (!pool_.empty() && Spent() > limit_)) return;
    const bool may_skip = order.size() > static_cast<size_t>(problem_.min_stages());
    for (const ChainSearch::Result& result : Chain().Partition(order, may_skip, kResults)) Consider(result.assignment);
    // The closed form undervalues stages that only the schedule can use well: let the simulator see everybody at work, too.
    if (may_skip && order.size() <= kSettleBelow && MayHave(order.size())) {
      for (const ChainSearch::Result& result : Chain().Partition(order, false, kResults)) Consider(result.assignment);
    }
  }

  // Of the declared order, by halves of their width.
  std::vector<std::vector<int>> Windows() const {
    const std::vector<int>& usable = problem_.usable();
    std::vector<std::vector<int>> windows;
    for (size_t begin = 0; begin + kMaxSkippingDevices <= usable.size(); begin += kMaxSkippingDevices / 2)
      windows.emplace_back(usable.begin() + begin, usable.begin() + begin + kMaxSkippingDevices);
    return windows;
  }

  // On the device that is fastest alone: what no link can forbid.
  void ConsiderOneStage() {
    if (!MayHave(1)) return;
    std::vector<int> devices = problem_.usable();
    const size_t count = std::min(kOnesTried, devices.size());
    const auto seconds = [&](int d) {
      return problem_.ForwardSeconds(0, problem_.positions(), d) + problem_.BackwardSeconds(0, problem_.positions(), d);
    };
    std::partial_sort(devices.begin(), devices.begin() + count, devices.end(),
                      [&](int a, int b) { return std::pair(seconds(a), a) < std::pair(seconds(b), b); });
    for (size_t i = 0; i < count && pool_.empty(); ++i) Consider({.begins = {0}, .devices = {devices[i]}});
  }

  // Whom a change of these devices may bring in, themselves included: everybody, or as many near them as a search can go through.
  std::vector<int> Choice(const std::vector<int>& devices) const {
    if (problem_.usable().size() <= kMaxSkippingDevices) return problem_.usable();
    std::vector<int> choice = WithNeighbours(devices);
    std::sort(choice.begin(), choice.end());
    return choice;
  }

  // What stays inside a site sends nothing to others.
  void ConsiderSitesAlone() {
    std::map<absl::string_view, std::vector<int>> sites;
    for (int device : problem_.usable()) {
      std::vector<int>& devices = sites[problem_.request().devices[device].site];
      if (devices.size() < kMaxSkippingDevices) devices.push_back(device);
    }
    for (const auto& [site, devices] : sites) {
      if (devices.size() >= static_cast<size_t>(problem_.min_stages())) ConsiderCuts(devices);
    }
  }

  // The devices in their order, each kind followed by as many more of it as make the list a long one.
  std::vector<int> WithNeighbours(const std::vector<int>& devices) const {
    if (devices.size() >= kMaxSkippingDevices) return devices;
    const DirectedLinks& links = problem_.links();
    std::vector<char> listed(problem_.request().devices.size(), 0);
    for (int device : devices) listed[device] = 1;
    std::vector<char> usable(listed.size(), 0);
    for (int device : problem_.usable()) usable[device] = 1;
    size_t room = kMaxSkippingDevices - devices.size();
    const size_t for_each_kind = 1 + room / devices.size();
    std::vector<int> order;
    for (size_t s = 0; s < devices.size(); ++s) {
      order.push_back(devices[s]);
      const int kind = links.kind(devices[s]);
      if (s + 1 < devices.size() && links.kind(devices[s + 1]) == kind) continue;
      size_t more = for_each_kind;
      for (int device : links.members(kind)) {
        if (room == 0 || more == 0) break;
        if (listed[device] || !usable[device]) continue;
        listed[device] = 1;
        order.push_back(device);
        --room;
        --more;
      }
    }
    return order;
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

  // Climbs start from the best of each number of stages: a step that adds a stage and one that shifts its cuts may only pay together.
  void KeepDiverse() {
    std::vector<Candidate> kept;
    std::vector<size_t> counts;
    for (Candidate& candidate : pool_) {
      const size_t count = candidate.assignment.devices.size();
      if (kept.size() >= kClimbs) break;
      if (std::find(counts.begin(), counts.end(), count) != counts.end()) continue;
      counts.push_back(count);
      kept.push_back(std::move(candidate));
    }
    pool_ = std::move(kept);
  }

  bool TryImprove(Candidate& current, const Assignment& assignment) {
    const Evaluation evaluation = evaluator_.Evaluate(assignment, effort_, current.evaluation.cost_s());
    if (!Better(evaluation, assignment.devices.size(), current.evaluation, current.assignment.devices.size())) return false;
    current = {assignment, evaluation};
    return true;
  }

  // Moves single cuts, far and near, until none helps.
  bool ShiftCuts(Candidate& current) {
    bool improved = false;
    for (bool again = true; again && !Done();) {
      again = false;
      for (size_t s = 1; s < current.assignment.begins.size(); ++s) {
        for (int shift : {1, -1, 2, -2, 3, -3, 5, -5, 8, -8, 13, -13, 30, -30}) {
          Assignment moved = current.assignment;
          moved.begins[s] += shift;
          const int low = s == 1 ? problem_.first_cut() : moved.begins[s - 1] + 1;
          const int high = s + 1 < moved.begins.size() ? moved.begins[s + 1] - 1 : problem_.positions() - 1;
          if (moved.begins[s] < low || moved.begins[s] > high) continue;
          if (TryImprove(current, moved)) again = improved = true;
          if (Done()) return improved;
          // The cuts behind it along with it, as far as they have room.
          Assignment along = current.assignment;
          bool fits = true;
          for (size_t t = s; t < along.begins.size(); ++t) along.begins[t] += shift;
          for (size_t t = s; t < along.begins.size(); ++t) {
            const int least = t == 1 ? problem_.first_cut() : along.begins[t - 1] + 1;
            fits = fits && along.begins[t] >= least && along.begins[t] < problem_.positions();
          }
          if (fits && s + 1 < along.begins.size() && TryImprove(current, along)) again = improved = true;
        }
      }
    }
    return improved;
  }

  bool MayHave(size_t stages) const {
    return static_cast<int>(stages) >= problem_.min_stages() && static_cast<int>(stages) <= problem_.max_stages();
  }

  // A changed order is judged after its own cuts have settled, if it starts anywhere near.
  bool TrySettled(Candidate& current, const Assignment& assignment) {
    Candidate other{assignment, evaluator_.Evaluate(assignment, effort_, kNear * current.evaluation.cost_s())};
    if (!other.evaluation.feasible() || other.evaluation.cost_s() > kNear * current.evaluation.cost_s()) return false;
    if (assignment.devices.size() <= kSettleBelow) ShiftCuts(other);
    if (!Better(other.evaluation, other.assignment.devices.size(), current.evaluation, current.assignment.devices.size())) return false;
    current = std::move(other);
    return true;
  }

  bool ChangeDevices(Candidate& current) {
    const std::vector<int> from = current.assignment.devices;
    if (from.size() > kMaxSkippingDevices) return false;
    for (const std::vector<int>& devices : NeighbourOrders(from, Choice(from), MayHave(from.size() - 1), MayHave(from.size() + 1))) {
      if (Done()) return false;
      if (devices.size() <= kRebalanceBelow) {
        for (const ChainSearch::Result& result : Chain().Partition(devices, false, 4)) {
          if (TrySettled(current, result.assignment)) return true;
        }
      }
      if (devices.size() == from.size() && TryImprove(current, {current.assignment.begins, devices})) return true;
    }
    return SplitStage(current);
  }

  // Gives part of a stage to an unused device, before or after it.
  bool SplitStage(Candidate& current) {
    const Assignment from = current.assignment;
    if (!MayHave(from.devices.size() + 1)) return false;
    for (int device : Choice(from.devices)) {
      if (std::find(from.devices.begin(), from.devices.end(), device) != from.devices.end()) continue;
      for (size_t s = 0; s < from.devices.size(); ++s) {
        const int begin = s == 0 ? problem_.first_cut() : from.begins[s] + 1;
        const int end = s + 1 < from.begins.size() ? from.begins[s + 1] : problem_.positions();
        const int stride = 1 + (end - begin) / kSplits;
        for (int cut = begin; cut < end; cut += stride) {
          for (size_t side : {s, s + 1}) {
            if (Done()) return false;
            Assignment split = from;
            split.begins.insert(split.begins.begin() + s + 1, cut);
            split.devices.insert(split.devices.begin() + side, device);
            if (TryImprove(current, split)) return true;
          }
        }
      }
    }
    return false;
  }

  void Climb(Candidate& current) {
    // Of few devices one more is soon tried everywhere; other orders, each with its own cuts, may take all there is to spend.
    do {
      ShiftCuts(current);
    } while (!Done() && ((Few() && SplitStage(current)) || ChangeDevices(current)));
  }

  // Out of the valley: by turns the best with some devices swapped, and a random choice of devices, cut afresh.
  void Restart() {
    const base::CounterRng random(problem_.request().seed, "op-fence");
    const std::vector<int> usable = Choice(pool_[0].assignment.devices);
    const bool too_few = usable.size() < std::max<size_t>(3, problem_.min_stages());
    if (too_few || usable.size() > kMaxSkippingDevices) return;
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
        Climb(candidate);
        pool_.push_back(std::move(candidate));
      }
      SortPool();
    }
  }

  // The quick evaluation fixes the depth of the pipeline by a formula; the last word has the search over depths, which on tight memory
  // may rank candidates otherwise.
  void Finish() {
    effort_ = Effort::kFull;
    limit_ = problem_.request().search_budget;
    if (pool_.size() > 2 * kClimbs) pool_.resize(2 * kClimbs);
    // The best in any case; where simulations are long there may be no budget for the others.
    size_t judged = 0;
    while (judged < pool_.size() && (judged == 0 || Spent() < limit_)) {
      pool_[judged].evaluation = evaluator_.Evaluate(pool_[judged].assignment, effort_);
      ++judged;
    }
    pool_.resize(judged);
    SortPool();
    for (size_t i = 0; i < pool_.size() && i < kClimbs && !Done(); ++i) Climb(pool_[i]);
    SortPool();
  }

  // What is left when not everything could be ruled out.
  void LookElsewhere() {
    if (pool_.empty()) return;
    const int64_t part = problem_.request().search_budget / 4;
    limit_ = Spent() + 2 * part;
    AnnealFew();
    limit_ = Spent() + part;
    for (size_t i = 0; i < std::min(kClimbs, pool_.size()) && !Done(); ++i) Climb(pool_[i]);
    SortPool();
    limit_ = Spent() + part;
    Restart();
  }

  // Few devices leave few enough plans to rule out all that cannot be better, the much better ones first; true when that was done. Takes
  // about as long again as what was before.
  bool Complete() {
    if (problem_.usable().size() > kMostComplete || problem_.positions() > kMostCompleteOps) return false;
    BranchAndBound search(problem_, evaluator_, pool_.empty() ? Assignment{} : pool_[0].assignment);
    for (const double slack : {0.1, 0.03, 0.01, 0.003, 0.0}) {
      if (search.best().devices.empty() && slack > 0) continue;  // nothing to be better than
      const bool found_all = search.Run(slack, problem_.request().search_budget);
      if (!search.best().devices.empty()) {
        pool_.assign(1, {search.best(), search.evaluation()});
        limit_ = Spent() + problem_.request().search_budget / 10;
        if (slack > 0) Climb(pool_[0]);
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
  CappedFill fill_;
  std::optional<ChainSearch> chain_;  // made when first asked: its tables take time
  std::optional<StageAnnealing> annealing_;
  double bound_s_;
  Effort effort_ = Effort::kQuick;
  int64_t limit_ = 0;
  uint64_t draw_ = 0;  // of Restart
  std::vector<Candidate> pool_;
};

class OpFence final : public Strategy {
 public:
  absl::string_view name() const override { return "op-fence"; }

 protected:
  std::variant<Assignment, Refusal> Search(const Problem& problem, Evaluator& evaluator, bool* proven) const override {
    return OpFenceSearch(problem, evaluator).Run(proven);
  }
};

}  // namespace

std::unique_ptr<Strategy> MakeOpFence() { return std::make_unique<OpFence>(); }

}  // namespace fusionllm::scheduler
