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
#include "lib/base/counted.h"
#include "lib/base/status_macros.h"
#include "lib/planning/plan_workload.h"
#include "lib/scheduler/words.h"

namespace fusionllm::planning {
namespace {

constexpr size_t kMaxDevicesWeighed = 64;  // a quick search of more takes seconds
constexpr double kMuchFaster = 1.2;
constexpr double kMuchMemory = 0.5;  // of a device
constexpr size_t kMaxNamed = 4;

// Nothing: such a job cannot be planned.
absl::StatusOr<std::optional<wire::PlanDocument>> Alternative(const workload::Workload& workload, const Profiles& profiles,
                                                              PlanOptions options) {
  options.search_budget = std::min(options.search_budget, scheduler::kQuickSearchBudget);
  options.explain = false;
  FUSIONLLM_ASSIGN_OR_RETURN(PlannedWorkload planned, PlanGivenMicroBatchSize(workload, profiles, options));
  auto* const document = std::get_if<wire::PlanDocument>(&planned.answer);
  if (document == nullptr) return std::optional<wire::PlanDocument>();
  return std::optional(std::move(*document));
}

std::string DevicesOf(const wire::PlanDocument& plan) {
  std::vector<std::string> devices;
  for (const wire::PlanStage& stage : plan.stages) devices.push_back(stage.devices[0]);
  if (devices.size() > kMaxNamed) return base::Counted(static_cast<int64_t>(devices.size()), "stage");
  return absl::StrCat(base::Counted(static_cast<int64_t>(devices.size()), "stage"), " on ", absl::StrJoin(devices, " > "));
}

absl::Status WeighStages(const workload::Workload& workload, const Profiles& profiles, PlanOptions options, wire::PlanDocument& document) {
  options.stages = 0;
  FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<wire::PlanDocument> free, Alternative(workload, profiles, std::move(options)));
  if (!free.has_value() || free->stages.size() == document.stages.size()) return absl::OkStatus();
  if (document.predicted_step_seconds < kMuchFaster * free->predicted_step_seconds) return absl::OkStatus();
  document.warnings.push_back(
      {"StagesNotFastest",
       absl::StrFormat("spec.strategy.stages: %d asks for a step of %s; with as many stages as the planner likes (spec.strategy.stages: 0) "
                       "it would take %s, in %s",
                       document.stages.size(), scheduler::DurationText(document.predicted_step_seconds),
                       scheduler::DurationText(free->predicted_step_seconds), DevicesOf(*free))});
  return absl::OkStatus();
}

// Deeper than a pipeline of this many stages needs, at the price of much of a device's memory.
bool IsDeepByChoice(const wire::PlanDocument& document) {
  for (size_t s = 0; s < document.stages.size(); ++s) {
    const wire::PlanStage& stage = document.stages[s];
    const bool much = static_cast<double>(stage.memory_bytes) > kMuchMemory * static_cast<double>(stage.device_memory_bytes);
    if (much && stage.device_memory_bytes > 0 && stage.in_flight > static_cast<int>(document.stages.size() - s)) return true;
  }
  return false;
}

absl::Status WeighDepth(const workload::Workload& workload, const Profiles& profiles, PlanOptions options, wire::PlanDocument& document) {
  const auto stages = static_cast<int>(document.stages.size());
  options.stages = options.max_in_flight = stages;
  FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<wire::PlanDocument> fewer, Alternative(workload, profiles, std::move(options)));
  if (!fewer.has_value()) return absl::OkStatus();
  int64_t largest = 0, largest_planned = 0;
  for (const wire::PlanStage& stage : fewer->stages) largest = std::max(largest, stage.memory_bytes);
  for (const wire::PlanStage& stage : document.stages) largest_planned = std::max(largest_planned, stage.memory_bytes);
  if (largest < largest_planned) {
    document.fewer_in_flight = {.in_flight = stages, .predicted_step_seconds = fewer->predicted_step_seconds, .memory_bytes = largest};
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddAlternatives(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options,
                             wire::PlanDocument& document) {
  if (document.replicas > 1 || profiles.devices.size() > kMaxDevicesWeighed) return absl::OkStatus();
  const job::Strategy& strategy = workload.job.spec.strategy;
  if (strategy.stages > 0) FUSIONLLM_RETURN_IF_ERROR(WeighStages(workload, profiles, options, document));
  if (strategy.in_flight == 0 && IsDeepByChoice(document)) return WeighDepth(workload, profiles, options, document);
  return absl::OkStatus();
}

}  // namespace fusionllm::planning
