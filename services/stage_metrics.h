// What stages report of each step, as metrics: compute and links. The broker exports those of all stages, an executor those of its own,
// under the same names. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "lib/base/mutex.h"
#include "lib/metrics/registry.h"
#include "services/messages_fwd.h"

namespace fusionllm::services {

class StageMetrics {
 public:
  // `registry` must outlive it.
  explicit StageMetrics(metrics::Registry& registry);

  // Reports of `device` count from 0 again; stages and links of the plan before are no more.
  void NewPlan();
  void RecordSent(const std::string& device, const v1::LinkBytes& link);  // of a link alone
  void Report(const std::string& device, int stage, const v1::StageTimes& times);

 private:
  void Link(const std::string& device, const v1::LinkBytes& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const metrics::Gauge compute_;
  const metrics::Counter bytes_;
  const metrics::Gauge bandwidth_, rtt_, ratio_, error_;
  base::Mutex mutex_;
  // By device, peer and class, since the plan began.
  std::map<std::tuple<std::string, std::string, int>, int64_t> sent_ ABSL_GUARDED_BY(mutex_);
  struct Compute {
    double forward_s = 0, backward_s = 0;
  };
  std::map<int, std::map<std::string, Compute>> compute_s_ ABSL_GUARDED_BY(mutex_);  // by stage and device: its replicas
};

}  // namespace fusionllm::services
