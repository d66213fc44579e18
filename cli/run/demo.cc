#include "cli/run/demo.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/run/run_folder.h"
#include "cli/run/summary_text.h"
#include "lib/base/exit_code.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/job/parse.h"
#include "lib/report/report.h"

namespace fusionllm::cli {
namespace {

constexpr char kIntroduction[] =
    "The same small GPT-2, trained on this repository's own text by the same emulated devices in two sites, three times. The naive run "
    "gives "
    "every device the same number of operators and sends everything uncompressed; the others let the planner cut and place, and compress "
    "what crosses a slow link. All made the same number of steps on the same batches.";

std::string FindSource(const std::string& program_folder) {
  return (std::filesystem::path(program_folder) / ".." / "..").lexically_normal().string();
}

int64_t UsableDevices(const job::Topology& topology) {
  int64_t devices = 0;
  for (const job::Site& site : topology.spec.sites) {
    devices += std::count_if(site.devices.begin(), site.devices.end(),
                             [](const job::Device& device) { return device.role == job::Role::kExecutor; });
  }
  return devices;
}

// The best row may look as if compression were of no use.
std::string WhyNothingCrosses(const Comparison& comparison) {
  if (comparison.rows.empty() || comparison.rows.back().slow_link_bytes > 0) return "";
  return absl::StrCat(
      "free to choose, the planner took the devices of one site, so nothing crosses the slow link: for a model this small the ",
      "others would save less time than the crossing costs. The row before shows what compression does where they are needed.\n");
}

}  // namespace

std::vector<DemoRow> DemoRows(const job::FusionJob& job, int64_t devices) {
  std::vector<DemoRow> rows = {{"naive", "naive (equal ops, uncompressed)", job},
                               {"op-fence-all", absl::StrCat("op-fence on all ", devices, " + adatopk"), job},
                               {"op-fence", "op-fence free to choose + adatopk", job}};
  job::Spec& naive = rows[0].job.spec;
  naive.strategy.planner = job::Planner::kEqualOps;
  naive.strategy.stages = devices;
  naive.compression = {};
  for (const size_t row : {size_t{1}, size_t{2}}) {
    job::Spec& spec = rows[row].job.spec;
    spec.strategy.planner = job::Planner::kOpFence;
    spec.strategy.stages = row == 1 ? devices : 0;
    spec.compression.policy = job::CompressionPolicy::kAdatopk;
    spec.compression.codec = {};
  }
  return rows;
}

absl::StatusOr<int> RunDemo(const DemoOptions& options, SignalWatch& signals) {
  std::string source = options.source;
  if (source.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string program_folder, ProgramFolder());
    source = FindSource(program_folder);
  }
  const std::string job_path = source + "/examples/jobs/demo.yaml";
  if (!std::filesystem::exists(job_path)) {
    return absl::NotFoundError(absl::StrCat(job_path, " is not there; name the folder of the source code with --source"));
  }
  std::vector<std::string> overrides;
  if (options.steps) overrides.push_back(absl::StrCat("spec.training.steps=", *options.steps));
  FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob job, job::LoadFusionJob(job_path, overrides));
  FUSIONLLM_ASSIGN_OR_RETURN(const job::Topology topology, job::LoadTopology(source + "/examples/topologies/demo.yaml"));
  FUSIONLLM_ASSIGN_OR_RETURN(const RunFolder folder, RunFolder::Open(options.output.empty() ? DefaultRunFolder("demo") : options.output));

  std::vector<DemoRow> rows = DemoRows(job, UsableDevices(topology));
  report::Report whole = {"FusionLLM demo: training over a slow link", kIntroduction, DescribeMachine(), {}};
  int64_t steps = job.spec.training.steps;
  for (size_t i = 0; i < rows.size(); ++i) {
    RunJobOptions run;
    run.job = std::move(rows[i].job);
    run.job.spec.training.steps = steps;
    run.topology = topology;
    run.output = folder / rows[i].folder;
    run.title = rows[i].title;
    run.fresh = true;  // a row of an earlier demo in this folder is no part of this one
    run.format = options.format;
    run.log_level = options.log_level;
    run.tag = rows[i].folder;
    run.print_summary = false;
    run.bin_folder = options.bin_folder;
    if (i == 0) run.stop_after_s = options.seconds;
    // What the first row measured.
    if (const std::string measured = folder / (rows[0].folder + "/profiles.json"); i > 0 && std::filesystem::exists(measured)) {
      run.profiles = measured;
    }
    if (options.format == OutputFormat::kText)
      absl::FPrintF(stderr, "\nrun %d of %d, %s, %s\n", i + 1, rows.size(), run.title, base::Pluralize(steps, "step"));
    FUSIONLLM_ASSIGN_OR_RETURN(RunJobResult result, RunJob(run, signals));
    if (result.exit_code != kExitDone) return result.exit_code;
    if (i == 0 && !result.run.steps.empty()) steps = result.run.steps.back().step;
    whole.runs.push_back(std::move(result.run));
  }

  const std::string report_path = folder / "report.html";
  FUSIONLLM_RETURN_IF_ERROR(base::AsDataLossInRun(folder.WriteFile("report.html", report::ToHtml(whole))));
  const Comparison comparison = Compare(whole.runs);
  if (options.format == OutputFormat::kJson) {
    absl::PrintF("%s\n", ComparisonJson(comparison, report_path));
  } else {
    absl::FPrintF(stderr, "\n");
    absl::PrintF("%s\n%sreport: %s\n", ComparisonText(comparison), WhyNothingCrosses(comparison), report_path);
  }
  return std::fflush(stdout) == 0 ? kExitDone : kExitFailed;
}

}  // namespace fusionllm::cli
