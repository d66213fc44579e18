#include "services/executor/executor_metrics.h"

#include <utility>

#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/process_memory.h"

namespace fusionllm::services {

ExecutorMetrics::ExecutorMetrics(metrics::Registry& registry, std::string device)
    : device_(std::move(device)),
      stage_metrics_(registry),
      memory_(registry.AddGauge({"device_memory_bytes",
                                 "Of the process: resident (now), peak (since its stage was built); of the stage: planned; limit: what the "
                                 "executor may use.",
                                 {"kind"}})),
      data_wait_(registry.AddGauge(
          {"data_wait_seconds", "What the stage waited for training data in the last step; stages without data have none."})) {
  registry.OnCollect([this] {
    if (const int64_t resident = ResidentBytes(); resident > 0) memory_.Set(static_cast<double>(resident), {"resident"});
    if (const int64_t peak = PeakResidentBytes(); peak > 0) memory_.Set(static_cast<double>(peak), {"peak"});
  });
}

void ExecutorMetrics::NewStage(int64_t planned_bytes) {
  stage_metrics_.NewPlan();
  data_wait_.Clear();
  memory_.Set(static_cast<double>(planned_bytes), {"planned"});
}

void ExecutorMetrics::Step(int stage, const v1::StageTimes& times, double data_wait_seconds) {
  stage_metrics_.Report(device_, stage, times);
  if (data_wait_seconds >= 0) data_wait_.Set(data_wait_seconds);
}

}  // namespace fusionllm::services
