// fusionctl run JOB.yaml
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "cli/commands/job_arguments.h"
#include "cli/commands/option_checks.h"
#include "cli/commands/plan.h"
#include "cli/commands/remote_start.h"
#include "cli/commands/run_input.h"
#include "cli/run/local_executors.h"
#include "cli/run/resume_command.h"
#include "cli/run/run_folder.h"
#include "lib/base/exit_code.h"
#include "lib/base/object_uri.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/catalog.h"
#include "lib/daemon/program.h"
#include "lib/job/field_locations.h"
#include "lib/job/initial_model.h"
#include "lib/job/model_config.h"
#include "lib/job/parse.h"
#include "lib/job/training_defaults.h"
#include "lib/job/warnings.h"
#include "lib/kernels/devices.h"
#include "lib/planning/pin_check.h"
#include "lib/workload/found_checkpoint.h"
#include "lib/workload/workload.h"
#include "services/checkpoint_directory.h"

namespace fusionllm::cli {
namespace {

struct RunFlags {
  std::string job, topology, output, profiles, listen, metrics_address;
  std::vector<std::string> overrides, devices;  // each of `devices` a list
  double join_timeout_seconds = 0;
  int64_t log_every = 0;
  bool fresh = false, allow_nondeterminism = false, dry_run = false, no_checkpoint = false;
};

// Names in the job's pins, as far as it is known who will run it.
absl::Status CheckNames(const workload::Workload& workload, const RunJobOptions& options, const job::FieldLocations& places) {
  if (options.listen) return places.Located(planning::CheckPinnedOps(workload));
  std::vector<wire::DeviceProfile> devices;
  for (const LocalExecutor& executor : LocalExecutorsOf(options.topology, options.devices)) {
    devices.push_back({.name = executor.name, .site = executor.site, .memory_bytes = MachineMemoryBytes(), .spare = executor.spare});
  }
  return CheckPinsOf(workload, options.topology, devices, "this machine", places);
}

// Of the description that its sizes were taken from.
void TellOfStart(const job::Model& model) {
  const models::Family* const family = job::FamilyOf(model);
  if (!model.init.from.has_value() || family == nullptr || family->hugging_face_format() == nullptr) return;
  const absl::StatusOr<std::optional<job::InitialModel>> start =
      base::IsUri(*model.init.from) ? ReadRemoteStart(*model.init.from) : job::ReadInitialModel(*model.init.from);
  if (!start.ok() || !start->has_value()) return;
  for (const std::string& warning : (*start)->warnings) std::fprintf(stderr, "fusionctl: warning: %s\n", warning.c_str());
}

// The folder in which this run looks for its checkpoint. nullopt: it begins at step 0, or that is not known here (a checkpoint in an object
// store). A run without --output has a folder of its own.
std::optional<std::string> FolderToGoOnIn(const job::FusionJob& job, const RunFlags& flags) {
  const std::optional<job::Checkpoint>& checkpoint = job.spec.checkpoint;
  if (!checkpoint || flags.fresh || base::IsUri(checkpoint->resume)) return std::nullopt;
  const bool own_folder = flags.output.empty() && !std::filesystem::path(checkpoint->path).is_absolute();
  if (own_folder && checkpoint->resume == "auto") return std::nullopt;
  const std::string output = flags.output.empty() ? DefaultRunFolder(job.metadata.name) : flags.output;
  return services::CheckpointDirectory(checkpoint->path, std::filesystem::absolute(output).string());
}

// The checkpoint that the run would go on from, refused as its broker would refuse it.
absl::StatusOr<workload::CheckpointFound> CheckGoingOn(const RunJobOptions& options, const RunFlags& flags) {
  const std::optional<std::string> folder = FolderToGoOnIn(options.job, flags);
  if (!folder) return workload::CheckpointFound{};
  FUSIONLLM_ASSIGN_OR_RETURN(workload::CheckpointFound found,
                             base::AsBadInput(workload::PreviewCheckpoint(options.job, *folder, options.base)));
  FUSIONLLM_RETURN_IF_ERROR(workload::CheckCanStartFrom(found));
  return found;
}

// A checkpoint that spec.checkpoint.resume names and that is not there, in the words of CheckGoingOn. What it holds the broker reads.
absl::Status CheckNamedCheckpoint(const RunJobOptions& options) {
  const std::optional<job::Checkpoint>& checkpoint = options.job.spec.checkpoint;
  if (!checkpoint || options.fresh || checkpoint->resume == "auto" || checkpoint->resume == "never" || base::IsUri(checkpoint->resume)) {
    return absl::OkStatus();
  }
  std::error_code error;
  const std::string path = (std::filesystem::path(options.base) / checkpoint->resume).string();
  if (std::filesystem::exists(path, error) || error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("spec.checkpoint.resume: checkpoint ", path, " does not exist"));
}

// All that is checked before a run, and its plan; nothing is started, and no folder is made.
absl::StatusOr<int> DryRun(const RunFlags& flags, const RunJobOptions& options, const CheckedInput& input, const Globals& globals) {
  if (options.listen) {
    return absl::InvalidArgumentError("--dry-run and --listen cannot be combined: machines that are still to join cannot be planned for");
  }
  if (options.devices.size() > 1) {
    return absl::InvalidArgumentError(
        "--dry-run measures this machine as one device, and --device names several: only the run itself measures what lies between them. "
        "Describe them in a topology to plan for them");
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckRunJob(options));
  FUSIONLLM_ASSIGN_OR_RETURN(const workload::CheckpointFound start, CheckGoingOn(options, flags));
  PlanArguments plan;
  plan.job = {flags.job, flags.overrides};
  plan.topology = flags.topology;
  plan.profiles = flags.profiles;
  FUSIONLLM_ASSIGN_OR_RETURN(const int code, PrintPlanOf(plan, globals.format, /*as_run_line=*/true));
  for (const std::string& skipped : start.skipped) std::fprintf(stderr, "dry run: the checkpoint %s\n", skipped.c_str());
  if (!start.path.empty()) {
    std::fprintf(stderr, "dry run: it would go on from %s, after step %lld%s%s\n", start.path.c_str(), static_cast<long long>(start.step),
                 start.changed.empty() ? "" : ", with a job that has changed: ", start.changed.c_str());
  }
  if (code != kExitDone) return code;  // the refusal was written
  std::fprintf(stderr, "dry run: training: %s\n", job::TrainingSentence(options.job).c_str());
  if (!input.data.empty()) std::fprintf(stderr, "dry run: data: %s\n", input.data.c_str());
  std::fprintf(stderr, "dry run: job, model and data are in order and there is a plan; nothing was started\n");
  return code;
}

// What a user would type to start this run again: the folder comes behind.
std::vector<std::string> CommandOf(const RunFlags& flags, const Globals& globals) {
  std::vector<std::string> words = {program_invocation_name, "run", flags.job};
  const auto add = [&words](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--topology", flags.topology);
  for (const std::string& override_text : flags.overrides) add("--set", override_text);
  for (const std::string& device : flags.devices) add("--device", device);
  if (flags.allow_nondeterminism) words.emplace_back("--allow-nondeterminism");
  add("--profiles", flags.profiles);
  add("--listen", flags.listen);
  if (flags.join_timeout_seconds > 0) add("--join-timeout-seconds", absl::StrCat(flags.join_timeout_seconds));
  add("--metrics-address", flags.metrics_address);
  if (flags.log_every > 0) add("--log-every", absl::StrCat(flags.log_every));
  if (globals.format == OutputFormat::kJson) add("--format", "json");
  if (globals.log_level) add("--log-level", *globals.log_level);
  return words;
}

// docs/design/adr/0029: a model that took hours to train is not thrown away because its job does not say where it goes.
// Whether the job said nothing.
bool ChooseCheckpoint(const RunFlags& flags, job::FusionJob& job) {
  std::optional<job::Checkpoint>& checkpoint = job.spec.checkpoint;
  if (flags.no_checkpoint) {
    checkpoint.reset();
  } else if (!checkpoint) {
    checkpoint = job::Checkpoint{.every_steps = 0, .keep = 1};
    return true;
  }
  return false;
}

std::string BaseOf(const RunFlags& flags) { return std::filesystem::absolute(flags.job).lexically_normal().parent_path().string(); }

// The checkpoint that a run with a start goes on from, judged by manifests and file sizes alone; empty: there is none on this machine.
std::string CheckpointAtHand(job::FusionJob job, const RunFlags& flags) {
  ChooseCheckpoint(flags, job);
  const std::optional<std::string> folder = FolderToGoOnIn(job, flags);
  if (!folder || !job.spec.model.init.from || job.spec.checkpoint->resume == "never") return "";
  std::error_code error;
  if (const std::string& resume = job.spec.checkpoint->resume; resume != "auto") {
    const std::string path = (std::filesystem::path(BaseOf(flags)) / resume).string();
    return std::filesystem::exists(path, error) ? path : "";
  }
  const auto all = checkpoint::ListCheckpoints(*folder);
  if (!all.ok()) return "";
  const auto whole = std::find_if(all->begin(), all->end(), [](const auto& info) { return info.problem.empty(); });
  return whole == all->end() ? "" : whole->path;
}

// A run that goes on reads nothing of its start, which may be gone by now, or be another model's: what the job leaves out of its sizes is
// as its checkpoint, `goes_on_from`, has it.
absl::StatusOr<job::FusionJob> LoadJob(const RunFlags& flags, job::FieldLocations& places, std::string& goes_on_from) {
  absl::StatusOr<job::FusionJob> loaded = job::LoadFusionJob(flags.job, flags.overrides, &places, ReadRemoteStart);
  absl::StatusOr<job::FusionJob> without_start = loaded;
  if (!loaded.ok()) {  // perhaps for what its start says
    const absl::StatusOr<std::string> text = base::ReadSmallFile(flags.job, job::kMaxDocumentBytes);
    if (!text.ok()) return loaded;
    without_start = job::ParseFusionJob(*text, flags.job, flags.overrides);
    if (!without_start.ok()) return loaded;
    job::ResolvePaths(BaseOf(flags), *without_start);
  }
  goes_on_from = CheckpointAtHand(*without_start, flags);
  if (goes_on_from.empty()) return loaded;
  std::vector<std::string> overrides = flags.overrides;
  overrides.push_back(absl::StrCat("spec.model.init.from=", nlohmann::json(std::filesystem::absolute(goes_on_from).string()).dump()));
  job::FieldLocations of_checkpoint;
  absl::StatusOr<job::FusionJob> going_on = job::LoadFusionJob(flags.job, overrides, &of_checkpoint, ReadRemoteStart);
  if (!going_on.ok()) return loaded.ok() ? loaded : going_on;
  places = of_checkpoint;
  going_on->spec.model.init.from = without_start->spec.model.init.from;
  return going_on;
}

void TellUnfinishedRun(const RunJobOptions& options) {
  if (!options.output.empty() || options.fresh || options.format != OutputFormat::kText) return;
  const std::optional<UnfinishedRun> run = FindUnfinishedRun(options.job);
  if (!run) return;
  std::fprintf(stderr, "this is a new run; %s has one of the job %s that ended at step %lld of %lld, which goes on by\n  %s\n",
               run->folder.c_str(), options.job.metadata.name.c_str(), static_cast<long long>(run->step),
               static_cast<long long>(run->steps), ResumeCommand(options.command, options.job, run->folder).c_str());
}

absl::StatusOr<int> RunLoaded(RunJobOptions options, const job::FieldLocations& places, bool reads_start, const RunFlags& flags,
                              const Globals& globals) {
  const auto warn = [&](const std::string& warning) { std::fprintf(stderr, "fusionctl: warning: %s\n", places.Located(warning).c_str()); };
  options.kept_by_default = ChooseCheckpoint(flags, options.job);
  options.base = BaseOf(flags);
  FUSIONLLM_ASSIGN_OR_RETURN(CheckedInput input, CheckInput(options.job, options.base, reads_start));
  std::vector<std::string>& warnings = input.warnings;
  if (reads_start) TellOfStart(options.job.spec.model);
  for (const std::string& warning : input.of_start) warn(warning);
  for (const std::string& warning : job::Warnings(options.job)) warn(warning);
  if (!flags.topology.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(options.topology, job::LoadTopology(flags.topology));
    for (std::string& warning : job::Warnings(options.job, *options.topology)) warnings.push_back(std::move(warning));
  }
  for (const std::string& list : flags.devices) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> devices, ParseDeviceList(list));
    options.devices.insert(options.devices.end(), devices.begin(), devices.end());
  }
  if (!options.topology) {  // with one RunJob refuses any device
    for (const std::string& device : options.devices) FUSIONLLM_RETURN_IF_ERROR(kernels::ChooseDevice(device).status());
  }
  if (const std::string ignored = job::KubernetesOnlyWarning(options.job); !ignored.empty()) warnings.push_back(ignored);
  if (flags.dry_run) warnings.clear();  // who plans tells them
  for (const std::string& warning : warnings) warn(warning);
  options.allow_nondeterminism = flags.allow_nondeterminism;
  options.output = flags.output;
  options.fresh = flags.fresh;
  if (!flags.profiles.empty()) options.profiles = std::filesystem::absolute(flags.profiles).string();
  if (!flags.listen.empty()) options.listen = flags.listen;
  if (flags.join_timeout_seconds > 0) options.join_timeout_seconds = flags.join_timeout_seconds;
  if (!flags.metrics_address.empty()) options.metrics_address = flags.metrics_address;
  options.log_level = globals.log_level;
  options.format = globals.format;
  options.log_every = flags.log_every;
  FUSIONLLM_RETURN_IF_ERROR(CheckNames(*input.workload, options, places));
  FUSIONLLM_RETURN_IF_ERROR(CheckRunFolders(options));
  if (flags.dry_run) return DryRun(flags, options, input, globals);
  FUSIONLLM_RETURN_IF_ERROR(CheckNamedCheckpoint(options));
  options.command = CommandOf(flags, globals);
  TellUnfinishedRun(options);
  if (options.format == OutputFormat::kText) std::fprintf(stderr, "training: %s\n", job::TrainingSentence(options.job).c_str());
  SignalWatch signals;
  FUSIONLLM_ASSIGN_OR_RETURN(const RunJobResult result, RunJob(options, signals));
  return result.exit_code;
}

absl::StatusOr<int> Run(const RunFlags& flags, const Globals& globals) {
  RunJobOptions options;
  job::FieldLocations places;
  std::string goes_on_from;
  FUSIONLLM_ASSIGN_OR_RETURN(options.job, LoadJob(flags, places, goes_on_from));
  options.places = places;
  absl::StatusOr<int> code = RunLoaded(std::move(options), places, goes_on_from.empty(), flags, globals);
  return code.ok() ? code : places.Located(code.status());
}

}  // namespace

void AddRun(CLI::App& app, const Globals& globals, Action& action) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App* const command = app.add_subcommand("run", "Train a job: on this machine, on emulated sites, or with machines that join");
  command->add_option("JOB", flags->job, "job file")->required()->check(JobFile());
  command->add_option("--topology", flags->topology, "emulated sites, devices and links; without it one executor on this machine");
  command->add_option("--output", flags->output, "folder for all that the run leaves (default runs/NAME-TIMESTAMP)");
  command->add_flag("--fresh", flags->fresh, "ignore checkpoints that exist, and keep them");
  command->add_flag("--no-checkpoint", flags->no_checkpoint,
                    "keep nothing of the model; without it the last step is kept even if the job has no spec.checkpoint");
  command->add_flag("--dry-run", flags->dry_run, "check everything and show the plan, without training");
  command->add_option("--set", flags->overrides, kSetHelp)
      ->allow_extra_args(false);  // what follows its value is the job, not another value
  command->add_option("--profiles", flags->profiles, "saved calibration to plan with instead of measuring");
  command->add_option("--listen", flags->listen, "address for executors of other machines, which join by `fusionctl join`");
  command
      ->add_option(
          "--device", flags->devices,
          "what computes: cpu, cuda:N, or auto, the first CUDA device if there is one; several, separated by commas: an executor for "
          "each, in one site")
      ->allow_extra_args(false)
      ->check([](const std::string& text) { return std::string(ParseDeviceList(text).status().message()); });
  command->add_flag(
      "--allow-nondeterminism", flags->allow_nondeterminism,
      "on GPUs: the fastest algorithms by measurement, and fewer kernels; then bits differ from run to run and with the number "
      "of stages");
  command
      ->add_option("--log-every", flags->log_every,
                   "steps between lines of progress (default: on a terminal one line that is redrawn, elsewhere a line every few seconds)")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}));
  command->add_option("--metrics-address", flags->metrics_address,
                      "HOST:PORT where the broker serves /metrics, /healthz and /readyz (default: a free local port; off: none)");
  command->add_option("--join-timeout-seconds", flags->join_timeout_seconds, "how long to wait for executors")
      ->check(NumberAbove(0))
      ->check(CLI::Range(0.0, daemon::kMaxFlagSeconds));
  command->footer(
      "Example:\n  fusionctl run examples/jobs/gpt2-two-sites.yaml --topology examples/topologies/two-sites.yaml --set "
      "spec.training.steps=50\n"
      "  fusionctl run job.yaml --dry-run");
  command->callback([flags, &globals, &action] {
    action = [flags, &globals] {
      const absl::StatusOr<int> code = Run(*flags, globals);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace fusionllm::cli
