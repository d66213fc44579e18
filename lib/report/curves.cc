#include "lib/report/curves.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/report/chart.h"
#include "lib/report/html.h"
#include "lib/report/loss_figures.h"
#include "lib/report/number_format.h"
#include "lib/report/overview.h"

namespace fusionllm::report {
namespace {

constexpr char kRings[] = "rings: validation loss";

// What a time axis counts in, so that its labels stay short.
struct TimeUnit {
  double seconds;
  const char* title;
};
TimeUnit UnitFor(const std::vector<Run>& runs) {
  double longest = 0;
  for (const Run& run : runs) {
    double seconds = 0;
    for (const StepPoint& point : run.steps) seconds += std::isfinite(point.seconds) ? point.seconds : 0;
    longest = std::max(longest, seconds);
  }
  if (longest > 2 * 3600) return {3600, "hours of training"};
  return longest > 300 ? TimeUnit{60, "minutes of training"} : TimeUnit{1, "seconds of training"};
}

// Curves of a run over steps and over the seconds of training.
struct Curves {
  std::vector<ChartPoint> loss_by_step, loss_by_time, validation_by_step, validation_by_time;
};

Curves CurvesOf(const Run& run, const TimeUnit& unit) {
  Curves curves;
  double seconds = 0;
  size_t next = 0;
  const auto add_validation = [&](int64_t up_to) {
    for (; next < run.evaluations.size() && run.evaluations[next].step <= up_to; ++next) {
      const EvaluationPoint& point = run.evaluations[next];
      if (!std::isfinite(point.loss)) continue;
      curves.validation_by_step.push_back({static_cast<double>(point.step), point.loss});
      curves.validation_by_time.push_back({seconds / unit.seconds, point.loss});
    }
  };
  for (const StepPoint& point : run.steps) {
    seconds += std::isfinite(point.seconds) ? point.seconds : 0;
    if (HasLoss(point)) {
      curves.loss_by_step.push_back({static_cast<double>(point.step), point.loss});
      curves.loss_by_time.push_back({seconds / unit.seconds, point.loss});
    }
    add_validation(point.step);
  }
  add_validation(INT64_MAX);
  return curves;
}

// A loss without its noise stands before that of each step, where there are enough of them.
void AddRun(const std::string& what, std::vector<ChartPoint> losses, std::vector<ChartPoint> means, std::vector<ChartPoint> validation,
            std::vector<ChartSeries>& series) {
  const bool smooth = !means.empty();
  series.push_back({.name = smooth ? "training loss of each step" : "training loss", .points = std::move(losses), .faint = smooth});
  if (smooth) series.push_back({.name = what, .points = std::move(means)});
  if (!validation.empty()) series.push_back({.name = "validation loss", .colour = 1, .points = std::move(validation), .ringed = true});
}

std::string OneRun(const Run& run) {
  const TimeUnit unit = UnitFor({run});
  Curves curves = CurvesOf(run, unit);
  const int64_t window = MeanSteps(run);
  std::vector<ChartPoint> means_by_step, means_by_time;
  if (window > 1) {
    for (const SmoothedPoint& point : SmoothedLoss(run, window)) {
      means_by_step.push_back({static_cast<double>(point.step), point.loss});
      means_by_time.push_back({point.seconds / unit.seconds, point.loss});
    }
  }
  const std::string mean = absl::StrCat("mean of ", window, " steps");
  std::vector<ChartSeries> by_step, by_time;
  AddRun(mean, std::move(curves.loss_by_step), std::move(means_by_step), std::move(curves.validation_by_step), by_step);
  AddRun(mean, std::move(curves.loss_by_time), std::move(means_by_time), std::move(curves.validation_by_time), by_time);
  const std::string steps = DrawChart({.id = "loss-by-step", .x_title = "step", .y_title = "loss"}, by_step);
  if (steps.empty()) return "";
  return absl::StrCat("<section><h2>Loss by step</h2>\n", steps, "</section>\n<section><h2>Loss by time</h2>\n",
                      DrawChart({.id = "loss-by-time", .x_title = unit.title, .y_title = "loss"}, by_time));
}

std::string SeveralRuns(const std::vector<Run>& runs) {
  const TimeUnit unit = UnitFor(runs);
  std::vector<ChartSeries> by_step, by_time;
  for (size_t i = 0; i < runs.size(); ++i) {
    Curves curves = CurvesOf(runs[i], unit);
    const std::string title = TitleOf(runs[i], i);
    const auto colour = static_cast<int>(i);
    by_step.push_back({title, colour, std::move(curves.loss_by_step), std::move(curves.validation_by_step)});
    by_time.push_back({title, colour, std::move(curves.loss_by_time), std::move(curves.validation_by_time)});
  }
  const std::string steps = DrawChart({.id = "loss-by-step", .x_title = "step", .y_title = "loss", .markers = kRings}, by_step);
  if (steps.empty()) return "";
  return absl::StrCat("<section><h2>Loss by step</h2>\n", steps, "</section>\n<section><h2>Loss by time</h2>\n",
                      DrawChart({.id = "loss-by-time", .x_title = unit.title, .y_title = "loss", .markers = kRings}, by_time));
}

// How long the runs took for a loss: what counts in the end, where one makes faster steps and another better ones.
std::string TimeToLossTable(const std::vector<Run>& runs) {
  int64_t window = kMaxMeanSteps;
  for (const Run& run : runs) window = std::min(window, MeanSteps(run));
  const std::vector<LossLevel> levels = TimeToLoss(runs, window);
  if (levels.empty()) return "";
  std::vector<std::vector<std::string>> rows(1);
  rows[0].push_back(">training loss");
  for (size_t i = 0; i < runs.size(); ++i) {
    rows[0].push_back(runs.size() == 1 ? ">after" : absl::StrCat(">", Escape(TitleOf(runs[i], i))));
    if (runs.size() == 1) rows[0].push_back(">step");
  }
  for (const LossLevel& level : levels) {
    std::vector<std::string> row = {absl::StrFormat("%.4g", level.loss)};
    for (const SmoothedPoint& reached : level.by_run) {
      if (runs.size() == 1) {
        row.insert(row.end(), {TrainingTime(reached.seconds), absl::StrCat(reached.step)});
      } else {
        row.push_back(absl::StrCat(TrainingTime(reached.seconds), " <span class=\"soft\">(step ", reached.step, ")</span>"));
      }
    }
    rows.push_back(std::move(row));
  }
  const std::string what = window > 1 ? absl::StrCat("the mean of ", window, " steps") : "it";
  return absl::StrCat("<h3>Time to a loss</h3>\n<p class=\"soft\">Time of training until ", what,
                      " fell to that, without evaluations and checkpoints.</p>\n", Table(rows));
}

}  // namespace

std::string LossCurves(const std::vector<Run>& runs) {
  std::string curves = runs.size() == 1 ? OneRun(runs[0]) : SeveralRuns(runs);
  if (curves.empty()) return "";
  return absl::StrCat(curves, "<div id=\"time-to-loss\">", TimeToLossTable(runs), "</div></section>\n");
}

std::string TrainingCurves(const Run& run) {
  ChartSeries rate{.name = "learning rate", .colour = 2}, norm{.name = "gradient norm", .colour = 3};
  for (const StepPoint& point : run.steps) {
    rate.points.push_back({static_cast<double>(point.step), point.learning_rate});
    norm.points.push_back({static_cast<double>(point.step), point.gradient_norm});
  }
  constexpr double kWidth = 540, kHeight = 220;
  const std::string rates =
      DrawChart({.id = "learning-rate", .x_title = "step", .y_title = "learning rate", .width = kWidth, .height = kHeight}, {rate});
  if (rates.empty()) return "";
  return absl::StrCat(
      "<section><h2>Learning rate and gradients</h2>\n<div class=\"pair\">\n", rates,
      DrawChart({.id = "gradient-norm", .x_title = "step", .y_title = "gradient norm", .width = kWidth, .height = kHeight}, {norm}),
      "</div></section>\n");
}

}  // namespace fusionllm::report
