#include "lib/report/report.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/report/curves.h"
#include "lib/report/html.h"
#include "lib/report/key_figures.h"
#include "lib/report/number_format.h"
#include "lib/report/overview.h"
#include "lib/report/page.h"
#include "lib/report/plan_view.h"
#include "lib/report/timeline.h"

namespace fusionllm::report {
namespace {

constexpr size_t kMaxEvents = 500;  // a table that is longer is no longer read
constexpr size_t kMaxCheckpoints = 20;

std::string LossText(double loss) { return std::isfinite(loss) ? absl::StrFormat("%.4f", loss) : "–"; }

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
    const double a_step = KnowsSites(run) ? std::round(static_cast<double>(BytesOfRun(run).training()) / StepsSent(run)) : 0;
    const std::vector<std::string> lost = LostDevices(run);
    for (const std::string& sentence : lost)
      absl::StrAppend(&notes, "<p>* ", Escape(absl::StrCat(TitleOf(run, i), ": ", sentence)), "</p>\n");
    rows.push_back(
        {absl::StrCat("<span class=\"key\"><i class=\"bg", i % 8, "\"></i>", Escape(TitleOf(run, i)), lost.empty() ? "" : " *", "</span>"),
         run.summary ? Seconds(run.summary->predicted_step_s) : "–", run.summary ? Seconds(median) : "–", Count(MedianTokensPerSecond(run)),
         TrafficBytes(between), OwnSteps(run) == 0 ? "–" : TrafficBytes(a_step), LossText(LossAt(run, steps).value_or(NAN)),
         first > 0 && median > 0 ? absl::StrFormat("<b>%.2f×</b>", first / median) : "–"});
  }
  return absl::StrCat("<section id=\"comparison\"><h2>Side by side</h2>\n", Table(rows), notes, "</section>\n");
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

std::string Checkpoints(const Run& run) {
  if (run.checkpoints.empty()) return "";
  std::vector<std::string> steps;
  const size_t skipped = run.checkpoints.size() > kMaxCheckpoints ? run.checkpoints.size() - kMaxCheckpoints : 0;
  for (size_t i = skipped; i < run.checkpoints.size(); ++i) steps.push_back(absl::StrCat(run.checkpoints[i].step));
  return absl::StrCat("<h3>Checkpoints</h3>\n<p>Saved after step", run.checkpoints.size() == 1 ? " " : "s ", skipped > 0 ? "..., " : "",
                      absl::StrJoin(steps, ", "), ". The newest is <code>", Escape(run.checkpoints.back().path),
                      "</code>; how many are kept is <code>spec.checkpoint.keep</code> of the job.</p>\n");
}

std::string DataFiles(const Run& run) {
  if (run.files.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"file", "for", ">size"}};
  const auto add = [&rows](const std::vector<DataFile>& files, const char* use) {
    for (const DataFile& file : files) rows.push_back({Escape(file.path), use, TrafficBytes(static_cast<double>(file.bytes))});
  };
  add(run.files, "training");
  add(run.validation_files, "validation");
  return absl::StrCat("<details class=\"data\"><summary>Files of the data</summary>\n", Table(rows), "</details>\n");
}

std::string JobText(const Run& run) {
  if (run.job_text.empty()) return "";
  return absl::StrCat("<details class=\"job\"><summary>Job, with the defaults it took</summary><pre>", Escape(run.job_text),
                      "</pre></details>\n");
}

std::string PlanSentence(const Run& run) {
  const plan::Plan& plan = *run.plan;
  std::string text =
      absl::StrCat("Planner ", Escape(plan.strategy), ", ", base::Pluralize(plan.micro_batches, "micro-batch", "micro-batches"));
  if (plan.micro_batch_size > 0) absl::StrAppend(&text, " of ", plan.micro_batch_size);
  if (plan.replicas > 1) absl::StrAppend(&text, " shared out over ", plan.replicas, " replicas");
  if (plan.in_flight > 0) absl::StrAppend(&text, ", ", plan.in_flight, " in flight");
  absl::StrAppend(&text, "; predicted step ", Seconds(plan.predicted_step_seconds));
  if (plan.lower_bound_seconds > 0)
    absl::StrAppend(&text, ", no plan that does what the job asks for (spec.strategy) goes below ", Seconds(plan.lower_bound_seconds));
  if (plan.replicas > 1) {
    absl::StrAppend(&text, ". At the end of a step replicas add up their gradients: ", Seconds(plan.sync_seconds), " of it, with ",
                    TrafficBytes(static_cast<double>(plan.sync_bytes)), " on links");
  }
  if (run.plans > 1) absl::StrAppend(&text, ". The run had ", run.plans, " plans; this is the last");
  return text + ".";
}

// `alone`: what stands at the top of the page of one run is not said twice.
std::string Section(const Run& run, size_t index, bool alone) {
  std::string out = absl::StrCat("<section class=\"run\" id=\"run-", index, "\"><h2>", Escape(TitleOf(run, index)), "</h2>\n");
  if (!run.outcome.empty()) absl::StrAppend(&out, "<p>", Escape(run.outcome), "</p>\n");
  if (!alone) absl::StrAppend(&out, WhenSentence(run), FiguresTable(run));
  if (run.plan) {
    absl::StrAppend(&out, "<h3>Plan</h3>\n<p class=\"soft\">", PlanSentence(run), "</p>\n", DrawPlan(run));
    if (!run.graph_svg.empty()) {
      absl::StrAppend(&out, "<details><summary>Graph of operators, coloured by stage</summary><div class=\"graph\">", run.graph_svg,
                      "</div></details>\n");
    }
  }
  if (const std::string timeline = DrawTimeline(run); !timeline.empty()) absl::StrAppend(&out, "<h3>Timeline of a step</h3>\n", timeline);
  if (const std::string table = StagesTable(run); !table.empty()) absl::StrAppend(&out, "<h3>Stages</h3>\n", table);
  if (const std::string table = LinksTable(run); !table.empty()) absl::StrAppend(&out, "<h3>Links</h3>\n", table);
  return absl::StrCat(out, Checkpoints(run), Events(run), DataFiles(run), JobText(run), "</section>\n");
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
  if (report.runs.size() == 1) {
    const Run& run = report.runs[0];
    absl::StrAppend(&out, WhenSentence(run), Tiles(run));
    if (const std::string table = FiguresTable(run); !table.empty())
      absl::StrAppend(&out, "<section id=\"figures\"><h2>Measured and predicted</h2>\n", table, "</section>\n");
  }
  if (report.runs.size() > 1) absl::StrAppend(&out, ComparisonTable(report.runs));
  absl::StrAppend(&out, LossCurves(report.runs), report.runs.size() == 1 ? TrainingCurves(report.runs[0]) : "");
  for (size_t i = 0; i < report.runs.size(); ++i) absl::StrAppend(&out, Section(report.runs[i], i, report.runs.size() == 1));
  absl::StrAppend(&out, Machine(report), "</main>\n<script>", kScript, "</script></body></html>\n");
  return out;
}

}  // namespace fusionllm::report
