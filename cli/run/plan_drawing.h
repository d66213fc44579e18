// The graph of a job's model coloured by the stages of a plan, for the report.
#pragma once

#include <string>

#include "lib/job/fusion_job.h"
#include "lib/report/run_record.h"

namespace fusionllm::cli {

// Larger graphs make a page that browsers scroll badly.
inline constexpr size_t kMaxDrawnOps = 600;

// An SVG element; empty when the job's graph cannot be built, is larger than that, or is not the graph of the plan. Reads the graph file of
// a job that names one.
std::string DrawPlanGraph(const job::FusionJob& job, const plan::Plan& plan);

}  // namespace fusionllm::cli
