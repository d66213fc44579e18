// The learning rate of a job's steps. Pure functions; thread-safe.
#pragma once

#include <cstdint>

#include "lib/job/fusion_job.h"
#include "lib/runtime/learning_rate.h"

namespace fusionllm::workload {

// It ends at the job's last step: with more steps the rate of one and the same step is another.
runtime::LearningRateSchedule ScheduleOf(const job::Training& training);

// Of step `step`, from 1.
double LearningRateOf(const job::Training& training, int64_t step);

}  // namespace fusionllm::workload
