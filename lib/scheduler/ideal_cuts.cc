#include "lib/scheduler/ideal_cuts.h"

#include <algorithm>
#include <cmath>

#include "lib/scheduler/closed_form.h"
#include "lib/scheduler/infinity.h"
#include "lib/scheduler/pipeline_model.h"

namespace fusionllm::scheduler {
namespace {

constexpr double kCapStep = 1.04;
constexpr double kCutSlack = 1 + 1e-9;

class Search {
 public:
  Search(const Problem& problem, const std::vector<Ideal>& ideals, std::span<const int> devices)
      : problem_(problem), form_(problem), ideals_(ideals), devices_(devices) {
    for (const int device : devices_) {
      std::vector<double>& seconds = seconds_.emplace_back(ideals_.size(), 0);
      for (size_t i = 1; i < ideals_.size(); ++i) {
        const int p = ideals_[i].added;
        seconds[i] = seconds[ideals_[i].parent] + problem_.ForwardSeconds(p, p + 1, device) + problem_.BackwardSeconds(p, p + 1, device);
      }
    }
  }

  std::vector<IdealCut> Run(size_t limit) {
    std::vector<IdealCut> cuts;
    const auto keep = [&](const IdealCut& cut) {
      const bool known = std::any_of(cuts.begin(), cuts.end(),
                                     [&](const IdealCut& other) { return other.order == cut.order && other.begins == cut.begins; });
      if (!known) cuts.push_back(cut);
    };
    IdealCut cut;
    if (!Solve(kInfinity, cut)) return cuts;
    keep(cut);
    const int m = problem_.request().micro_batches;
    const double min_sum_s = sum_s_;  // the fill of the uncapped solution is a bound on every other's
    double best_s = cut.estimate_s, together = 0;
    for (const std::vector<double>& seconds : seconds_) together += 1 / std::max(seconds.back(), 1e-12);
    for (double cap_s = 1 / together; FillPlusBottleneck(min_sum_s, cap_s, m) < best_s && !problem_.Stopped(); cap_s *= kCapStep) {
      if (!Solve(cap_s, cut)) continue;
      best_s = std::min(best_s, cut.estimate_s);
      keep(cut);
    }
    std::stable_sort(cuts.begin(), cuts.end(), [](const IdealCut& a, const IdealCut& b) { return a.estimate_s < b.estimate_s; });
    if (cuts.size() > limit) cuts.resize(limit);
    return cuts;
  }

 private:
  bool Solve(double cap_s, IdealCut& cut) {
    const size_t stages = devices_.size(), all = ideals_.size();
    std::vector<std::vector<double>> min_s(stages, std::vector<double>(all, kInfinity));
    std::vector<std::vector<int>> from(stages, std::vector<int>(all, -1));
    for (size_t i = 0; i < all; ++i) {
      // Placeholders alone are no stage; their own time, that of reading data, is not in the sums of ideals.
      const bool enough = ideals_[i].count >= problem_.first_cut() && (stages > 1 || i + 1 == all);
      if (enough && seconds_[0][i] <= cap_s * kCutSlack) min_s[0][i] = seconds_[0][i];
    }
    for (size_t s = 1; s < stages; ++s) {
      for (size_t i = 0; i + 1 < all; ++i) {
        if (min_s[s - 1][i] == kInfinity) continue;
        const double arrived_s = min_s[s - 1][i] + form_.CrossingOf(ideals_[i].bytes, devices_[s - 1], devices_[s], cap_s).seconds();
        if (arrived_s == kInfinity) continue;
        for (size_t j = s + 1 < stages ? i + 1 : all - 1; j < all; ++j) {
          const double stage_s = seconds_[s][j] - seconds_[s][i];
          if (stage_s > cap_s * kCutSlack || arrived_s + stage_s >= min_s[s][j] || ideals_[j].count == ideals_[i].count) continue;
          if (!Holds(ideals_[j], ideals_[i])) continue;
          min_s[s][j] = arrived_s + stage_s;
          from[s][j] = static_cast<int>(i);
        }
      }
    }
    if (min_s.back().back() == kInfinity) return false;
    Read(from, min_s.back().back(), cap_s, cut);
    return true;
  }

  void Read(const std::vector<std::vector<int>>& from, double sum_s, double cap_s, IdealCut& cut) {
    const size_t stages = devices_.size();
    std::vector<int> ends(stages, static_cast<int>(ideals_.size()) - 1);
    for (size_t s = stages - 1; s > 0; --s) ends[s - 1] = from[s][ends[s]];
    cut = {};
    double slowest_s = 0;
    const Ideal* before = nullptr;
    for (size_t s = 0; s < stages; ++s) {
      const Ideal& end = ideals_[ends[s]];
      cut.begins.push_back(static_cast<int>(cut.order.size()));
      for (int p = 0; p < problem_.positions(); ++p) {
        if (Holds(end, p) && (before == nullptr || !Holds(*before, p))) cut.order.push_back(problem_.op_at(p));
      }
      slowest_s = std::max(slowest_s, seconds_[s][ends[s]] - (s == 0 ? 0 : seconds_[s][ends[s - 1]]));
      if (s > 0) {  // links count by what the cap let them take
        const ClosedForm::Crossing crossing = form_.CrossingOf(before->bytes, devices_[s - 1], devices_[s], cap_s);
        slowest_s = std::max({slowest_s, crossing.forward_s, crossing.backward_s});
      }
      before = &end;
    }
    sum_s_ = sum_s;
    cut.estimate_s = FillPlusBottleneck(sum_s, slowest_s, problem_.request().micro_batches);
  }

  const Problem& problem_;
  const ClosedForm form_;
  const std::vector<Ideal>& ideals_;
  const std::span<const int> devices_;
  std::vector<std::vector<double>> seconds_;  // of each ideal's ops but the placeholders, by stage
  double sum_s_ = 0;                          // of the last solution
};

}  // namespace

std::vector<IdealCut> CutOverIdeals(const Problem& problem, const std::vector<Ideal>& ideals, std::span<const int> devices, size_t limit) {
  return Search(problem, ideals, devices).Run(limit);
}

}  // namespace fusionllm::scheduler
