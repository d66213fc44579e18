#include "cli/run/summary_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/run/text_table.h"
#include "lib/base/pluralize.h"
#include "lib/report/key_figures.h"
#include "lib/report/number_format.h"

namespace fusionllm::cli {
namespace {

// How the batch is shared out and what adding up costs, of plans with several replicas.
void AddReplicas(const report::Run& run, TextTable& figures) {
  if (!run.plan || run.plan->replicas <= 1) return;
  const plan::Plan& plan = *run.plan;
  figures.Row({"replicas", absl::StrCat(plan.replicas, ", each of ", base::Pluralize(static_cast<int64_t>(plan.stages.size()), "stage"),
                                        ": ", absl::StrJoin(plan.micro_batches_by_replica, " + "), " of ",
                                        base::Pluralize(plan.micro_batches, "micro-batch", "micro-batches"))});
  std::string sums = absl::StrCat(report::StepSeconds(plan.sync_seconds), " and ",
                                  report::TrafficBytes(static_cast<double>(plan.sync_bytes)), " of a step predicted");
  const std::optional<int64_t> bytes = report::BytesBetweenReplicas(run);
  if (bytes && report::OwnSteps(run) > 0) {
    absl::StrAppend(&sums, ", ", report::TrafficBytes(static_cast<double>(*bytes) / report::StepsSent(run)), " measured");
  }
  figures.Row({"sums of gradients", sums});
}

std::string LinksText(const report::Summary& summary) {
  const bool compared =
      std::any_of(summary.links.begin(), summary.links.end(), [](const auto& link) { return link.compared_messages > 0; });
  // Codecs and ratios are the plan's; where the run left them, that is said.
  const bool replaced = summary.compression && summary.compression->backoffs > 0;
  std::vector<std::string> titles = {"link", ">bytes", replaced ? "planned codec" : "codec", replaced ? ">planned ratio" : ">ratio",
                                     ">bandwidth"};
  if (compared) titles.insert(titles.end(), {">error", ">cosine"});
  TextTable links(std::move(titles));
  for (const report::LinkTotal& link : summary.links) {
    if (link.bytes == 0) continue;  // every pair of devices is connected; most say nothing
    std::vector<std::string> row = {absl::StrCat(link.src, " > ", link.dst), report::TrafficBytes(static_cast<double>(link.bytes)),
                                    link.codec, report::Ratio(link.ratio),
                                    link.bytes_per_s > 0 ? report::TrafficBytes(link.bytes_per_s) + "/s" : "-"};
    if (compared) {
      const bool known = link.compared_messages > 0;
      row.insert(row.end(), {known ? report::Percent(link.relative_error) : "-", known ? absl::StrFormat("%.3g", link.cosine) : "-"});
    }
    links.Row(std::move(row));
  }
  return links.ToString();
}

// A row for each rank: of several replicas one pipeline after the other, as the summary has them.
std::string StagesText(const report::Run& run) {
  const std::vector<report::StageTotal>& stages = run.summary->stages;
  const bool several = std::any_of(stages.begin(), stages.end(), [](const report::StageTotal& rank) { return rank.replica > 0; });
  std::vector<std::string> titles = {">stage", "device", ">busy", ">memory predicted", ">measured"};
  if (several) {
    titles.insert(titles.begin(), ">replica");
    titles.insert(titles.begin() + 3, ">micro-batches");
  }
  TextTable table(std::move(titles));
  for (const report::StageTotal& stage : stages) {
    std::vector<std::string> row = {absl::StrCat(stage.index), stage.device, report::Percent(stage.busy_ratio),
                                    report::MemoryBytes(static_cast<double>(stage.predicted_memory_bytes)),
                                    report::MemoryBytes(static_cast<double>(stage.peak_memory_bytes))};
    if (several) {
      const int64_t share = run.plan ? report::MicroBatchesOf(*run.plan, stage.replica) : 0;
      row.insert(row.begin(), absl::StrCat(stage.replica));
      row.insert(row.begin() + 3, share > 0 ? absl::StrFormat("%d of %d", share, run.plan->micro_batches) : "-");
    }
    table.Row(std::move(row));
  }
  return table.ToString();
}

std::string Loss(double loss) { return std::isfinite(loss) ? absl::StrFormat("%.4f", loss) : "-"; }

}  // namespace

std::string SummaryText(const report::Run& run, const std::string& outcome) {
  std::string text = absl::StrCat(run.job.empty() ? "run" : run.job, outcome.empty() ? "" : absl::StrCat(": ", outcome), "\n");
  if (!run.summary || run.summary->steps == 0) return text;
  const report::Summary& summary = *run.summary;
  TextTable figures({"", ""});
  for (const report::KeyFigure& figure : report::KeyFigures(run)) figures.Row({figure.name, report::InOneSentence(figure)});
  AddReplicas(run, figures);
  absl::StrAppend(&text, figures.ToString().substr(1));  // without the empty titles

  if (!summary.links.empty()) absl::StrAppend(&text, "\n", LinksText(summary));
  if (!summary.stages.empty()) absl::StrAppend(&text, "\n", StagesText(run));
  return text;
}

Comparison Compare(const std::vector<report::Run>& runs) {
  Comparison comparison;
  comparison.steps = std::numeric_limits<int64_t>::max();
  for (const report::Run& run : runs) comparison.steps = std::min(comparison.steps, run.steps.empty() ? 0 : run.steps.back().step);
  if (runs.empty()) comparison.steps = 0;
  if (!runs.empty()) comparison.unit = runs.front().unit;
  for (const report::Run& run : runs) {
    Comparison::Row row;
    row.title = run.title;
    if (run.summary) {
      row.predicted_step_s = run.summary->predicted_step_s;
      row.median_step_s = run.summary->median_step_s;
    }
    row.tokens_per_s = report::MedianTokensPerSecond(run);
    row.samples_per_s = report::MedianSamplesPerSecond(run);
    row.lost_devices = report::LostDevices(run);
    row.slow_link_bytes = report::BytesBetweenSites(run);
    if (report::OwnSteps(run) > 0 && report::KnowsSites(run))
      row.slow_link_step_bytes = static_cast<double>(report::BytesOfRun(run).training()) / report::StepsSent(run);
    row.loss = report::LossAt(run, comparison.steps).value_or(std::numeric_limits<double>::quiet_NaN());
    const double first = comparison.rows.empty() ? row.median_step_s : comparison.rows.front().median_step_s;
    row.speed_up = row.median_step_s > 0 ? first / row.median_step_s : 0;
    comparison.rows.push_back(std::move(row));
  }
  return comparison;
}

std::string ComparisonText(const Comparison& comparison) {
  TextTable table({"run", ">step predicted", ">measured", absl::StrCat(">", comparison.unit, "/s"), ">slow link, run", ">a step",
                   absl::StrCat(">loss after ", comparison.steps), ">speed-up"});
  for (const Comparison::Row& row : comparison.rows) {
    table.Row({row.lost_devices.empty() ? row.title : absl::StrCat(row.title, " *"), report::StepSeconds(row.predicted_step_s),
               report::StepSeconds(row.median_step_s), report::Count(row.tokens_per_s),
               report::TrafficBytes(static_cast<double>(row.slow_link_bytes)), report::TrafficBytes(row.slow_link_step_bytes),
               Loss(row.loss), row.speed_up > 0 ? absl::StrFormat("%.2fx", row.speed_up) : "-"});
  }
  std::string text = table.ToString();
  for (const Comparison::Row& row : comparison.rows) {
    for (const std::string& sentence : row.lost_devices) absl::StrAppend(&text, "\n* ", row.title, ": ", sentence);
  }
  return text;
}

std::string ComparisonJson(const Comparison& comparison, const std::string& report_path) {
  nlohmann::json document = {{"type", "demo"}, {"steps", comparison.steps}, {"rows", nlohmann::json::array()}, {"report", report_path}};
  for (const Comparison::Row& row : comparison.rows) {
    document["rows"].push_back({{"title", row.title},
                                {"predicted_step_seconds", row.predicted_step_s},
                                {"median_step_seconds", row.median_step_s},
                                {"tokens_per_second", row.tokens_per_s},
                                {"samples_per_second", row.samples_per_s},
                                {"slow_link_bytes", row.slow_link_bytes},
                                {"slow_link_bytes_per_step", row.slow_link_step_bytes},
                                {"loss", row.loss},
                                {"speed_up", row.speed_up},
                                {"lost_devices", row.lost_devices}});
  }
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace fusionllm::cli
