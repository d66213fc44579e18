#include "lib/broker/recovery_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {

double RetrySeconds(int retries) {
  constexpr double kLongest = 60;
  return retries == 0 ? 0 : std::min(kLongest, std::ldexp(1.0, std::min(retries, 16) - 1));
}

RecoveryPolicy::RecoveryPolicy(const RunOptions& options)
    : excluded_(options.excluded),
      min_memory_bytes_(options.min_executor_memory_bytes),
      data_is_asked_for_(!options.data_devices.empty()),
      max_recoveries_(options.max_recoveries) {}

void RecoveryPolicy::OnStopping(const std::string& why, int64_t last_step) {
  cause_ = why;
  stopped_at_step_ = last_step;
}

void RecoveryPolicy::OnStep() {
  retries_without_progress_ = 0;
  restored_message_.clear();
}

absl::Status RecoveryPolicy::CheckRetryLimit() {
  if (++recoveries_ <= max_recoveries_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat("gave up after %d recoveries; the last one was for this: %s", max_recoveries_, cause_));
}

double RecoveryPolicy::ScheduleRetry(bool lost, ActionQueue& queue) {
  // After a loss the plan is another one, which may go well at once; one that is lost again and again is waited for like a failure.
  constexpr int kLossesAtOnce = 4;
  const double wait_s = RetrySeconds(lost ? std::max(0, retries_without_progress_ - kLossesAtOnce) : retries_without_progress_);
  ++retries_without_progress_;
  const std::string when = wait_s > 0 ? absl::StrFormat(" in %g s, for no step was made since the last one", wait_s) : "";
  queue.Push(EmitEvent{.reason = "Recovering",
                       .step = stopped_at_step_,
                       .message = absl::StrFormat("recovery %d of at most %d%s: %s", recoveries_, max_recoveries_, when, cause_)});
  return wait_s;
}

void RecoveryPolicy::EmitRestored(int64_t step, std::string message, ActionQueue& queue) {
  if (message == restored_message_) return;
  restored_message_ = message;
  queue.Push(EmitEvent{.reason = "Restored", .step = step, .message = std::move(message)});
}

bool RecoveryPolicy::ReplaceLost(PlanEpoch& epoch, const ExecutorSet& executors) {
  // One of them may be what was lost.
  std::erase_if(activated_, [&](const EmitEvent& activated) { return !executors.IsPresent(activated.device); });
  for (int rank = 0; rank < static_cast<int>(epoch.plan().devices.size()); ++rank) {
    const std::string lost = epoch.plan().devices[static_cast<size_t>(rank)];
    if (executors.IsPresent(lost)) continue;
    const std::string spare = IdleSpareFor(rank, epoch.plan(), executors);
    if (spare.empty()) return false;
    EmitEvent activated{.reason = "SpareActivated",
                        .step = stopped_at_step_,
                        .message = absl::StrFormat("%s takes %s from %s", spare, epoch.plan().Describe(rank), lost),
                        .device = spare,
                        .pid = executors.at(spare).pid};
    SetStageAndReplica(epoch.plan(), rank, activated);
    activated_.push_back(std::move(activated));
    epoch.SetDevice(rank, spare);
  }
  return true;
}

std::string RecoveryPolicy::IdleSpareFor(int rank, const RunPlan& plan, const ExecutorSet& executors) const {
  const bool reads_data = plan.StageOf(rank) == 0 && data_is_asked_for_;
  const int64_t min_bytes = std::max(plan.MemoryBytesOf(rank), min_memory_bytes_);
  // Declared spares first, then others without a stage; by name, so that the choice is reproducible.
  for (const bool spare : {true, false}) {
    for (const auto& [name, executor] : executors.present()) {
      if (executor.spare != spare || plan.Uses(name) || excluded_.contains(name) || (reads_data && !executors.HasData(name))) continue;
      if (executor.memory_bytes >= min_bytes) return name;
    }
  }
  return "";
}

void RecoveryPolicy::EmitActivated(bool figures_are_theirs, ActionQueue& queue) {
  for (EmitEvent& activated : activated_) {
    if (!figures_are_theirs) absl::StrAppend(&activated.message, "; the predicted times are still those of the machine before it");
    queue.Push(std::move(activated));
  }
  activated_.clear();
}

}  // namespace fusionllm::broker
