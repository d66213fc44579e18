// Why a plan is as it is, in sentences. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "lib/scheduler/assignment.h"

namespace fusionllm::scheduler {

inline constexpr int kMaxExplainedStages = 32;
inline constexpr size_t kMaxExplainedDevices = 8;

// One sentence for each stage, link, exchange of tied gradients and device left out.
std::vector<std::string> Explain(const Problem& problem, const PlannedPipeline& plan);

// Why not otherwise: for each stage what its cut one op earlier or later would do to the step, and the best of the first
// kMaxExplainedDevices devices without a stage in place of its own; for each of these where it would do best, and what the step would then
// be limited by. Nothing for plans of more than kMaxExplainedStages stages. Costs two evaluations a cut, three each stage and device, and
// some simulations a device.
std::vector<std::string> ExplainAlternatives(const Problem& problem, Evaluator& evaluator, const Assignment& assignment,
                                             const PlannedPipeline& plan);

// Which bound is binding, and why it holds.
std::string ExplainBound(const std::vector<LowerBound>& bounds, double gap);

}  // namespace fusionllm::scheduler
