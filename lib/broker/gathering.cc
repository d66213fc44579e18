#include "lib/broker/gathering.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {

Gathering::Gathering(const RunOptions& options)
    : expected_(options.expected),
      data_devices_(options.data_devices),
      min_executors_(options.min_executors),
      data_timeout_s_(options.data_timeout_s),
      executor_timeout_s_(options.executor_timeout_s),
      waits_for_executors_(options.waits_for_executors),
      min_model_memory_(options.min_model_memory) {}

bool Gathering::IsComplete(const ExecutorSet& executors, bool planned) const {
  if (closed_ && !planned) return !executors.LacksData();
  const bool known = !expected_.empty() || min_executors_ > 0;
  return known && executors.CountNonSpares() >= min_executors_ && executors.Missing().empty();
}

std::string Gathering::InsufficientMemoryReason(const ExecutorSet& executors, bool planned) const {
  if (!IsComplete(executors, planned)) return "";  // who is missing may have what the others lack
  std::vector<DeviceMemory> devices;
  for (const auto& [name, executor] : executors.present()) {
    if (!executor.spare) devices.push_back({name, executor.memory_bytes});
  }
  return DescribeInsufficientMemory(min_model_memory_, devices);
}

bool Gathering::OnlyDataIsMissing(const ExecutorSet& executors, bool planned) const {
  if (planned || executors.present().empty() || executors.had_data() || !executors.LacksData()) return false;
  if (closed_) return true;
  const std::vector<std::string> missing = executors.Missing();
  return !missing.empty() && executors.CountNonSpares() + static_cast<int64_t>(missing.size()) >= min_executors_ &&
         std::all_of(missing.begin(), missing.end(), [&](const std::string& name) { return executors.HasData(name); });
}

Gathering::Verdict Gathering::OnExecutorsChanged(const ExecutorSet& executors, const RunPosition& at, ActionQueue& queue) {
  if (awaits_data()) {  // the timer runs on, even if others come or go
    if (executors.LacksData()) return {};
    const State then = std::exchange(state_, State::kExecutors);
    return {.kind = then == State::kDataThenPlan ? Verdict::Kind::kMeasure : Verdict::Kind::kRecover};
  }
  if (!IsComplete(executors, at.planned)) {
    AwaitExecutors(executors, at, queue);
    return {};
  }
  lost_reason_.clear();
  return {.kind = Verdict::Kind::kMeasure};
}

Gathering::Verdict Gathering::OnTimer(uint64_t id, ExecutorSet& executors, const RunPosition& at, ActionQueue& queue) {
  if (id == data_notice_timer_) {
    ReportMissingData(executors, at, queue);
    return {};
  }
  const auto fail = [](absl::Status failure) { return Verdict{.kind = Verdict::Kind::kFail, .failure = std::move(failure)}; };
  const std::vector<std::string> missing = executors.Missing();
  if ((executors.had_data() || awaits_data()) && executors.LacksData()) return fail(DataLost(at));
  if (OnlyDataIsMissing(executors, at.planned) && min_executors_ == 0) {
    return fail(absl::DeadlineExceededError(
        absl::StrCat("no device that has the training data has joined: ", absl::StrJoin(data_devices_, " or "), " was waited for")));
  }
  if (!lost_reason_.empty()) {
    return fail(absl::UnavailableError(
        absl::StrFormat("%s lost, and not back in %g s: %s", absl::StrJoin(missing, ", "), executor_timeout_s_, lost_reason_)));
  }
  if (executors.present().empty() && waits_for_executors_) {
    AwaitLost("all executors are gone", executors, at, queue);
    return {};
  }
  if (!begun_ || at.planned || executors.present().empty()) {
    return fail(absl::DeadlineExceededError(absl::StrCat("executors did not join: ", absl::StrJoin(missing, ", "))));
  }
  executors.GiveUpMissing();
  return OnExecutorsChanged(executors, at, queue);
}

void Gathering::AwaitExecutors(const ExecutorSet& executors, const RunPosition& at, ActionQueue& queue) {
  if (!lost_reason_.empty()) {
    queue.ArmTimer(executor_timeout_s_, "executors that were lost to come back");
    return;
  }
  const bool open_without_data = min_executors_ > 0 && executors.had_data() && executors.LacksData();
  if (OnlyDataIsMissing(executors, at.planned)) {
    if (!data_wait_reported_) {  // mostly it comes in a moment: one of them is always the last
      queue.ArmTimer(kDataWaitNoticeSeconds, "an executor with the training data to join");
      data_notice_timer_ = queue.timer();
      return;
    }
  } else if (!at.planned && ((begun_ && !executors.Missing().empty()) || open_without_data)) {
    queue.ArmTimer(executor_timeout_s_, "executors that were lost to be started again");
    return;
  }
  if (min_executors_ == 0 && !waits_for_executors_) {
    queue.ArmTimer(kGatherSeconds, "executors to join");
  } else {
    queue.DisarmTimer();
  }
}

void Gathering::ReportMissingData(const ExecutorSet& executors, const RunPosition& at, ActionQueue& queue) {
  if (!OnlyDataIsMissing(executors, at.planned)) {  // any more
    AwaitExecutors(executors, at, queue);
    return;
  }
  data_wait_reported_ = true;
  const double left_s = kGatherSeconds - kDataWaitNoticeSeconds;
  const bool limited = min_executors_ == 0;
  // Each further join or loss renews it.
  EmitWaitingForData(limited ? absl::StrFormat("%g s without news at most", left_s) : "without a limit", at, queue);
  if (limited) queue.ArmTimer(left_s, "an executor with the training data to join");
}

bool Gathering::AwaitLost(const std::string& why, ExecutorSet& executors, const RunPosition& at, ActionQueue& queue) {
  executors.AwaitGivenUp();
  const std::vector<std::string> missing = executors.Missing();
  if (!waits_for_executors_ || missing.empty()) return false;
  lost_reason_ = why;
  queue.Push(EmitEvent{.reason = "WaitingForExecutors",
                       .step = at.last_step,
                       .message = absl::StrFormat("%s: the run waits for %s to come back, %g s without news at most", why,
                                                  absl::StrJoin(missing, ", "), executor_timeout_s_)});
  AwaitExecutors(executors, at, queue);
  return true;
}

// Who is lost under a plan is started again by what watches it, if anything does; the others have nothing to do meanwhile.
Gathering::Verdict Gathering::AwaitData(State then, const ExecutorSet& executors, const RunPosition& at, ActionQueue& queue) {
  if (!executors.LacksData()) {
    return {.kind = then == State::kDataThenPlan ? Verdict::Kind::kMeasure : Verdict::Kind::kRecover};
  }
  if (data_timeout_s_ <= 0) return {.kind = Verdict::Kind::kFail, .failure = DataLost(at)};
  state_ = then;
  EmitWaitingForData(absl::StrFormat("%g s at most", data_timeout_s_), at, queue);
  queue.ArmTimer(data_timeout_s_, "an executor with the training data to come back");
  return {};
}

void Gathering::EmitWaitingForData(const std::string& how_long, const RunPosition& at, ActionQueue& queue) const {
  queue.Push(EmitEvent{.reason = "WaitingForData",
                       .step = at.last_step,
                       .message = absl::StrFormat("no device that has the training data is here: %s is waited for, %s",
                                                  absl::StrJoin(data_devices_, " or "), how_long)});
}

absl::Status Gathering::DataLost(const RunPosition& at) const {
  const std::string when = at.planned ? absl::StrFormat("after step %d", at.last_step) : "before the first plan";
  const bool one = data_devices_.size() == 1;
  const std::string waited = awaits_data() ? absl::StrFormat(", and did not come back in %g s", data_timeout_s_) : "";
  const std::string message = absl::StrFormat("%s, which alone ha%s the training data, w%s lost %s%s", absl::StrJoin(data_devices_, ", "),
                                              one ? "s" : "ve", one ? "as" : "ere", when, waited);
  if (at.checkpoint_path.empty()) return absl::UnavailableError(message);
  return absl::UnavailableError(
      absl::StrFormat("%s; started again, the run goes on after step %d, from %s", message, at.checkpoint_step, at.checkpoint_path));
}

}  // namespace fusionllm::broker
