#include "operator/reconcile/stale_checkpoint.h"

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::op {
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
bool SavedSince(const kubeapi::Condition& told, const kubeapi::FusionJobStatus& status) {
  return status.checkpoint.has_value() && status.checkpoint->time.has_value() && *status.checkpoint->time >= told.last_transition_time;
}

}  // namespace

kubeapi::Metric FirstStep(int64_t step, const kubeapi::FusionJobStatus& before) {
  return {kFirstStep, absl::StrCat(FirstStepOr(step, before))};
}

std::optional<ConditionWish> StaleCheckpoint(const job::Spec& spec, int64_t generation, const kubeapi::FusionJobStatus& status) {
  const kubeapi::Condition* const told = kubeapi::FindCondition(status.conditions, kubeapi::kCheckpointStale);
  const auto as_it_is = [&] {
    return ConditionWish{JobCondition::kCheckpointStale, told->status == kubeapi::ConditionStatus::kTrue, told->reason, told->message};
  };
  const int64_t due = spec.checkpoint.has_value() ? kStaleAfter * spec.checkpoint->every_steps : 0;
  if (due > 0 && status.trainer_status.has_value()) {
    const int64_t step = status.trainer_status->step;
    const bool none = !status.checkpoint.has_value();
    if (step - (none ? FirstStepOr(step, status) : status.checkpoint->step) > due) {
      const std::string what = none ? absl::StrCat("More than ", due, " steps were made, and there is no checkpoint")
                                    : absl::StrCat("The newest checkpoint is more than ", due, " steps behind");
      return ConditionWish{JobCondition::kCheckpointStale, true, "CheckpointsMissing",
                           absl::StrCat(what, ": spec.checkpoint.everySteps is ", spec.checkpoint->every_steps,
                                        ". The broker's log says why (CheckpointFailed, CheckpointCopyFailed).")};
    }
  }
  if (told == nullptr) return std::nullopt;
  if (told->status != kubeapi::ConditionStatus::kTrue) return as_it_is();
  if (SavedSince(*told, status))
    return ConditionWish{JobCondition::kCheckpointStale, false, "CheckpointSaved", "A newer checkpoint was saved."};
  if (told->observed_generation == generation) return as_it_is();
  return ConditionWish{JobCondition::kCheckpointStale, false, "NoCheckpointDue", "By the spec as it is now, none is due yet."};
}

}  // namespace fusionllm::op
