// Where a run stands, as one JSON object: what the broker's /progress page answers, for who shows the run to people (a Kubernetes
// operator's status, a console). docs/reference/metrics.md lists the keys; what is not known yet is absent.
//
// Fed by the run loop, read on other threads. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "lib/base/mutex.h"
#include "lib/broker/run_state.h"
#include "services/broker/run_events.h"
#include "services/messages_fwd.h"

namespace fusionllm::services {

// Of a plan: they warm caches and connections up, and say little of how long a step takes.
inline constexpr size_t kWarmUpSteps = 2;

class RunProgress {
 public:
  RunProgress(int64_t total_steps, int64_t targets_per_step, std::function<absl::Time()> now = absl::Now)
      : total_steps_(total_steps), targets_per_step_(targets_per_step), now_(std::move(now)) {}

  void Plan(const broker::RunPlan& plan);
  // `recent_step_seconds`: mean of the last steps of the plan in force.
  void Step(const broker::StepRecord& record, double recent_step_seconds);
  void StageTimes(const std::string& device, const v1::StageTimes& times);
  // Links whose rate is that of their wire: one of the others is never the slowest.
  void RepresentativeLinks(const broker::PlanMonitor::LinkSet& links);
  // The newest checkpoint that is where the job keeps them.
  void CheckpointKept(int64_t step);
  void Recovered();
  // Those of the run that are notable are kept, the last ones of them. One that says what the run waits for is kept apart from them until
  // that is there: a step is made, or the run has come to another phase.
  void Event(const broker::EmitEvent& event);
  // After every event of the run.
  void State(const broker::RunState& state);

  std::string Json() const;

 private:
  const int64_t total_steps_, targets_per_step_;
  const std::function<absl::Time()> now_;
  mutable base::Mutex mutex_;
  struct Wait {
    std::string reason, message;
  };
  std::optional<Wait> waiting_ ABSL_GUARDED_BY(mutex_);
  std::string phase_ ABSL_GUARDED_BY(mutex_) = "starting";
  uint32_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t executors_ ABSL_GUARDED_BY(mutex_) = 0;
  broker::RunPlan plan_ ABSL_GUARDED_BY(mutex_);
  std::optional<broker::StepRecord> last_ ABSL_GUARDED_BY(mutex_);
  double recent_step_s_ ABSL_GUARDED_BY(mutex_) = 0;
  struct Measured {
    double bytes_per_s = 0, rtt_s = 0;  // 0: not yet
  };
  std::map<std::pair<std::string, std::string>, Measured> measured_ ABSL_GUARDED_BY(mutex_);  // by source and destination
  broker::PlanMonitor::LinkSet representative_links_ ABSL_GUARDED_BY(mutex_);                 // of those, the ones that measure their wire
  std::optional<int64_t> checkpoint_step_ ABSL_GUARDED_BY(mutex_);
  int64_t recoveries_ ABSL_GUARDED_BY(mutex_) = 0;
  RunEvents events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::services
