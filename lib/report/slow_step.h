// Why steps took longer than planned, as far as a run knows. Pure.
#pragma once

#include <string>

#include "lib/report/run_record.h"

namespace fusionllm::report {

// From here on a step counts as slower, or faster, than planned.
inline constexpr double kAsPlanned = 1.25;

// "a step took 3.1x the predicted 0.42s: stage 0 on a worked 2.9x as long as planned; other programs used 1.6 of this machine's 2
// cores". Empty: steps took as long as planned, a quarter more at most, or none is known.
std::string SlowStepSentence(const Run& run);

// Of the time that a stage was at work, 0 to 1: what its emulated device was behind its own pace, since it waited for a processor of this
// machine. 0 where that is little or unknown.
double LatenessRatio(const Run& run, const StageTotal& stage);

}  // namespace fusionllm::report
