#include "lib/scheduler/grid/annealing.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
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
// Of so many moves one reverses a run of stages, and some swap pieces of two pipelines; the others swap two devices.
constexpr int kMoves = 18, kReversals = 1, kPieces = 5;
constexpr int kLongestPiece = 4;
// Boundaries that are remembered.
constexpr size_t kRemembered = size_t{1} << 16;

// Devices that no cost tells apart share a number; so stages that cost the same are known to.
std::vector<uint64_t> KindNumbers(const GridProblem& problem) {
  const int n = problem.devices();
  const auto same = [&](int a, int b) {
    for (int c = 0; c < n; ++c) {
      if (c == a || c == b) continue;
      if (problem.boundary_s(a, c) != problem.boundary_s(b, c) || problem.peer_s(a, c) != problem.peer_s(b, c)) return false;
    }
    return true;
  };
  Draws draws(1);
  std::vector<int> first;
  std::vector<uint64_t> number(n);
  for (int device = 0; device < n; ++device) {
    const auto kind = std::find_if(first.begin(), first.end(), [&](int other) { return same(device, other); });
    if (kind != first.end()) {
      number[device] = number[*kind];
    } else {
      first.push_back(device);
      number[device] = draws.Bits();
    }
  }
  return number;
}

class Annealer {
 public:
  Annealer(const GridProblem& problem, Grid rows)
      : problem_(problem),
        matching_(problem),
        kind_(KindNumbers(problem)),
        rows_(std::move(rows)),
        stages_(problem.stages()),
        remembered_(kRemembered) {
    for (const std::vector<int>& row : rows_) {
      stage_s_.push_back(StageSeconds(row));
      key_.push_back(std::accumulate(row.begin(), row.end(), uint64_t{0}, [&](uint64_t sum, int device) { return sum + kind_[device]; }));
    }
    for (int s = 1; s < stages_; ++s) boundary_s_.push_back(BoundarySeconds(s - 1, std::numeric_limits<double>::infinity()));
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
      const int kind = draws.Below(kMoves);
      const bool moved = kind < kReversals ? Reverse(draws, limit) : SwapPieces(draws, kind < kReversals + kPieces, limit);
      if (moved && Total() < best_total - 1e-12) {
        best_total = Total();
        best = rows_;
      }
    }
    return best;
  }

 private:
  struct Remembered {
    uint64_t keys = 0;
    double seconds = 0;
  };

  double StageSeconds(const std::vector<int>& row) const {
    double worst = 0;
    for (const int device : row) {
      double sum = 0;
      for (const int peer : row) sum += problem_.peer_s(device, peer);  // 0 for itself
      worst = std::max(worst, sum);
    }
    return worst;
  }

  // Between stages b and b + 1; some lower bound above the limit when it is above the limit.
  double BoundarySeconds(int b, double limit) {
    const uint64_t low = std::min(key_[b], key_[b + 1]), high = std::max(key_[b], key_[b + 1]);
    const uint64_t keys = low * 0x9E3779B97F4A7C15ULL ^ (high + (low >> 29));
    Remembered& known = remembered_[(keys >> 32) % kRemembered];
    if (known.keys == keys) return known.seconds;
    const double seconds = matching_.Solve(rows_[b], rows_[b + 1], limit);
    if (seconds <= limit) known = {keys, seconds};
    return seconds;
  }

  static double Energy(const std::vector<double>& stages, const std::vector<double>& boundaries) {
    double energy = *std::max_element(stages.begin(), stages.end()) + std::accumulate(boundaries.begin(), boundaries.end(), 0.0);
    return energy + kSlope / static_cast<double>(stages.size()) * std::accumulate(stages.begin(), stages.end(), 0.0);
  }
  double Total() const {
    return *std::max_element(stage_s_.begin(), stage_s_.end()) + std::accumulate(boundary_s_.begin(), boundary_s_.end(), 0.0);
  }

  int Nearest(int device, int row) const {
    int best = 0;
    for (int i = 1; i < problem_.pipelines(); ++i) {
      if (problem_.boundary_s(device, rows_[row][i]) < problem_.boundary_s(device, rows_[row][best])) best = i;
    }
    return best;
  }

  void Exchange(int row, int column, int other_row, int other_column) {
    int &a = rows_[row][column], &b = rows_[other_row][other_column];
    key_[row] += kind_[b] - kind_[a];
    key_[other_row] += kind_[a] - kind_[b];
    std::swap(a, b);
  }

  // Stages in a row often hold devices of the same places, which makes their boundaries cheap: to change one alone would cost two
  // boundaries. So a device goes along with those nearest to it in the following stages, or, with a piece of one stage, alone.
  bool SwapPieces(Draws& draws, bool longer, double limit) {
    const int longest = std::min(kLongestPiece, stages_ / 2);
    const int length = longer && longest > 1 ? 2 + draws.Below(longest - 1) : 1;
    const int r = draws.Below(stages_ - length + 1), s = draws.Below(stages_ - length + 1);
    if (std::abs(r - s) < length) return false;
    column_.clear();
    int a = draws.Below(problem_.pipelines()), b = draws.Below(problem_.pipelines());
    bool change = false;
    for (int i = 0; i < length; ++i) {
      if (i > 0) a = Nearest(rows_[r + i - 1][a], r + i), b = Nearest(rows_[s + i - 1][b], s + i);
      column_.emplace_back(a, b);
      change = change || kind_[rows_[r + i][a]] != kind_[rows_[s + i][b]];
    }
    if (!change) return false;
    const auto exchange = [&] {
      for (int i = 0; i < length; ++i) Exchange(r + i, column_[i].first, s + i, column_[i].second);
    };
    exchange();
    new_stage_s_ = stage_s_;
    new_boundary_s_ = boundary_s_;
    touched_.clear();
    for (const int first : {r, s}) {
      for (int row = first; row < first + length; ++row) new_stage_s_[row] = StageSeconds(rows_[row]);
      // The boundaries that change: at their least, nothing.
      for (int b = std::max(first - 1, 0); b < std::min(first + length, stages_ - 1); ++b) {
        if (new_boundary_s_[b] > 0) touched_.push_back(b);
        new_boundary_s_[b] = 0;
      }
    }
    double energy = Energy(new_stage_s_, new_boundary_s_);
    for (const int boundary : touched_) {
      if (energy > limit) break;
      new_boundary_s_[boundary] = BoundarySeconds(boundary, limit - energy);
      energy += new_boundary_s_[boundary];
    }
    if (energy > limit) {
      exchange();
      return false;
    }
    Accept(energy);
    return true;
  }

  bool Reverse(Draws& draws, double limit) {
    int first = draws.Below(stages_), last = draws.Below(stages_);
    if (first > last) std::swap(first, last);
    if (first == last) return false;
    const auto reverse = [&] {
      std::reverse(rows_.begin() + first, rows_.begin() + last + 1);
      std::reverse(key_.begin() + first, key_.begin() + last + 1);
    };
    reverse();
    new_stage_s_ = stage_s_;
    new_boundary_s_ = boundary_s_;
    std::reverse(new_stage_s_.begin() + first, new_stage_s_.begin() + last + 1);
    std::reverse(new_boundary_s_.begin() + first, new_boundary_s_.begin() + last);
    constexpr double kNoLimit = std::numeric_limits<double>::infinity();
    if (first > 0) new_boundary_s_[first - 1] = BoundarySeconds(first - 1, kNoLimit);
    if (last < stages_ - 1) new_boundary_s_[last] = BoundarySeconds(last, kNoLimit);
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
  const std::vector<uint64_t> kind_;  // by device
  Grid rows_;
  const int stages_;
  std::vector<uint64_t> key_;  // by stage: the sum of its devices' kinds
  std::vector<double> stage_s_, boundary_s_;
  std::vector<double> new_stage_s_, new_boundary_s_;
  std::vector<std::pair<int, int>> column_;
  std::vector<int> touched_;
  std::vector<Remembered> remembered_;
  double energy_ = 0;
};

}  // namespace

Grid Anneal(const GridProblem& problem, const Grid& start, int64_t evaluations, Draws& draws) {
  return Realise(problem, Annealer(problem, start).Run(evaluations, draws));
}

}  // namespace fusionllm::scheduler::grid
