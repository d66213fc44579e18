// The timeline of one traced step as SVG text: a row for each stage of each replica, a box for each pass of a micro-batch and each wait.
#pragma once

#include <string>

#include "lib/report/run_record.h"

namespace fusionllm::report {

// A typical step: of those that most devices have traced the one that took about as long as the median step, with both times. Empty text
// when nothing was traced. Rows are in the order of the plan's pipelines, which are named where there are several; micro-batches have their
// numbers in the whole batch.
std::string DrawTimeline(const Run& run);

}  // namespace fusionllm::report
