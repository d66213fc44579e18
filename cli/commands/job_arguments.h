// What several commands take: a job with overrides, and what is needed to plan it.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/job/field_locations.h"
#include "lib/job/topology.h"
#include "lib/plan/plan.h"
#include "lib/planning/request.h"
#include "lib/planning/what_if.h"
#include "lib/workload/workload.h"

namespace fusionllm::cli {

// What `--set` says of itself, in every command that has it.
inline constexpr char kSetHelp[] =
    "another value for a field of the job, such as spec.training.steps=50 (repeatable); paths of data and models are relative to the job "
    "file";

struct JobArguments {
  std::string job;
  std::vector<std::string> overrides;

  void AddTo(CLI::App& command);
  // `places` (may be null) gets where the fields of the job stand. Errors: those of the file and of the model, with the place of the
  // field.
  absl::StatusOr<std::unique_ptr<workload::Workload>> Resolve(job::FieldLocations* places = nullptr) const;
};

struct PlanArguments {
  JobArguments job;
  std::string topology, profiles, strategy;
  std::string arithmetic;  // of devices with a profile in the topology; empty: follows the precision
  uint64_t seed = 0;
  std::string effort = "full";
  bool explain = false;

  void AddTo(CLI::App& command);
  // The topology and the profiles; without these measures this machine, which takes seconds and says so on stderr. Names in the job that
  // are not there are refused before.
  absl::StatusOr<planning::Hardware> ReadHardware(const workload::Workload& workload, const job::FieldLocations& places) const;
  planning::PlanOptions Options() const;
  absl::StatusOr<plan::PlanResult> Plan(const workload::Workload& workload, const job::FieldLocations& places) const;
  // Tells on stderr that there is no plan, why, and what to do about too few executors. `starts_executors`: the command has --device.
  void PrintPlanError(const job::Spec& spec, const plan::PlanError& refusal, bool starts_executors = false) const;
};

// Names in the job's pins, against the devices of the topology, else against `devices`. Errors: those of planning::CheckPins, located.
absl::Status CheckPinsOf(const workload::Workload& workload, const std::optional<job::Topology>& topology,
                         const std::vector<wire::DeviceProfile>& devices, absl::string_view place_of_devices,
                         const job::FieldLocations& places);

// What matrix products of devices with a profile were reckoned in, as a phrase behind a time: " with arithmetic bf16 (tensor cores)"; empty
// where all was measured.
std::string ArithmeticPhrase(const plan::Plan& plan);

// A line that says what of a plan rests on published figures of GPUs alone; empty when nothing does.
std::string SpecificationNote(const plan::Plan& plan);

// Replaces a file, which is whole or as it was. Errors, naming it: ResourceExhausted for a full disk, else InvalidArgument.
absl::Status WriteTextFile(const std::string& path, absl::string_view text);

int64_t MachineMemoryBytes();
int MachineCores();

// Of an error of MeasureMachine: that there can be no plan, where an op is too large for this machine's memory; else nullopt.
std::optional<plan::PlanError> PlanErrorOf(const absl::Status& measured);

// Measures this machine for the job as each device of the topology runs it: one profile for each number of threads, named after the
// devices; without a topology one profile of the whole machine, named "local-0". Devices that the topology gives a profile are left out.
absl::StatusOr<std::vector<wire::DeviceProfile>> MeasureMachine(const workload::Workload& workload,
                                                                const std::optional<job::Topology>& topology);

}  // namespace fusionllm::cli
