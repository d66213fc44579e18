#include "lib/scheduler/grid/annealing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lib/scheduler/grid/bottleneck_matching.h"

namespace fusionllm::scheduler::grid {
namespace {

// Temperatures as shares of the starting cost: swaps in a world-wide network change it by some per cent.
constexpr double kHottest = 0.02;
constexpr double kColdest = 1e-3;
// Only the worst stage counts in the objective. A little of every stage's own cost tells moves apart that leave the worst as it is.
constexpr double kSlope = 0.2;
// One move in so many reverses a run of stages, the others swap two devices.
constexpr int kReversalPeriod = 12;

class Annealer {
 public:
  Annealer(const GridProblem& problem, Grid rows)
      : problem_(problem), matching_(problem), rows_(std::move(rows)), stages_(problem.stages()) {
    for (int s = 0; s < stages_; ++s) stage_s_.push_back(StageSeconds(rows_[s]));
    for (int s = 1; s < stages_; ++s) boundary_s_.push_back(matching_.Solve(rows_[s - 1], rows_[s]));
    energy_ = Energy(stage_s_, boundary_s_);
  }

  Grid Run(int64_t evaluations, Draws& draws) {
    Grid best = rows_;
    double best_total = Total();
    const double hottest = kHottest * energy_;
    const double cooling = std::log(kColdest / kHottest);
    for (int64_t i = 0; i < evaluations && stages_ > 1; ++i) {
      const double temperature = hottest * std::exp(cooling * static_cast<double>(i) / static_cast<double>(evaluations));
      // Drawn before the move, so that a move is known to be too dear as soon as its first part is.
      const double limit = energy_ - temperature * std::log(1 - draws.Uniform());
      const bool moved = draws.Below(kReversalPeriod) == 0 ? Reverse(draws, limit) : Swap(draws, limit);
      if (moved && Total() < best_total - 1e-12) {
        best_total = Total();
        best = rows_;
      }
    }
    return best;
  }

 private:
  double StageSeconds(const std::vector<int>& row) const {
    double worst = 0;
    for (const int device : row) {
      double sum = 0;
      for (const int peer : row) sum += problem_.peer_s(device, peer);  // 0 for itself
      worst = std::max(worst, sum);
    }
    return worst;
  }

  static double Energy(const std::vector<double>& stages, const std::vector<double>& boundaries) {
    double energy = *std::max_element(stages.begin(), stages.end()) + std::accumulate(boundaries.begin(), boundaries.end(), 0.0);
    return energy + kSlope / static_cast<double>(stages.size()) * std::accumulate(stages.begin(), stages.end(), 0.0);
  }
  double Total() const {
    return *std::max_element(stage_s_.begin(), stage_s_.end()) + std::accumulate(boundary_s_.begin(), boundary_s_.end(), 0.0);
  }

  bool Swap(Draws& draws, double limit) {
    const int r = draws.Below(stages_);
    const int s = (r + 1 + draws.Below(stages_ - 1)) % stages_;
    int& a = rows_[r][draws.Below(problem_.pipelines())];
    int& b = rows_[s][draws.Below(problem_.pipelines())];
    std::swap(a, b);
    new_stage_s_ = stage_s_;
    new_boundary_s_ = boundary_s_;
    new_stage_s_[r] = StageSeconds(rows_[r]);
    new_stage_s_[s] = StageSeconds(rows_[s]);
    // The boundaries that change: at their least, nothing.
    const int touched[] = {r - 1, r, s - 1, s};
    for (const int boundary : touched) {
      if (boundary >= 0 && boundary < stages_ - 1) new_boundary_s_[boundary] = 0;
    }
    double energy = Energy(new_stage_s_, new_boundary_s_);
    for (const int boundary : touched) {
      if (energy > limit) break;
      if (boundary < 0 || boundary >= stages_ - 1 || new_boundary_s_[boundary] > 0) continue;
      new_boundary_s_[boundary] = matching_.Solve(rows_[boundary], rows_[boundary + 1], limit - energy);
      energy += new_boundary_s_[boundary];
    }
    if (energy > limit) {
      std::swap(a, b);
      return false;
    }
    Accept(energy);
    return true;
  }

  bool Reverse(Draws& draws, double limit) {
    int first = draws.Below(stages_), last = draws.Below(stages_);
    if (first > last) std::swap(first, last);
    if (first == last) return false;
    const auto reverse = [&] { std::reverse(rows_.begin() + first, rows_.begin() + last + 1); };
    reverse();
    new_stage_s_ = stage_s_;
    new_boundary_s_ = boundary_s_;
    std::reverse(new_stage_s_.begin() + first, new_stage_s_.begin() + last + 1);
    std::reverse(new_boundary_s_.begin() + first, new_boundary_s_.begin() + last);
    if (first > 0) new_boundary_s_[first - 1] = matching_.Solve(rows_[first - 1], rows_[first]);
    if (last < stages_ - 1) new_boundary_s_[last] = matching_.Solve(rows_[last], rows_[last + 1]);
    const double energy = Energy(new_stage_s_, new_boundary_s_);
    if (energy > limit) {
      reverse();
      return false;
    }
    Accept(energy);
    return true;
  }

  void Accept(double energy) {
    std::swap(stage_s_, new_stage_s_);
    std::swap(boundary_s_, new_boundary_s_);
    energy_ = energy;
  }

  const GridProblem& problem_;
  BottleneckMatching matching_;
  Grid rows_;
  const int stages_;
  std::vector<double> stage_s_, boundary_s_;
  std::vector<double> new_stage_s_, new_boundary_s_;
  double energy_ = 0;
};

}  // namespace

Grid Anneal(const GridProblem& problem, const Grid& start, int64_t evaluations, Draws& draws) {
  return Realise(problem, Annealer(problem, start).Run(evaluations, draws));
}

}  // namespace fusionllm::scheduler::grid
