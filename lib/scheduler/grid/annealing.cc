#include "lib/scheduler/grid/annealing.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "lib/scheduler/grid/kind_costs.h"
#include "lib/scheduler/infinity.h"

namespace fusionllm::scheduler::grid {
namespace {

// Temperatures as shares of what a stage costs on average at the start, with its boundary: that is what a swap changes most.
constexpr double kHottest = 0.064;
constexpr double kColdest = 0.004;
constexpr int64_t kMovesOfATemperature = 64;
// Only the worst stage counts in the objective. A little of every stage's own cost tells moves apart that leave the worst as it is.
constexpr double kSlope = 0.2;
// Of so many moves one reverses a run of stages, some swap pieces of two pipelines and some a piece for devices of one stage; the others
// swap two devices.
constexpr int kMoves = 20, kReversals = 1, kTurns = 2, kPieces = 5;
constexpr int kLongestPiece = 4;

class Annealer {
 public:
  Annealer(const GridProblem& problem, const Grid& start)
      : costs_(problem), stages_(problem.stages()), pipelines_(problem.pipelines()), key_(stages_), stage_s_(stages_) {
    for (int stage = 0; stage < stages_; ++stage) {
      for (const int device : start[stage]) {
        rows_.push_back(costs_.kind(device));
        key_[stage] += costs_.number(rows_.back());
      }
    }
    for (int stage = 0; stage < stages_; ++stage) stage_s_[stage] = StageSeconds(stage);
    for (int b = 0; b + 1 < stages_; ++b) boundary_s_.push_back(BoundarySeconds(b, kInfinity));
    energy_ = Energy();
    Note();
  }

  void Run(int64_t evaluations, Rng& rng) {
    const double hottest = kHottest * energy_ / stages_, cooling = std::log(kColdest / kHottest);
    double temperature = hottest;
    for (int64_t i = 0; i < evaluations && stages_ > 1; ++i) {
      if (i % kMovesOfATemperature == 0) {
        temperature = hottest * std::exp(cooling * static_cast<double>(i) / static_cast<double>(evaluations));
      }
      // Drawn before the move, so that a move is known to be too dear as soon as its first part is.
      const double limit = energy_ - temperature * std::log(1 - rng.Uniform());
      if (Move(rng, limit)) Note();
    }
  }

  // The best rows met, made of the problem's devices.
  Grid Best(const GridProblem& problem) const {
    std::vector<std::vector<int>> left;  // by kind
    for (int device = problem.devices(); device-- > 0;) {
      left.resize(std::max<size_t>(left.size(), costs_.kind(device) + 1));
      left[costs_.kind(device)].push_back(device);
    }
    Grid grid(stages_);
    for (size_t i = 0; i < best_.size(); ++i) {
      std::vector<int>& devices = left[best_[i]];
      grid[i / pipelines_].push_back(devices.back());
      devices.pop_back();
    }
    return grid;
  }

 private:
  // A device of a row that a move changes.
  struct Cell {
    int row, column;
  };
  struct Touched {
    int boundary;
    double before_s, min_s;
  };

  std::span<const int> Row(int row) const {
    return {rows_.data() + static_cast<ptrdiff_t>(row) * pipelines_, static_cast<size_t>(pipelines_)};
  }
  int& At(int row, int column) { return rows_[static_cast<size_t>(row) * pipelines_ + column]; }
  double StageSeconds(int row) { return costs_.StageSeconds(key_[row], Row(row)); }
  double Between(int row, int other, double limit) { return costs_.BoundarySeconds(key_[row], Row(row), key_[other], Row(other), limit); }
  // Between stages b and b + 1; some lower bound above the limit when it is above the limit.
  double BoundarySeconds(int b, double limit) { return Between(b, b + 1, limit); }

  double Total() const {
    return *std::max_element(stage_s_.begin(), stage_s_.end()) + std::accumulate(boundary_s_.begin(), boundary_s_.end(), 0.0);
  }
  double Energy() const { return Total() + kSlope / stages_ * std::accumulate(stage_s_.begin(), stage_s_.end(), 0.0); }

  void Note() {
    const double total = Total();
    if (total >= best_total_ - 1e-12) return;
    best_total_ = total;
    best_ = rows_;
  }

  bool Move(Rng& rng, double limit) {
    const int kind = rng.Below(kMoves);
    if (kind < kReversals) return Reverse(rng, limit);
    if (kind < kReversals + kTurns) return TurnPiece(rng, limit);
    return SwapPieces(rng, kind < kReversals + kTurns + kPieces, limit);
  }

  int Nearest(int kind, int row) const {
    const std::span<const int> others = Row(row);
    int best = 0;
    for (int i = 1; i < pipelines_; ++i) {
      if (costs_.boundary_s(kind, others[i]) < costs_.boundary_s(kind, others[best])) best = i;
    }
    return best;
  }

  void Swap(Cell one, Cell other) {
    int &a = At(one.row, one.column), &b = At(other.row, other.column);
    key_[one.row] += costs_.number(b) - costs_.number(a);
    key_[other.row] += costs_.number(a) - costs_.number(b);
    std::swap(a, b);
  }

  // Stages in a row often hold devices of the same places, which makes their boundaries cheap: to change one alone would cost two
  // boundaries. So a device goes along with those nearest to it in the following stages, or, with a piece of one stage, alone.
  bool SwapPieces(Rng& rng, bool longer, double limit) {
    const int longest = std::min(kLongestPiece, stages_ / 2);
    const int length = longer && longest > 1 ? 2 + rng.Below(longest - 1) : 1;
    // One number for four draws: these are many, and a bias of a part in thousands does not matter.
    uint64_t bits = rng.Bits();
    const auto below = [&bits](int bound) {
      const auto drawn = static_cast<int>((bits & 0xffff) * static_cast<uint64_t>(bound) >> 16);
      bits >>= 16;
      return drawn;
    };
    int upper = below(stages_ - length + 1), lower = below(stages_ - length + 1);
    if (upper > lower) std::swap(upper, lower);
    if (lower - upper < length) return false;
    int a = below(pipelines_), b = below(pipelines_);
    one_.clear();
    other_.clear();
    for (int i = 0; i < length; ++i) {
      if (i > 0) a = Nearest(At(upper + i - 1, a), upper + i), b = Nearest(At(lower + i - 1, b), lower + i);
      one_.push_back({upper + i, a});
      other_.push_back({lower + i, b});
    }
    return Exchange(limit);
  }

  // A piece of one pipeline against as many devices of one other stage, alike if there are so many. Stages come in runs that hold the same
  // places, often runs of unequal lengths; this changes two of them so that each stays a run.
  bool TurnPiece(Rng& rng, double limit) {
    const int longest = std::min({kLongestPiece, stages_ - 1, pipelines_});
    if (longest < 2) return false;
    const int length = 2 + rng.Below(longest - 1), first = rng.Below(stages_ - length + 1);
    int stage = rng.Below(stages_ - length);
    if (stage >= first) stage += length;
    int column = rng.Below(pipelines_);
    const int begin = rng.Below(pipelines_);
    one_.clear();
    other_.clear();
    for (int i = 0; i < length; ++i) {
      if (i > 0) column = Nearest(At(first + i - 1, column), first + i);
      one_.push_back({first + i, column});
    }
    for (const bool alike : {true, false}) {
      for (int i = 0; i < pipelines_ && other_.size() < one_.size(); ++i) {
        const int candidate = (begin + i) % pipelines_;
        if ((At(stage, candidate) == At(stage, begin)) == alike) other_.push_back({stage, candidate});
      }
    }
    if (stage < first) std::swap(one_, other_);
    return Exchange(limit);
  }

  // Each of one_ with that of other_ at its place, unless that is above the limit or changes nothing. All rows of one_ stand above those of
  // other_.
  bool Exchange(double limit) {
    bool change = false;
    for (size_t i = 0; i < one_.size(); ++i) change = change || At(one_[i].row, one_[i].column) != At(other_[i].row, other_[i].column);
    if (!change) return false;
    const auto exchange = [&] {
      for (size_t i = 0; i < one_.size(); ++i) Swap(one_[i], other_[i]);
    };
    exchange();
    if (Keep(limit)) return true;
    exchange();
    return false;
  }

  // Whether the grid with its changed cells is within the limit; if not, costs are as before.
  bool Keep(double limit) {
    old_stages_.clear();
    touched_.clear();
    for (const std::vector<Cell>* const cells : {&one_, &other_}) {
      for (const Cell& cell : *cells) {
        if (old_stages_.empty() || old_stages_.back().first != cell.row) {
          old_stages_.emplace_back(cell.row, stage_s_[cell.row]);
          stage_s_[cell.row] = StageSeconds(cell.row);
        }
        if (cell.row > 0) Touch(cell, cell.row - 1, cell.row - 1);
        if (cell.row + 1 < stages_) Touch(cell, cell.row, cell.row + 1);
      }
    }
    for (const Touched& touched : touched_) boundary_s_[touched.boundary] = touched.min_s;
    double energy = Energy();
    for (const Touched& touched : touched_) {
      if (energy > limit) break;
      energy -= touched.min_s;
      boundary_s_[touched.boundary] = BoundarySeconds(touched.boundary, limit - energy);
      energy += boundary_s_[touched.boundary];
    }
    if (energy <= limit) {
      energy_ = Energy();
      return true;
    }
    for (const Touched& touched : touched_) boundary_s_[touched.boundary] = touched.before_s;
    for (const auto& [stage, seconds] : old_stages_) stage_s_[stage] = seconds;
    return false;
  }

  // The boundary is at least as slow as the fastest pair of the changed device: that rules many moves out.
  void Touch(const Cell& cell, int boundary, int other_row) {
    const int kind = At(cell.row, cell.column);
    const double min_s = costs_.boundary_s(kind, Row(other_row)[Nearest(kind, other_row)]);
    const auto known =
        std::find_if(touched_.rbegin(), touched_.rend(), [&](const Touched& touched) { return touched.boundary == boundary; });
    if (known == touched_.rend()) {
      touched_.push_back({boundary, boundary_s_[boundary], min_s});
    } else {
      known->min_s = std::max(known->min_s, min_s);
    }
  }

  bool Reverse(Rng& rng, double limit) {
    int first = rng.Below(stages_), last = rng.Below(stages_);
    if (first > last) std::swap(first, last);
    if (first == last) return false;
    const bool inner_first = first > 0, inner_last = last + 1 < stages_;
    const double before_s = inner_first ? Between(first - 1, last, kInfinity) : 0;
    const double behind_s = inner_last ? Between(first, last + 1, kInfinity) : 0;
    const double energy = energy_ + before_s + behind_s - (inner_first ? boundary_s_[first - 1] : 0) - (inner_last ? boundary_s_[last] : 0);
    if (energy > limit) return false;
    for (int i = first, j = last; i < j; ++i, --j) {
      std::swap_ranges(&At(i, 0), &At(i, 0) + pipelines_, &At(j, 0));
    }
    std::reverse(key_.begin() + first, key_.begin() + last + 1);
    std::reverse(stage_s_.begin() + first, stage_s_.begin() + last + 1);
    std::reverse(boundary_s_.begin() + first, boundary_s_.begin() + last);
    if (inner_first) boundary_s_[first - 1] = before_s;
    if (inner_last) boundary_s_[last] = behind_s;
    energy_ = Energy();
    return true;
  }

  KindCosts costs_;
  const int stages_, pipelines_;
  std::vector<int> rows_, best_;  // kinds of devices, [stage][pipeline]
  std::vector<uint64_t> key_;     // by stage
  std::vector<double> stage_s_, boundary_s_;
  double energy_ = 0, best_total_ = kInfinity;
  // Of the move at hand.
  std::vector<Cell> one_, other_;
  std::vector<std::pair<int, double>> old_stages_;  // and what they cost
  std::vector<Touched> touched_;
};

}  // namespace

Grid Anneal(const GridProblem& problem, const Grid& start, int64_t evaluations, Rng& rng) {
  Annealer annealer(problem, start);
  annealer.Run(evaluations, rng);
  return OrderPartition(problem, annealer.Best(problem));
}

}  // namespace fusionllm::scheduler::grid
