// How long a run waits for what, and what it tries again. Internal to lib/broker.
#pragma once

#include "absl/status/status.h"

namespace fusionllm::broker {

// Bounds on what is waited for. Only a peer that makes no progress at all meets them: each is renewed by news.
inline constexpr double kGatherSeconds = 120;
inline constexpr double kDataWaitNoticeSeconds = 10;    // of kGatherSeconds, until it is reported who keeps all others waiting
inline constexpr double kRejoinSeconds = 20;            // executors redial every second at least; not spent on those known to be gone
inline constexpr double kRejoinWhenStoppedSeconds = 3;  // for a last checkpoint, where anybody is left to write it
inline constexpr double kCalibrateSeconds = 300;
inline constexpr double kProbeSeconds = 120;
inline constexpr double kPlanSeconds = 300;
inline constexpr double kComparisonSeconds = 20;  // of another plan, where there is one to begin with
inline constexpr double kFiguresSeconds = 10;     // of stages that could begin without them
inline constexpr double kLoadSeconds = 900;
inline constexpr double kDrainSeconds = 20;
inline constexpr double kFirstStepSeconds = 900;
inline constexpr double kFinishSeconds = 600;
// A step may include an evaluation or a checkpoint, so that the bound is generous; a dead process is noticed by its broken stream at once.
inline constexpr double kStepTimeoutFactor = 30;
inline constexpr double kMinStepTimeoutSeconds = 60;

// Before a recovery: nothing before the first one after a step, then twice as long each time, up to a minute.
double RetrySeconds(int retries);

// Errors that another try may cure: somebody was lost, or the network was.
inline bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) || absl::IsAborted(status);
}

}  // namespace fusionllm::broker
