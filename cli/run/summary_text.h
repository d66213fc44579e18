// What is printed when runs are over. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "lib/report/run_record.h"

namespace fusionllm::cli {

// Of one run: figures, links, stages, below how it ended, in few words. `run` may lack a summary (it failed early): then what there is.
std::string SummaryText(const report::Run& run, const std::string& outcome = "");

// Of several runs of one job, the first of which is what the others are compared with.
struct Comparison {
  struct Row {
    std::string title;
    double predicted_step_s = 0;
    double median_step_s = 0;
    double tokens_per_s = 0;
    double samples_per_s = 0;
    int64_t slow_link_bytes = 0;            // between sites, both directions, whole run
    double slow_link_step_bytes = 0;        // a step
    double loss = 0;                        // after `steps`; NaN: not reached
    double speed_up = 0;                    // of the median step over that of the first row
    std::vector<std::string> lost_devices;  // report::LostDevices; a row that has any is marked
  };
  int64_t steps = 0;  // the most that all of them made
  std::string unit = "tokens";
  std::vector<Row> rows;
};
Comparison Compare(const std::vector<report::Run>& runs);
std::string ComparisonText(const Comparison& comparison);
// {"type":"demo","steps":..,"rows":[{"title":..,"predicted_step_seconds":..,...}],"report":"PATH"}
std::string ComparisonJson(const Comparison& comparison, const std::string& report_path);

}  // namespace fusionllm::cli
