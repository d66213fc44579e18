// What fusionctl knows of a run beside the lines of its broker: the job it was made of, and what earlier starts in its folder left.
//
// Pure functions, but for those that say that they read a file.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "lib/job/fusion_job.h"
#include "lib/report/run_record.h"

namespace fusionllm::cli {

// Fills in what the job says: name, unit, steps, size of a batch, number of parameters that are trained, its text. Reads the file of a
// graph, where the job names one.
void DescribeJob(const job::FusionJob& job, report::Run& run);

// The lines that earlier starts left in the folder.
struct EarlierRecord {
  report::Run run;
  std::string summary;  // the newest of those that tell of steps; empty: none does
};
// Reads events.jsonl; of a file that is not there, nothing.
EarlierRecord ReadEarlierRecord(const std::string& events_path);

// Of a start that found all steps made: what the earlier ones measured takes the place of what it did not. False, and nothing is changed,
// when the record has no steps.
bool MergeEarlierRecord(const EarlierRecord& earlier, report::Run& run);

// The broker's summary with figures of the whole run: means of losses, validation, times, traffic, cost of compression, and `report_path`.
// Keys that it has already stay as they are, but where `run.summary` is an earlier start's (`already_done`).
std::string CompleteSummary(absl::string_view line, const report::Run& run, const std::string& report_path,
                            const EarlierRecord* already_done);

}  // namespace fusionllm::cli
