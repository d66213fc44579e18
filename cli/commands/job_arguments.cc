#include "cli/commands/job_arguments.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/option_checks.h"
#include "cli/commands/remote_start.h"
#include "cli/commands/run_input.h"
#include "cli/run/local_executors.h"
#include "lib/base/cpu_usage.h"
#include "lib/base/exit_code.h"
#include "lib/base/memory_limit.h"
#include "lib/base/object_uri.h"
#include "lib/base/output_file.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/job/model_config.h"
#include "lib/job/parse.h"
#include "lib/job/warnings.h"
#include "lib/models/families.h"
#include "lib/planning/calibrate.h"
#include "lib/planning/pin_check.h"
#include "lib/planning/plan_workload.h"
#include "lib/report/number_format.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/planner.h"
#include "lib/tensor/memory.h"

namespace fusionllm::cli {
namespace {

constexpr int64_t kMaxProfileBytes = int64_t{64} << 20;
constexpr char kLocalDevice[] = "local-0", kLocalSite[] = "local";  // of a machine without a topology

// A plan may be made where the parameters are not, but then their sizes are not known. Empty: they are there, or the error is written.
std::string MissingStart(const job::Model& model) {
  std::error_code error;
  const models::Family* const family = job::FamilyOf(model);
  if (family == nullptr || family->hugging_face_format() == nullptr || !model.init.from || base::IsUri(*model.init.from) ||
      std::filesystem::exists(*model.init.from, error)) {
    return "";
  }
  const std::vector<models::StoredSize>& sizes = family->hugging_face_format()->sizes;
  const auto known = [&](const models::StoredSize& size) { return !size.of_preset || (model.config.*size.value).has_value(); };
  if (model.preset || std::all_of(sizes.begin(), sizes.end(), known)) return "";
  return absl::StrCat("spec.model.init.from: ", *model.init.from, " does not exist, so what spec.model leaves out is planned as that of ",
                      family->facts().title, " ", family->facts().default_preset, ", whatever the start has");
}

std::vector<std::string> Planners() {
  std::vector<std::string> names;
  for (const absl::string_view name : scheduler::PlannerNames()) names.emplace_back(name);
  return names;
}

}  // namespace

void JobArguments::AddTo(CLI::App& command) {
  command.add_option("JOB", job, "job file")->required()->check(JobFile());
  command.add_option("--set", overrides, kSetHelp)->allow_extra_args(false);
}

absl::StatusOr<std::unique_ptr<workload::Workload>> JobArguments::Resolve(job::FieldLocations* places) const {
  job::FieldLocations found;
  FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob loaded, job::LoadFusionJob(job, overrides, &found, ReadRemoteStart));
  absl::StatusOr<std::unique_ptr<workload::Workload>> workload = workload::Resolve(loaded, "");  // loaded paths are absolute
  if (!workload.ok()) return found.Located(workload.status());
  if (places != nullptr) *places = std::move(found);
  return workload;
}

void PlanArguments::AddTo(CLI::App& command) {
  job.AddTo(command);
  command.add_option("--topology", topology, "emulated sites, devices and links; without it one executor on this machine");
  command.add_option("--profiles", profiles, "saved calibration (fusionctl bench --calibrate) to plan with instead of measuring");
  command.add_option("--strategy", strategy, "planner, instead of the job's")->check(OneOf(Planners()));
  command
      .add_option("--arithmetic", arithmetic,
                  "of the tensor cores of devices that have a profile in the topology; without it what spec.training.precision asks for")
      ->check(OneOf({"fp32", "tf32", "bf16"}));
  command.add_option("--seed", seed, "seed of the search; the same inputs and seed give the same plan")
      ->check(WholeNumber())
      ->capture_default_str();
  command.add_option("--effort", effort, "quick: a good plan at once; full: a polished one, in up to ten times as long")
      ->check(OneOf({"quick", "full"}))
      ->capture_default_str();
}

std::string ArithmeticPhrase(const plan::Plan& plan) {
  std::map<std::string, std::vector<std::string>> gpus;  // by arithmetic
  for (size_t i = 0; i < plan.arithmetic.size(); ++i) gpus[plan.arithmetic[i]].push_back(plan.specifications[i]);
  gpus.erase("");  // of a profile that does not say it
  std::vector<std::string> parts;
  for (const auto& [arithmetic, names] : gpus) {
    parts.push_back(absl::StrCat(arithmetic, arithmetic == "fp32" ? " (no tensor cores)" : " (tensor cores)"));
    if (gpus.size() > 1) absl::StrAppend(&parts.back(), " on ", absl::StrJoin(names, ", "));
  }
  return parts.empty() ? "" : absl::StrCat(" with arithmetic ", absl::StrJoin(parts, ", "));
}

std::string SpecificationNote(const plan::Plan& plan) {
  if (plan.specified_share <= 0) return "";
  return absl::StrFormat(
      "predicted from public specifications, not measured (%s): compute times may be off by %s either way. Messages between devices of "
      "a site and sums of replicas take the topology's rates (`internal`, 10Gbit where it is left out); between cards of one machine such "
      "sums go by NCCL, far faster: docs/tasks/plan-for-hardware-you-do-not-have.md says what to put\n",
      absl::StrJoin(plan.specifications, ", "), report::Percent(plan.fitted_relative_error));
}

absl::Status WriteTextFile(const std::string& path, absl::string_view text) { return base::AsBadInput(base::ReplaceFile(path, text)); }

int64_t MachineMemoryBytes() { return base::AllowedMemoryBytes(); }
int MachineCores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

std::optional<plan::PlanError> PlanErrorOf(const absl::Status& measured) {
  if (!tensor::IsOutOfMemory(measured)) return std::nullopt;
  return plan::PlanError{.reason = scheduler::plan_errors::kInsufficientMemory, .message = std::string(measured.message())};
}

absl::StatusOr<std::vector<wire::DeviceProfile>> MeasureMachine(const workload::Workload& workload,
                                                                const std::optional<job::Topology>& topology) {
  const job::Spec& spec = workload.job.spec;
  struct Wanted {
    std::string name, site;
    int threads;
  };
  std::vector<Wanted> wanted;
  const int job_threads = static_cast<int>(spec.executors.threads);
  if (topology.has_value()) {
    for (const job::Site& site : topology->spec.sites) {
      for (const job::Device& device : site.devices) {
        if (!device.profile.has_value()) wanted.push_back({device.name, site.name, static_cast<int>(device.threads)});
      }
    }
  } else {
    wanted.push_back({kLocalDevice, kLocalSite, job_threads > 0 ? job_threads : MachineCores()});
  }
  // A plan may be made where the data is not.
  absl::StatusOr<std::unique_ptr<workload::DatasetSource>> data = workload::DatasetSource::Open(workload);
  const base::CpuUsageMeter meter;
  std::map<int, wire::DeviceProfile> by_threads;
  std::vector<wire::DeviceProfile> profiles;
  for (const Wanted& device : wanted) {
    if (!by_threads.contains(device.threads)) {
      std::fprintf(stderr, "measuring this machine with %d thread%s ...\n", device.threads, device.threads == 1 ? "" : "s");
      FUSIONLLM_ASSIGN_OR_RETURN(const auto backend,
                                 kernels::CreateBackend(job::ToString(spec.strategy.backend), {.threads = device.threads}));
      planning::CalibrationOptions options{.threads = device.threads, .data = data.ok() ? data->get() : nullptr};
      if (topology.has_value()) options = planning::ForEmulatedDevices(std::move(options));
      FUSIONLLM_ASSIGN_OR_RETURN(by_threads[device.threads], planning::Calibrate(workload, *backend, options));
    }
    wire::DeviceProfile profile = by_threads[device.threads];
    profile.name = device.name;
    profile.site = device.site;
    profile.memory_bytes = MachineMemoryBytes();
    profiles.push_back(std::move(profile));
  }
  if (const auto use = meter.Read(); use && !by_threads.empty() && base::IsBusy(*use, WantedCores(topology, job_threads, {"cpu"})))
    std::fprintf(stderr, "fusionctl: warning: %s\n", base::BusySentence(*use).c_str());
  return profiles;
}

absl::Status CheckPinsOf(const workload::Workload& workload, const std::optional<job::Topology>& topology,
                         const std::vector<wire::DeviceProfile>& devices, absl::string_view place_of_devices,
                         const job::FieldLocations& places) {
  const planning::Hardware hardware{.measured = {.devices = devices}, .topology = topology, .machine_memory_bytes = MachineMemoryBytes()};
  return places.Located(
      planning::CheckPins(workload, hardware, topology ? absl::StrCat("topology ", topology->metadata.name) : place_of_devices));
}

absl::StatusOr<planning::Hardware> PlanArguments::ReadHardware(const workload::Workload& workload,
                                                               const job::FieldLocations& places) const {
  const auto warn = [&](const std::string& warning) {
    if (!warning.empty()) std::fprintf(stderr, "fusionctl: warning: %s\n", places.Located(warning).c_str());
  };
  warn(job::KubernetesOnlyWarning(workload.job));
  warn(MissingStart(workload.job.spec.model));
  for (const std::string& warning : ModelWarnings(workload)) warn(warning);
  // What is wrong with the data is the business of a run: a plan may be made where they are not.
  if (const auto data = workload::DatasetSource::Open(workload); data.ok()) {
    for (const std::string& warning : (*data)->Warnings()) warn(warning);
  }
  planning::Hardware hardware{.machine_memory_bytes = MachineMemoryBytes(), .arithmetic = estimator::ArithmeticNamed(arithmetic)};
  if (!topology.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(hardware.topology, job::LoadTopology(topology));
    for (const std::string& warning : job::Warnings(workload.job, *hardware.topology)) warn(warning);
  }
  if (!profiles.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, base::AsBadInput(base::ReadSmallInput(profiles, kMaxProfileBytes)));
    absl::StatusOr<wire::ProfilesDocument> parsed = wire::ParseProfiles(text);
    if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat(profiles, ": ", std::string(parsed.status().message())));
    hardware.measured = *std::move(parsed);
  }
  const std::vector<wire::DeviceProfile> here = {{.name = kLocalDevice, .site = kLocalSite, .memory_bytes = MachineMemoryBytes()}};
  FUSIONLLM_RETURN_IF_ERROR(CheckPinsOf(workload, hardware.topology, profiles.empty() ? here : hardware.measured.devices,
                                        profiles.empty() ? "this machine" : profiles, places));
  if (profiles.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(hardware.measured.devices, MeasureMachine(workload, hardware.topology));
  }
  return hardware;
}

planning::PlanOptions PlanArguments::Options() const {
  return {.strategy = strategy,
          .seed = seed,
          .search_budget = effort == "quick" ? scheduler::kQuickSearchBudget : scheduler::kFullSearchBudget,
          .explain = explain};
}

void PlanArguments::PrintPlanError(const job::Spec& spec, const plan::PlanError& refusal, bool starts_executors) const {
  std::string advice;
  std::optional<job::Topology> read;
  if (!topology.empty()) {
    absl::StatusOr<job::Topology> loaded = job::LoadTopology(topology);
    if (loaded.ok()) read = *std::move(loaded);
  }
  // The devices of saved calibration are not those that this machine would start.
  if (starts_executors || profiles.empty() || read.has_value()) advice = AdviceSuffix(refusal.reason, spec, read, {}, starts_executors);
  absl::FPrintF(stderr, "fusionctl: no plan (%s): %s%s\n", refusal.reason, refusal.message, advice);
}

absl::StatusOr<plan::PlanResult> PlanArguments::Plan(const workload::Workload& workload, const job::FieldLocations& places) const {
  const absl::StatusOr<planning::Hardware> hardware = ReadHardware(workload, places);
  if (auto refusal = PlanErrorOf(hardware.status())) return *std::move(refusal);
  FUSIONLLM_RETURN_IF_ERROR(hardware.status());
  FUSIONLLM_ASSIGN_OR_RETURN(const planning::Profiles resolved, planning::ProfilesOf(*hardware, workload.job.spec.training.precision));
  planning::PlanOptions options = Options();
  options.alternatives = true;
  return planning::PlanWorkload(workload, resolved, options);
}

}  // namespace fusionllm::cli
