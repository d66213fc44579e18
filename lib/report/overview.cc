#include "lib/report/overview.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "lib/report/html.h"
#include "lib/report/key_figures.h"
#include "lib/report/loss_figures.h"
#include "lib/report/number_format.h"

namespace fusionllm::report {
namespace {

std::string LossCell(double loss) { return std::isfinite(loss) ? absl::StrFormat("%.4f", loss) : "–"; }

std::string Tile(absl::string_view value, absl::string_view label) {
  return absl::StrCat("<div class=\"tile\"><b>", value, "</b><span>", label, "</span></div>");
}

std::string StepTiles(const Run& run) {
  std::string out;
  const double predicted = run.summary->predicted_step_s, measured = run.summary->median_step_s;
  if (measured > 0) {
    const std::string against =
        predicted > 0 ? absl::StrFormat(", predicted %s (%+.1f%%)", Seconds(predicted), (measured / predicted - 1) * 100) : std::string();
    absl::StrAppend(&out, Tile(Seconds(measured), absl::StrCat("a step (median)", against)));
  } else if (predicted > 0) {
    absl::StrAppend(&out, Tile(Seconds(predicted), "a step, predicted"));
  }
  return out;
}

}  // namespace

std::string TitleOf(const Run& run, size_t index) {
  if (!run.title.empty()) return run.title;
  return run.job.empty() ? absl::StrCat("run ", index + 1) : run.job;
}

std::string TrainingTime(double seconds) { return seconds < 60 ? Seconds(seconds) : TimeSpan(seconds); }

std::string WhenSentence(const Run& run) {
  std::vector<std::string> parts;
  if (!run.started.empty()) {
    parts.push_back(absl::StrCat("Started <time datetime=\"", Escape(run.started), "\">",
                                 Escape(absl::StrReplaceAll(run.started, {{"T", " "}, {"Z", " UTC"}})), "</time>"));
  }
  if (run.elapsed_s > 0)
    parts.push_back(absl::StrCat(parts.empty() ? "Took " : "took ", TrainingTime(run.elapsed_s), " from start to end"));
  if (run.earlier_steps > 0) {
    parts.push_back(absl::StrCat("goes on behind ", run.earlier_steps, run.earlier_steps == 1 ? " step" : " steps",
                                 " of earlier starts in this folder"));
  }
  if (run.parameters > 0) parts.push_back(absl::StrCat(WholeNumber(run.parameters), " parameters are trained"));
  return parts.empty() ? "" : absl::StrCat("<p class=\"soft\">", absl::StrJoin(parts, "; "), ".</p>\n");
}

std::string Tiles(const Run& run) {
  if (run.steps.empty()) return "";
  const std::string of_total = run.total_steps > run.steps.back().step ? absl::StrCat(" of ", run.total_steps) : "";
  std::string out = absl::StrCat("<div class=\"tiles\">", Tile(absl::StrCat(run.steps.back().step, of_total), "steps"));
  const int64_t mean = MeanSteps(run);
  absl::StrAppend(&out, Tile(LossCell(*MeanOfLastSteps(run)), mean > 1 ? absl::StrCat("training loss, mean of the last ", mean, " steps")
                                                                       : "training loss of the last step"));
  if (!run.evaluations.empty()) {
    const EvaluationPoint& newest = run.evaluations.back();
    absl::StrAppend(&out, Tile(LossCell(newest.loss), absl::StrCat("validation loss after step ", newest.step)));
    if (newest.accuracy.has_value()) absl::StrAppend(&out, Tile(Percent(*newest.accuracy), "accuracy in validation"));
  }
  if (run.summary) absl::StrAppend(&out, StepTiles(run));
  if (const double rate = MedianTokensPerSecond(run); rate > 0)
    absl::StrAppend(&out, Tile(Count(rate), absl::StrCat(run.unit, " a second")));
  if (const double seconds = TrainingSeconds(run); seconds > 0)
    absl::StrAppend(
        &out, Tile(TrainingTime(seconds), OwnSteps(run) == 1 ? "of training" : absl::StrCat("of training, ", OwnSteps(run), " steps")));
  if (run.summary && run.summary->wire_bytes > 0) {
    const MeasuredBytes bytes = BytesOfRun(run);
    absl::StrAppend(&out, Tile(TrafficBytes(static_cast<double>(bytes.all)), KnowsSites(run) ? "between sites in all" : "on links in all"));
  }
  return out + "</div>\n";
}

std::string FiguresTable(const Run& run) {
  const std::vector<KeyFigure> figures = KeyFigures(run);
  if (figures.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"", "measured", "predicted", ""}};
  for (const KeyFigure& figure : figures) {
    rows.push_back({absl::StrCat("<b>", Escape(figure.name), "</b>"), Escape(figure.measured), Escape(figure.predicted),
                    absl::StrCat("<span class=\"soft\">", Escape(figure.remark), "</span>")});
  }
  return absl::StrCat("<div class=\"figures\">", Table(rows), "</div>\n");
}

}  // namespace fusionllm::report
