// How a run ended, and what is left of it, in words. Blocks on the disk.
#pragma once

#include <string>
#include <vector>

#include "cli/run/run_session.h"
#include "lib/job/fusion_job.h"
#include "lib/report/run_record.h"

namespace fusionllm::cli {

// In few words, without the error. `run` may begin with steps of earlier starts; `steps_made`: by this one. `already_done`: those had made
// all of them.
std::string OutcomeOf(const job::FusionJob& job, const SessionResult& result, const report::Run& run, bool steps_made, bool already_done);

// Lines that say where the model is and, of a run that ended early, with what command it goes on, or begins again where nothing was saved.
// `command`: as ResumeCommand has it. `trained`: this start or an earlier one in the folder made a step;
// `steps_made`: this one did.
std::string NextSteps(const job::FusionJob& job, const std::vector<std::string>& command, const std::string& folder, int exit_code,
                      bool trained, bool steps_made);

}  // namespace fusionllm::cli
