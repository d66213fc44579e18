#include "lib/report/loss_figures.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fusionllm::report {
namespace {

// The smallest decimal number from `value` up that tells losses apart which differ by a fiftieth of `range`.
double RoundedUp(double value, double range) {
  const double unit = std::pow(10, std::floor(std::log10(range / 50)));
  return std::ceil(value / unit - 1e-9) * unit;
}

// Of the `count` steps up to `last`: those without a target that counts are passed over. NaN when one of the others is, or there are none.
double MeanLoss(const Run& run, size_t last, size_t count) {
  double sum = 0;
  int64_t with_loss = 0;
  for (size_t i = last + 1 - count; i <= last; ++i) {
    if (!HasLoss(run.steps[i])) continue;
    sum += run.steps[i].loss;
    ++with_loss;
  }
  return with_loss > 0 ? sum / static_cast<double>(with_loss) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::string WhyNoLoss(const EvaluationPoint& point) {
  if (std::isfinite(point.loss)) return "";
  return point.accuracy.has_value() ? "NaN or infinite" : "none: no target counts, or it is NaN or infinite";
}

int64_t MeanSteps(const Run& run) { return std::clamp<int64_t>(static_cast<int64_t>(run.steps.size()) / 5, 1, kMaxMeanSteps); }

std::optional<double> MeanOfLastSteps(const Run& run) {
  if (run.steps.empty()) return std::nullopt;
  return MeanLoss(run, run.steps.size() - 1, static_cast<size_t>(MeanSteps(run)));
}

const EvaluationPoint* BestEvaluation(const Run& run) {
  const EvaluationPoint* best = nullptr;
  for (const EvaluationPoint& point : run.evaluations) {
    if (std::isfinite(point.loss) && (best == nullptr || point.loss < best->loss)) best = &point;
  }
  return best;
}

double TrainingSeconds(const Run& run) {
  double seconds = 0;
  for (size_t i = run.steps.size() - OwnSteps(run); i < run.steps.size(); ++i) {
    if (std::isfinite(run.steps[i].seconds)) seconds += run.steps[i].seconds;
  }
  return seconds;
}

std::vector<SmoothedPoint> SmoothedLoss(const Run& run, int64_t window) {
  std::vector<SmoothedPoint> points;
  const auto count = static_cast<size_t>(std::max<int64_t>(1, window));
  double seconds = 0;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    if (std::isfinite(run.steps[i].seconds)) seconds += run.steps[i].seconds;
    if (i + 1 < count) continue;
    // Added up again each time: a running sum would keep what rounding, or a NaN, leaves in it.
    const double mean = MeanLoss(run, i, count);
    if (std::isfinite(mean)) points.push_back({run.steps[i].step, seconds, mean});
  }
  return points;
}

std::vector<LossLevel> TimeToLoss(const std::vector<Run>& runs, int64_t window) {
  std::vector<std::vector<SmoothedPoint>> curves;
  double start = -std::numeric_limits<double>::infinity(), end = start;
  for (const Run& run : runs) {
    curves.push_back(SmoothedLoss(run, window));
    const std::vector<SmoothedPoint>& curve = curves.back();
    const auto lowest =
        std::min_element(curve.begin(), curve.end(), [](const SmoothedPoint& a, const SmoothedPoint& b) { return a.loss < b.loss; });
    if (lowest == curve.end() || !(lowest->loss < curve.front().loss)) return {};
    start = std::max(start, curve.front().loss);
    end = std::max(end, lowest->loss);
  }
  if (!(end < start)) return {};
  std::vector<LossLevel> levels;
  for (const double way : {0.5, 0.75, 0.9, 1.0}) {
    LossLevel level{.loss = RoundedUp(start - way * (start - end), start - end), .by_run = {}};
    if (!levels.empty() && level.loss >= levels.back().loss) continue;
    for (const std::vector<SmoothedPoint>& curve : curves) {
      const auto reached = std::find_if(curve.begin(), curve.end(), [&](const SmoothedPoint& point) { return point.loss <= level.loss; });
      if (reached == curve.end()) return {};  // not so: the level lies above the lowest loss of each
      level.by_run.push_back(*reached);
    }
    const auto same_steps = [&](const LossLevel& other) {
      return std::equal(other.by_run.begin(), other.by_run.end(), level.by_run.begin(),
                        [](const SmoothedPoint& a, const SmoothedPoint& b) { return a.step == b.step; });
    };
    if (!levels.empty() && same_steps(levels.back())) levels.pop_back();  // the lower one says more
    levels.push_back(std::move(level));
  }
  return levels;
}

}  // namespace fusionllm::report
