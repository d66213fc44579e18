#include "lib/planning/plan_alternatives.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/planning/plan_workload.h"
#include "lib/schedule/pipeline_schedule.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::planning {
namespace {

constexpr size_t kMaxDevicesWeighed = 16;  // a quick search takes milliseconds
constexpr double kMuchFaster = 1.2;
constexpr double kMuchMemory = 0.5;  // of a device
constexpr double kWorthwhile = 0.9;  // of the memory
constexpr double kCostRounding = 1e-9;
constexpr size_t kMaxNamedDevices = 4;

// Nothing: such a job cannot be planned.
std::optional<plan::Plan> Alternative(const workload::Workload& workload, const Profiles& profiles, PlanOptions options) {
  options.search_budget = std::min(options.search_budget, scheduler::kQuickSearchBudget);
  options.explain = false;
  absl::StatusOr<PlannedWorkload> planned = PlanWithFixedMicroBatchSize(workload, profiles, options);
  auto* const document = planned.ok() ? std::get_if<plan::Plan>(&planned->answer) : nullptr;
  if (document == nullptr) return std::nullopt;
  return std::move(*document);
}

std::string DeviceText(const plan::Plan& plan) {
  std::vector<std::string> devices;
  for (const plan::Stage& stage : plan.stages) devices.push_back(stage.devices[0]);
  const std::string stages = base::Pluralize(static_cast<int64_t>(devices.size()), "stage");
  return devices.size() > kMaxNamedDevices ? stages : absl::StrCat(stages, " on ", absl::StrJoin(devices, " > "));
}

void WeighStages(const workload::Workload& workload, const Profiles& profiles, PlanOptions options, plan::Plan& document) {
  options.stages = 0;
  const std::optional<plan::Plan> free = Alternative(workload, profiles, std::move(options));
  if (!free.has_value() || free->stages.size() == document.stages.size()) return;
  if (free->loss_cost > document.loss_cost * (1 + kCostRounding)) return;  // its steps are worth less
  if (document.predicted_step_seconds < kMuchFaster * free->predicted_step_seconds) return;
  document.warnings.push_back(
      {"OtherStageCountFaster",
       absl::StrFormat("spec.strategy.stages: %d asks for a step of %s; with as many stages as the planner likes (spec.strategy.stages: 0) "
                       "it would take %s, in %s%s",
                       document.stages.size(), scheduler::DurationText(document.predicted_step_seconds),
                       scheduler::DurationText(free->predicted_step_seconds), DeviceText(*free),
                       document.micro_batch_sizes.empty()
                           ? ""
                           : absl::StrFormat(", with micro-batches of %d as here; others may be faster", document.micro_batch_size))});
}

bool NeedsAllInFlight(const plan::Plan& document) {
  const std::optional<schedule::PipelineSchedule> schedule = schedule::Find(document.schedule);
  return !schedule.has_value() || schedule->forwards_first();
}

// Deeper than a pipeline of this many stages needs, at the price of much of a device's memory.
bool IsDeepByChoice(const plan::Plan& document) {
  if (NeedsAllInFlight(document)) return false;
  for (size_t s = 0; s < document.stages.size(); ++s) {
    const plan::Stage& stage = document.stages[s];
    const bool much = static_cast<double>(stage.memory_bytes) > kMuchMemory * static_cast<double>(stage.device_memory_bytes);
    if (much && stage.device_memory_bytes > 0 && stage.in_flight > static_cast<int>(document.stages.size() - s)) return true;
  }
  return false;
}

int64_t LargestStage(const plan::Plan& document) {
  int64_t largest = 0;
  for (const plan::Stage& stage : document.stages) largest = std::max(largest, stage.memory_bytes);
  return largest;
}

void WeighDepth(const workload::Workload& workload, const Profiles& profiles, PlanOptions options, plan::Plan& document) {
  const auto stages = static_cast<int>(document.stages.size());
  options.max_in_flight = stages;
  const std::optional<plan::Plan> fewer = Alternative(workload, profiles, std::move(options));
  if (!fewer.has_value() || NeedsAllInFlight(*fewer) || fewer->in_flight > stages) return;
  const int64_t memory_bytes = LargestStage(*fewer);
  const bool saves = static_cast<double>(memory_bytes) < kWorthwhile * static_cast<double>(LargestStage(document));
  if (!saves || fewer->predicted_step_seconds < document.predicted_step_seconds) return;
  document.fewer_in_flight = {.in_flight = stages, .predicted_step_seconds = fewer->predicted_step_seconds, .memory_bytes = memory_bytes};
}

}  // namespace

void AddAlternatives(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options, plan::Plan& document) {
  const job::Strategy& strategy = workload.job.spec.strategy;
  if (strategy.replicas != 1 || profiles.devices.size() > kMaxDevicesWeighed) return;
  if (strategy.stages > 0) WeighStages(workload, profiles, options, document);
  if (strategy.in_flight == 0 && IsDeepByChoice(document)) WeighDepth(workload, profiles, options, document);
}

}  // namespace fusionllm::planning
