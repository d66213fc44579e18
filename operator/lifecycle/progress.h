// Where a run stands, as its broker tells: the /progress page while it runs, and the report that its container leaves behind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "operator/lifecycle/run_events.h"

namespace fusionllm::op::lifecycle {

struct Progress {
  std::string phase;
  int64_t step = 0, steps = 0;
  int64_t epoch = 0;
  int64_t executors = 0;                             // that the broker is in touch with
  int64_t plan_executors = 0, wanted_executors = 0;  // that the plan in force was made over, that the run trains on; 0: not known
  int stages = 0, replicas = 1;
  int64_t recoveries = 0;
  std::optional<double> loss, tokens_per_second, learning_rate;
  std::optional<double> step_seconds, predicted_step_seconds, eta_seconds;
  std::string slowest_link;  // "paris-1->tokyo-0 int8 1.2 MB/s"; empty: unknown
  std::optional<int64_t> checkpoint_step;
  // What the run waits for: one of the reasons of IsWait(), and a sentence of one line; empty: for nothing.
  std::string wait_reason, wait;
  // Of a run that has ended.
  std::optional<int> exit_code;
  std::string error, reason;

  bool operator==(const Progress&) const = default;
};

// Whether a broker's event of this reason says what the run waits for. The job's conditions take no other word of a broker.
bool IsWait(absl::string_view reason);

// Room for the names of all devices of the largest plan (job::kMaxExecutors).
inline constexpr size_t kMaxProgressBytes = 1 << 20;

// From a pod that may be anybody's: InvalidArgument when the text is too long or no JSON object; fields of other types count as absent, and
// texts are cut.
absl::StatusOr<Progress> ParseProgress(absl::string_view text);

// The same of a page that is read again and again, with what has happened since: see TakeRunEvents(). Brokers of earlier releases tell no
// events.
struct ProgressPage {
  Progress progress;
  std::vector<RunEvent> events;
};
absl::StatusOr<ProgressPage> ParseProgressPage(absl::string_view text, int64_t& last_number, absl::Time now);

}  // namespace fusionllm::op::lifecycle
