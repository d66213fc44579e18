// What an executor tells of itself as metrics: its stage's compute and links, memory, time spent on data. docs/reference/metrics.md lists
// them.
//
// Fed by the stage's thread, scraped on others. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "lib/metrics/registry.h"
#include "services/messages_fwd.h"
#include "services/stage_metrics.h"

namespace fusionllm::services {

class ExecutorMetrics {
 public:
  // `device` is this executor's name. `registry` must outlive it, and may be scraped only while it lives.
  ExecutorMetrics(metrics::Registry& registry, std::string device);

  void MemoryLimit(int64_t bytes) const { memory_.Set(static_cast<double>(bytes), {"limit"}); }
  // A stage of a new plan was built; `planned_bytes` is what it was predicted to use at most.
  void NewStage(int64_t planned_bytes);
  // data_wait_seconds < 0: the stage reads no data.
  void Step(int stage, const v1::StageTimes& times, double data_wait_seconds);

 private:
  const std::string device_;
  StageMetrics stage_metrics_;
  const metrics::Gauge memory_, data_wait_;
};

}  // namespace fusionllm::services
