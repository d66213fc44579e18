#include "operator/controller/stale_checkpoint.h"

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::op::controller {
namespace {

constexpr int64_t kStaleAfter = 3;  // times everySteps
constexpr char kFirstStep[] = "firstStep";

int64_t FirstStepOr(int64_t step, const kubeapi::FusionJobStatus& status) {
  if (!status.trainer_status.has_value()) return step;
  for (const kubeapi::Metric& metric : status.trainer_status->metrics) {
    int64_t first = 0;
    if (metric.name == kFirstStep && absl::SimpleAtoi(metric.value, &first)) return std::min(first, step);
  }
  return step;
}

// Since the condition is as it is.
bool SavedSince(const kubeapi::Condition& reported, const kubeapi::FusionJobStatus& status) {
  return status.checkpoint.has_value() && status.checkpoint->time.has_value() && *status.checkpoint->time >= reported.last_transition_time;
}

}  // namespace

kubeapi::Metric FirstStep(int64_t step, const kubeapi::FusionJobStatus& before) {
  return {kFirstStep, absl::StrCat(FirstStepOr(step, before))};
}

std::optional<lifecycle::DesiredCondition> StaleCheckpoint(const job::Spec& spec, int64_t generation,
                                                           const kubeapi::FusionJobStatus& status) {
  const kubeapi::Condition* const reported = kubeapi::FindCondition(status.conditions, kubeapi::kCheckpointStale);
  const auto as_it_is = [&] {
    return lifecycle::DesiredCondition{lifecycle::JobCondition::kCheckpointStale, reported->status == kubeapi::ConditionStatus::kTrue,
                                       reported->reason, reported->message};
  };
  const int64_t due = spec.checkpoint.has_value() ? kStaleAfter * spec.checkpoint->every_steps : 0;
  if (due > 0 && status.trainer_status.has_value()) {
    const int64_t step = status.trainer_status->step;
    const bool none = !status.checkpoint.has_value();
    if (step - (none ? FirstStepOr(step, status) : status.checkpoint->step) > due) {
      const std::string what = none ? absl::StrCat("More than ", due, " steps were made, and there is no checkpoint")
                                    : absl::StrCat("The newest checkpoint is more than ", due, " steps behind");
      return lifecycle::DesiredCondition{lifecycle::JobCondition::kCheckpointStale, true, "CheckpointsMissing",
                                         absl::StrCat(what, ": spec.checkpoint.everySteps is ", spec.checkpoint->every_steps,
                                                      ". The broker's log says why (CheckpointFailed, CheckpointCopyFailed).")};
    }
  }
  if (reported == nullptr) return std::nullopt;
  if (reported->status != kubeapi::ConditionStatus::kTrue) return as_it_is();
  if (SavedSince(*reported, status))
    return lifecycle::DesiredCondition{lifecycle::JobCondition::kCheckpointStale, false, "CheckpointSaved",
                                       "A newer checkpoint was saved."};
  if (reported->observed_generation == generation) return as_it_is();
  return lifecycle::DesiredCondition{lifecycle::JobCondition::kCheckpointStale, false, "NoCheckpointDue",
                                     "By the spec as it is now, none is due yet."};
}

}  // namespace fusionllm::op::controller
