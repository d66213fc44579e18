// fusionctl bench [JOB]
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/command.h"
#include "cli/commands/emulated_links.h"
#include "cli/commands/job_arguments.h"
#include "cli/commands/option_checks.h"
#include "cli/run/text_table.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/compression/registry.h"
#include "lib/estimator/gpu_specs.h"
#include "lib/estimator/graph_cost.h"
#include "lib/job/parse.h"
#include "lib/report/number_format.h"

namespace fusionllm::cli {
namespace {

struct BenchFlags {
  JobArguments job;
  std::string topology, output;
  bool calibrate = false, list_profiles = false;
};

// What is measured when no job is named: a GPT-2 of four layers, small enough for any machine.
constexpr char kBuiltInJob[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: bench}\n"
    "spec:\n  model: {family: gpt2, preset: tiny, config: {nLayer: 4, nHead: 6, nEmbd: 384, vocabSize: 256}}\n"
    "  data: {kind: tokens, path: [none.bin]}\n"
    "  training: {steps: 1, globalBatchSize: 4, microBatchSize: 4, sequenceLength: 256}\n";

absl::StatusOr<std::unique_ptr<workload::Workload>> Resolve(const JobArguments& arguments) {
  if (!arguments.job.empty()) return arguments.Resolve();
  FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob job, job::ParseFusionJob(kBuiltInJob, "built-in job", arguments.overrides));
  return workload::Resolve(job, "");
}

struct OpRow {
  std::string signature;
  wire::OpProfile profile;
  int count = 0;  // ops of the graph like this
};

// Dearest first: what a micro-batch spends its time on.
std::vector<OpRow> Rows(const workload::Workload& workload, const wire::DeviceProfile& profile) {
  std::map<std::string, int> counts;
  for (const opdag::Op& op : workload.training.graph.ops()) ++counts[estimator::OpSignature(workload.training.graph, op)];
  std::vector<OpRow> rows;
  for (const auto& [signature, op] : profile.ops) rows.push_back({signature, op, counts[signature]});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const OpRow& a, const OpRow& b) { return a.count * a.profile.seconds > b.count * b.profile.seconds; });
  return rows;
}

// "12.3 +-8%": a rate as what it is the inverse of, and its 95 % interval as a share; "-" where the rate plays no part.
std::string RateText(double seconds, const std::optional<double>& half_width) {
  if (seconds <= 0) return "-";
  const bool is_measured = half_width.has_value() && *half_width < seconds;
  const std::string certain = is_measured ? absl::StrFormat(" +-%.0f%%", 100 * *half_width / seconds) : " ?";
  return absl::StrFormat("%.2f", 1e-9 / seconds) + certain;
}

// What ops that were not measured are priced by.
void PrintClasses(const wire::DeviceProfile& profile) {
  TextTable table({"class", ">samples", ">overhead", ">GFLOP/s", ">GB/s", ">off by"});
  for (const auto& [name, rate] : profile.rates) {
    const std::string certain = rate.overhead_ci95_s.has_value() ? absl::StrFormat(" +-%.1f us", 1e6 * *rate.overhead_ci95_s) : " ?";
    table.Row({name, absl::StrCat(rate.samples), absl::StrFormat("%.1f", 1e6 * rate.overhead_s) + certain,
               RateText(rate.seconds_per_flop, rate.seconds_per_flop_ci95), RateText(rate.seconds_per_byte, rate.seconds_per_byte_ci95),
               report::Percent(rate.relative_error)});
  }
  absl::PrintF("\nother ops, by class: overhead + FLOPs / rate + bytes / rate, with 95%% intervals (?: the samples cannot tell)\n\n%s",
               table.ToString());
}

void PrintRates(const workload::Workload& workload, const wire::DeviceProfile& profile) {
  TextTable table({">times", ">each", ">share", ">GFLOP/s", ">GB/s", "op"});
  double total = 0;
  const std::vector<OpRow> rows = Rows(workload, profile);
  for (const OpRow& row : rows) total += row.count * row.profile.seconds;
  for (const OpRow& row : rows) {
    const double seconds = row.profile.seconds;
    table.Row({absl::StrCat(row.count), report::StepSeconds(seconds), report::Percent(row.count * seconds / total),
               absl::StrFormat("%.1f", row.profile.flops / seconds * 1e-9), absl::StrFormat("%.1f", row.profile.bytes / seconds * 1e-9),
               row.signature});
  }
  absl::PrintF("%s with %d thread(s); a micro-batch of %d, forward and backward: %s\n\n%s", profile.backend, profile.threads,
               workload.micro_batch_size, report::StepSeconds(total), table.ToString());
  PrintClasses(profile);
  absl::PrintF("\noptimizer: %.2f ns an element\n", profile.update_seconds_per_element * 1e9);
  for (const auto& [name, codec] : profile.codecs) {
    constexpr double kRatio = 20;  // of those that select
    const compression::Codec* const known = compression::FindCodec(name);
    const bool selects = known != nullptr && known->dense() == nullptr;
    const double encode_s = codec.encode_seconds + codec.encode_kept_seconds / kRatio;
    const double decode_s = codec.decode_seconds + codec.decode_kept_seconds / kRatio;
    absl::PrintF("codec %s: %.2f GB/s in, %.2f GB/s out of dense values, %.1f us to encode, %.1f us to decode a message\n",
                 selects ? absl::StrCat(name, "@", kRatio) : name, 4e-9 / encode_s, 4e-9 / decode_s, 1e6 * codec.encode_message_seconds,
                 1e6 * codec.decode_message_seconds);
  }
}

nlohmann::json PeakJson(double flops) { return flops > 0 ? nlohmann::json(flops) : nlohmann::json(); }
std::string PeakText(double flops) { return flops > 0 ? absl::StrFormat("%.1f", flops * 1e-12) : "-"; }

int ListProfiles(OutputFormat format) {
  if (format == OutputFormat::kJson) {
    nlohmann::json profiles = nlohmann::json::array();
    for (const estimator::GpuSpec& gpu : estimator::GpuSpecs()) {
      profiles.push_back({{"name", std::string(gpu.name)},
                          {"memory_bytes", gpu.memory_bytes},
                          {"memory_bytes_per_second", gpu.memory_bytes_per_s},
                          {"fp32_flops", PeakJson(gpu.fp32_flops)},
                          {"tf32_flops", PeakJson(gpu.tf32_flops)},
                          {"bf16_flops", PeakJson(gpu.bf16_flops)},
                          {"source", std::string(gpu.source)}});
    }
    absl::PrintF("%s\n", nlohmann::json{{"measured", false}, {"profiles", std::move(profiles)}}.dump());
    return kExitDone;
  }
  TextTable table({"profile", ">memory GB", ">GB/s", ">fp32 TFLOP/s", ">tf32", ">bf16", "source"});
  for (const estimator::GpuSpec& gpu : estimator::GpuSpecs()) {
    table.Row({std::string(gpu.name), absl::StrCat(gpu.memory_bytes / 1'000'000'000),
               absl::StrFormat("%.0f", gpu.memory_bytes_per_s * 1e-9), PeakText(gpu.fp32_flops), PeakText(gpu.tf32_flops),
               PeakText(gpu.bf16_flops), std::string(gpu.source)});
  }
  absl::PrintF(
      "%s\nfrom public specifications, not measured. Assumed of the peaks: matrix products %.0f%%, attention %.0f%%, other arithmetic "
      "%.0f%%, "
      "memory %.0f%%;\nan op takes at least %.0f us. In a topology: devices: [{name: a-0, profile: nvidia-l4}]\n",
      table.ToString(), 100 * estimator::kMatmulShare, 100 * estimator::kAttentionShare, 100 * estimator::kOtherArithmeticShare,
      100 * estimator::kBandwidthShare, 1e6 * estimator::kLaunchSeconds);
  return kExitDone;
}

absl::StatusOr<int> Bench(const BenchFlags& flags, OutputFormat format) {
  if (flags.list_profiles) return ListProfiles(format);
  FUSIONLLM_ASSIGN_OR_RETURN(const auto workload, Resolve(flags.job));
  std::optional<job::Topology> topology;
  if (!flags.topology.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(topology, job::LoadTopology(flags.topology));
  }
  wire::ProfilesDocument document;
  absl::StatusOr<std::vector<wire::DeviceProfile>> measured = MeasureMachine(*workload, topology);
  if (PlanErrorOf(measured.status())) {
    absl::FPrintF(stderr, "fusionctl: %s\n", measured.status().message());
    return kExitInfeasible;
  }
  FUSIONLLM_ASSIGN_OR_RETURN(document.devices, std::move(measured));
  if (document.devices.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(flags.topology, ": every device has a profile: there is nothing to measure"));
  }
  if (flags.calibrate && topology.has_value()) {
    std::vector<std::string> devices;
    for (const wire::DeviceProfile& device : document.devices) devices.push_back(device.name);
    if (devices.size() <= kMaxLinkedDevices) {
      FUSIONLLM_ASSIGN_OR_RETURN(document.links, MeasureEmulatedLinks(*topology, devices));
    } else {
      absl::FPrintF(stderr, "fusionctl: more than %d devices: their links are left out; plan with --topology\n", kMaxLinkedDevices);
    }
  }
  const std::string text = wire::PrintProfiles(document);
  if (flags.calibrate) FUSIONLLM_RETURN_IF_ERROR(WriteTextFile(flags.output, text + "\n"));
  if (format == OutputFormat::kJson) {
    absl::PrintF("%s\n", text);
  } else if (flags.calibrate) {
    absl::PrintF("%s: times of %s on %s, %s; use them with --profiles\n", flags.output,
                 base::Pluralize(static_cast<int64_t>(document.devices[0].ops.size()), "op"),
                 base::Pluralize(static_cast<int64_t>(document.devices.size()), "device"),
                 base::Pluralize(static_cast<int64_t>(document.links.size()), "link"));
  } else {
    PrintRates(*workload, document.devices[0]);
  }
  return kExitDone;
}

}  // namespace

void AddBench(CLI::App& app, const Globals& globals, Action& action) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* const command = app.add_subcommand("bench", "Measure how fast this machine runs the ops of a job");
  command->add_option("JOB", flags->job.job, "job file (default: a small GPT-2)")->check(JobFile());
  command->add_option("--set", flags->job.overrides, kSetHelp)->allow_extra_args(false);
  command->add_option("--topology", flags->topology, "measure once for each number of threads that its devices have");
  command->add_flag("--calibrate", flags->calibrate, "save what was measured, for --profiles");
  command->add_flag("--list-profiles", flags->list_profiles, "list the GPUs that a topology may name, with their sources, and end");
  CLI::Option* const output =
      command->add_option("-o,--output", flags->output, "with --calibrate: file to save to")->default_val("profiles.json");
  command->footer(
      "Example:\n  fusionctl bench examples/jobs/gpt2-tiny.yaml --calibrate -o profiles.json\n  fusionctl bench --list-profiles");
  command->callback([flags, output, &globals, &action] {
    if (output->count() > 0 && !flags->calibrate) throw CLI::ValidationError("--output", "is not read without --calibrate");
    action = [flags, &globals] {
      const absl::StatusOr<int> code = Bench(*flags, globals.format);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace fusionllm::cli
