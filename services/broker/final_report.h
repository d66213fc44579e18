// What a container leaves behind of a run: the last /progress page, the exit code, and of a failure the reason and a sentence.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "services/broker/run_loop.h"

namespace fusionllm::services {

// What a kubelet keeps of a termination message; it cuts the rest off, and what is cut is no JSON any more.
inline constexpr size_t kMaxReportBytes = 4096;

// With which a broker ends whose run has ended so.
int ExitCodeOf(const RunOutcome& outcome);

// With which one ends that could not begin. `resume_journal`: it was to take over a run that may have begun, as each broker in a cluster
// is.
int ExitCodeOfSetUp(const absl::Status& error, bool resume_journal);

// One line of JSON without its end, never longer than one byte less than that. What does not fit goes: the measured links and the
// events in any case, for who looked at the page has seen them, then the names of the stages, the slowest link, the sentence.
std::string FinalReport(const std::string& progress, int exit_code, const RunOutcome& outcome);

}  // namespace fusionllm::services
