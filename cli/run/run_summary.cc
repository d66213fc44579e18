#include "cli/run/run_summary.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/statusor.h"
#include "cli/run/run_recorder.h"
#include "lib/base/json_text.h"
#include "lib/job/parse.h"
#include "lib/opdag/accounting.h"
#include "lib/opdag/graph.h"
#include "lib/report/key_figures.h"
#include "lib/report/loss_figures.h"
#include "lib/report/slow_step.h"
#include "lib/workload/workload.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;

int64_t TrainedParameters(const job::FusionJob& job) {
  const absl::StatusOr<opdag::Graph> graph = workload::BuildForwardGraph(job, "/");  // a resolved job has absolute paths
  return graph.ok() ? opdag::FootprintOf(*graph).parameters : 0;
}

json Parse(absl::string_view line) { return base::ParseJson(line); }

}  // namespace

void DescribeJob(const job::FusionJob& job, report::Run& run) {
  const job::Spec& spec = job.spec;
  const bool text = spec.data.kind == job::DataKind::kText || spec.data.kind == job::DataKind::kTokens;
  run.job = job.metadata.name;
  run.unit = text ? "tokens" : "images";
  run.total_steps = spec.training.steps;
  run.targets_per_step = spec.training.global_batch_size * (text ? spec.training.sequence_length : 1);
  run.parameters = TrainedParameters(job);
  run.job_text = job::ToYaml(job);
}

EarlierRecord ReadEarlierRecord(const std::string& events_path) {
  EarlierRecord earlier;
  std::ifstream file(events_path);
  RunRecorder recorder(&earlier.run);
  for (std::string line; std::getline(file, line);) {
    const absl::StatusOr<LineType> type = recorder.Add(line);
    if (type.ok() && *type == LineType::kSummary && earlier.run.summary->steps > 0) earlier.summary = line;
  }
  earlier.run.summary.reset();
  if (!earlier.summary.empty()) (void)recorder.Add(earlier.summary);
  return earlier;
}

bool MergeEarlierRecord(const EarlierRecord& earlier, report::Run& run) {
  if (earlier.run.steps.empty()) return false;
  if (earlier.run.plan) run.plan = earlier.run.plan;
  // Steps that earlier starts made: the figures of the newest summary are of the last of them.
  const json summary = Parse(earlier.summary);
  const auto found = summary.is_object() ? summary.find("steps_made") : summary.end();
  const int64_t made = summary.is_object() && found != summary.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
  const auto all = static_cast<int64_t>(run.steps.size());
  run.steps_made = made > 0 ? made : all;
  run.of_earlier_start = true;
  run.earlier_steps = static_cast<size_t>(all - std::min(all, run.steps_made));
  run.summary = earlier.run.summary;
  if (!run.summary) run.summary.emplace();  // none of them came to an end
  run.summary->steps = run.steps.back().step;
  run.summary->final_loss = run.steps.back().loss;
  if (!(run.summary->median_step_s > 0)) run.summary->median_step_s = report::MedianStepSeconds(run);
  return true;
}

std::string CompleteSummary(absl::string_view line, const report::Run& run, const std::string& report_path,
                            const EarlierRecord* already_done) {
  json summary = Parse(line);
  if (!summary.is_object()) return std::string(line);
  if (already_done != nullptr) {
    if (const json before = Parse(already_done->summary); before.is_object()) summary.update(before);
    summary["already_done"] = true;
    summary["steps"] = run.summary ? run.summary->steps : run.total_steps;
    if (run.summary) {
      summary["final_loss"] = run.summary->final_loss;
      summary["median_step_seconds"] = run.summary->median_step_s;
    }
  }
  const auto add = [&](const char* key, json value) {
    if (!summary.contains(key)) summary[key] = std::move(value);
  };
  if (!run.started.empty()) summary["started"] = run.started;
  if (run.elapsed_s > 0) summary["elapsed_seconds"] = run.elapsed_s;
  if (run.parameters > 0) add("parameters", run.parameters);
  if (const auto mean = report::MeanOfLastSteps(run); mean.has_value()) {
    add("mean_loss", *mean);
    add("mean_loss_steps", report::MeanSteps(run));
  }
  if (!run.evaluations.empty()) {
    const report::EvaluationPoint& newest = run.evaluations.back();
    add("validation_loss", newest.loss);
    add("validation_step", newest.step);
    add("validation_accuracy", newest.accuracy.has_value() ? json(*newest.accuracy) : json());
  }
  if (report::OwnSteps(run) > 0) {
    add("steps_made", run.steps_made);
    add("training_seconds", report::TrainingSeconds(run));
    add("tokens_per_second", report::MedianTokensPerSecond(run));
    add("samples_per_second", report::MedianSamplesPerSecond(run));
  }
  if (run.summary) {
    if (report::KnowsSites(run)) add("bytes_between_sites", report::BytesBetweenSites(run));
    int64_t evaluation_bytes = 0;
    for (const report::LinkTotal& link : run.summary->links) evaluation_bytes += link.evaluation_bytes.value_or(0);
    if (report::BytesOfRun(run).evaluation_known) add("evaluation_bytes", evaluation_bytes);
  }
  if (run.processors) {
    add("cores", run.processors->cores);
    add("cores_of_other_programs", run.processors->others);
  }
  if (const std::string why = report::SlowStepSentence(run); !why.empty()) add("slower_than_planned", why);
  if (run.plan && !run.plan->bottleneck.empty()) add("bottleneck", run.plan->bottleneck);
  if (run.plan && report::Compresses(*run.plan)) add("loss_cost", run.plan->loss_cost);
  summary["report"] = report_path;
  return summary.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace fusionllm::cli
