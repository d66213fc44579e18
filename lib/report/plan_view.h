// The plan of a run as HTML: its stages in a row with what travels between them, a row for each of several replicas, and tables of
// predictions beside measurements.
#pragma once

#include <string>

#include "lib/report/run_record.h"

namespace fusionllm::report {

// Empty text when there is no plan.
std::string DrawPlan(const Run& run);
// Predicted beside measured. Empty text when there is neither plan nor summary.
std::string StagesTable(const Run& run);
std::string LinksTable(const Run& run);

// What a list of op names is about, for a small box: "wte, wpe, block.0, block.1, ..." (the first two parts of each name, once).
std::string SummarizeOps(const std::vector<std::string>& ops);

}  // namespace fusionllm::report
