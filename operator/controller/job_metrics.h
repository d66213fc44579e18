// How long jobs take to start and to start again, how often, and what that costs in writes of statuses. No series names a job: these are
// counted, and counts of what is gone cannot go. One for a process; its registry must outlive it. Thread-safe.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "lib/metrics/registry.h"
#include "operator/lifecycle/decide.h"

namespace fusionllm::op::controller {

class JobMetrics {
 public:
  explicit JobMetrics(metrics::Registry& registry);

  // All executors are ready for the first time, so long after the job was made or resumed. To the second, as statuses tell times.
  void Started(absl::Duration took) const;
  void Restarted(lifecycle::RestartCause cause) const;
  // The first step is made after an attempt ended, other than for another number of executors.
  void ProgressResumed(absl::Duration took) const;
  // `resource`: its plural.
  void WroteStatus(const std::string& resource) const;

 private:
  metrics::Histogram start_, restart_;
  metrics::Counter restarts_, status_writes_;
};

}  // namespace fusionllm::op::controller
