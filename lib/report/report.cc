#include "lib/report/report.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/counted.h"
#include "lib/report/chart.h"
#include "lib/report/html.h"
#include "lib/report/page.h"
#include "lib/report/plan_view.h"
#include "lib/report/timeline.h"
#include "lib/report/words.h"

namespace fusionllm::report {
namespace {

constexpr size_t kMaxEvents = 500;  // a table that is longer is no longer read

std::string TitleOf(const Run& run, size_t index) {
  if (!run.title.empty()) return run.title;
  return run.job.empty() ? absl::StrCat("run ", index + 1) : run.job;
}

std::string LossText(double loss) { return std::isfinite(loss) ? absl::StrFormat("%.4f", loss) : "–"; }

std::string Tile(absl::string_view value, absl::string_view label) {
  return absl::StrCat("<div class=\"tile\"><b>", value, "</b><span>", label, "</span></div>");
}

std::string Tiles(const Run& run) {
  if (run.steps.empty()) return "";
  std::string out = "<div class=\"tiles\">";
  absl::StrAppend(&out, Tile(absl::StrCat(run.steps.back().step), "steps"), Tile(LossText(run.steps.back().loss), "loss of the last step"));
  if (run.summary) {
    const double predicted = run.summary->predicted_step_s, measured = run.summary->median_step_s;
    if (measured > 0) absl::StrAppend(&out, Tile(Seconds(measured), "a step (median)"));
    if (predicted > 0) absl::StrAppend(&out, Tile(Seconds(predicted), "a step, predicted"));
    if (predicted > 0 && measured > 0) {
      absl::StrAppend(&out, Tile(absl::StrFormat("%+.1f %%", (measured / predicted - 1) * 100), "measured against predicted"));
    }
    absl::StrAppend(&out, Tile(TrafficBytes(static_cast<double>(run.summary->wire_bytes)), "on all links"));
  }
  if (const double rate = MedianTokensPerSecond(run); rate > 0)
    absl::StrAppend(&out, Tile(Count(rate), absl::StrCat(run.unit, " a second")));
  return out + "</div>\n";
}

std::string ComparisonTable(const std::vector<Run>& runs) {
  int64_t steps = INT64_MAX;
  for (const Run& run : runs) steps = std::min(steps, run.steps.empty() ? 0 : run.steps.back().step);
  std::vector<std::vector<std::string>> rows = {{"run", ">step, predicted", ">step, measured", absl::StrCat(">", runs.front().unit, "/s"),
                                                 ">between sites, whole run", ">between sites, a step",
                                                 absl::StrCat(">loss after ", steps, " steps"), ">speed-up"}};
  const double first = runs.front().summary ? runs.front().summary->median_step_s : 0;
  std::string notes;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    const double median = run.summary ? run.summary->median_step_s : 0;
    const auto between = static_cast<double>(BytesBetweenSites(run));
    const std::vector<std::string> lost = LostDevices(run);
    for (const std::string& sentence : lost)
      absl::StrAppend(&notes, "<p>* ", Escape(absl::StrCat(TitleOf(run, i), ": ", sentence)), "</p>\n");
    rows.push_back(
        {absl::StrCat("<span class=\"key\"><i class=\"bg", i % 8, "\"></i>", Escape(TitleOf(run, i)), lost.empty() ? "" : " *", "</span>"),
         run.summary ? Seconds(run.summary->predicted_step_s) : "–", run.summary ? Seconds(median) : "–", Count(MedianTokensPerSecond(run)),
         TrafficBytes(between), OwnSteps(run) == 0 ? "–" : TrafficBytes(std::round(between / static_cast<double>(OwnSteps(run)))),
         LossText(LossAt(run, steps).value_or(NAN)), first > 0 && median > 0 ? absl::StrFormat("<b>%.2f×</b>", first / median) : "–"});
  }
  return absl::StrCat("<section id=\"comparison\"><h2>Side by side</h2>\n", Table(rows), notes, "</section>\n");
}

std::string LossCharts(const std::vector<Run>& runs) {
  std::vector<ChartSeries> by_step, by_time;
  for (size_t i = 0; i < runs.size(); ++i) {
    ChartSeries step = {TitleOf(runs[i], i), static_cast<int>(i), {}, {}};
    ChartSeries time = step;
    double seconds = 0;
    for (const StepPoint& point : runs[i].steps) {
      seconds += std::isfinite(point.seconds) ? point.seconds : 0;
      step.points.push_back({static_cast<double>(point.step), point.loss});
      time.points.push_back({seconds, point.loss});
    }
    for (const EvaluationPoint& point : runs[i].evaluations) step.markers.push_back({static_cast<double>(point.step), point.loss});
    by_step.push_back(std::move(step));
    by_time.push_back(std::move(time));
  }
  const std::string steps = DrawChart({"loss-by-step", "step", "loss"}, by_step);
  if (steps.empty()) return "";
  std::string out = absl::StrCat("<section><h2>Loss by step</h2>\n", steps);
  if (runs.size() > 1) absl::StrAppend(&out, "</section>\n<section><h2>Loss by time</h2>\n");
  if (runs.size() > 1) absl::StrAppend(&out, DrawChart({"loss-by-time", "seconds of training", "loss"}, by_time));
  return out + "</section>\n";
}

std::string Events(const Run& run) {
  if (run.events.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{">step", "event", "device", "what happened"}};
  const size_t skipped = run.events.size() > kMaxEvents ? run.events.size() - kMaxEvents : 0;
  for (size_t i = skipped; i < run.events.size(); ++i) {
    const Event& event = run.events[i];
    const bool bad = event.reason == "ExecutorLost" || event.reason == "LinkDegraded" || event.reason == "Straggler";
    rows.push_back({absl::StrCat(event.step), absl::StrCat(bad ? "<span class=\"bad\">" : "<span>", Escape(event.reason), "</span>"),
                    Escape(event.device), Escape(event.message)});
  }
  return absl::StrCat("<details class=\"events\"><summary>", run.events.size(), " event", run.events.size() == 1 ? "" : "s",
                      skipped > 0 ? absl::StrCat(", the last ", kMaxEvents, " of them") : "", "</summary>\n", Table(rows), "</details>\n");
}

std::string PlanSentence(const Run& run) {
  const Plan& plan = *run.plan;
  std::string text =
      absl::StrCat("Planner ", Escape(plan.strategy), ", ", base::Counted(plan.micro_batches, "micro-batch", "micro-batches"));
  if (plan.replicas > 1) absl::StrAppend(&text, " shared out over ", plan.replicas, " replicas");
  if (plan.in_flight > 0) absl::StrAppend(&text, ", ", plan.in_flight, " in flight");
  absl::StrAppend(&text, "; predicted step ", Seconds(plan.predicted_step_s));
  if (plan.lower_bound_s > 0) absl::StrAppend(&text, ", no plan on these devices can do better than ", Seconds(plan.lower_bound_s));
  if (plan.replicas > 1) {
    absl::StrAppend(&text, ". At the end of a step replicas add up their gradients: ", Seconds(plan.sync_s), " of it, with ",
                    TrafficBytes(static_cast<double>(plan.sync_bytes)), " on links");
  }
  if (run.plans > 1) absl::StrAppend(&text, ". The run had ", run.plans, " plans; this is the last");
  return text + ".";
}

std::string Section(const Run& run, size_t index) {
  std::string out = absl::StrCat("<section class=\"run\" id=\"run-", index, "\"><h2>", Escape(TitleOf(run, index)), "</h2>\n");
  if (!run.outcome.empty()) absl::StrAppend(&out, "<p>", Escape(run.outcome), "</p>\n");
  if (run.plan) {
    absl::StrAppend(&out, "<h3>Plan</h3>\n<p class=\"soft\">", PlanSentence(run), "</p>\n", DrawPlan(run));
    if (!run.graph_svg.empty()) {
      absl::StrAppend(&out, "<details><summary>Graph of operators, coloured by stage</summary><div class=\"graph\">", run.graph_svg,
                      "</div></details>\n");
    }
  }
  if (const std::string timeline = DrawTimeline(run); !timeline.empty()) absl::StrAppend(&out, "<h3>Timeline</h3>\n", timeline);
  if (const std::string table = StagesTable(run); !table.empty()) absl::StrAppend(&out, "<h3>Stages</h3>\n", table);
  if (const std::string table = LinksTable(run); !table.empty()) absl::StrAppend(&out, "<h3>Links</h3>\n", table);
  return absl::StrCat(out, Events(run), "</section>\n");
}

std::string Machine(const Report& report) {
  if (report.machine.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"", ""}};
  for (const auto& [name, value] : report.machine) rows.push_back({Escape(name), Escape(value)});
  return absl::StrCat("<section id=\"machine\"><h2>Machine</h2>\n", Table(rows), "</section>\n");
}

}  // namespace

std::string ToHtml(const Report& report) {
  std::string out = absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", Escape(report.title),
                                 "</title>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><link rel=\"icon\" "
                                 "href=\"data:,\">\n<style>",
                                 kStyle, "</style></head>\n<body><main>\n<h1>", Escape(report.title), "</h1>\n");
  if (!report.introduction.empty()) absl::StrAppend(&out, "<p class=\"soft\">", Escape(report.introduction), "</p>\n");
  if (report.runs.size() == 1) absl::StrAppend(&out, Tiles(report.runs[0]));
  if (report.runs.size() > 1) absl::StrAppend(&out, ComparisonTable(report.runs));
  absl::StrAppend(&out, LossCharts(report.runs));
  for (size_t i = 0; i < report.runs.size(); ++i) absl::StrAppend(&out, Section(report.runs[i], i));
  absl::StrAppend(&out, Machine(report), "</main>\n<script>", kScript, "</script></body></html>\n");
  return out;
}

}  // namespace fusionllm::report
