#include "lib/workload/job_learning_rate.h"

namespace fusionllm::workload {

runtime::LearningRateSchedule ScheduleOf(const job::Training& training) {
  using Kind = runtime::LearningRateSchedule::Kind;
  Kind kind = Kind::kConstant;
  if (training.schedule.name == job::ScheduleName::kCosine) kind = Kind::kCosine;
  if (training.schedule.name == job::ScheduleName::kLinear) kind = Kind::kLinear;
  return {.kind = kind,
          .warmup_steps = training.schedule.warmup_steps,
          .total_steps = training.steps,
          .minimum = training.schedule.min_learning_rate};
}

double LearningRateOf(const job::Training& training, int64_t step) {
  return runtime::LearningRateAt(ScheduleOf(training), training.optimizer.learning_rate, step);
}

}  // namespace fusionllm::workload
