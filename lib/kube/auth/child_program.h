// Runs a program to its end for what it prints.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fusionllm::kube {

struct ChildProgram {
  std::vector<std::string> argv;                         // the first is searched for in $PATH unless it holds a slash
  std::vector<std::pair<std::string, std::string>> env;  // besides our own environment, or in place of variables of it
  absl::Duration timeout;
  size_t max_output_bytes = size_t{1} << 20;
};

// What is known of a run, however it has ended.
struct ProgramReport {
  std::string errors;            // the first 4 KiB of its stderr
  std::optional<int> exit_code;  // -1: a signal ended it, ours included; nothing: it did not run
};

// Its stdout, once it has ended with 0. It has no stdin. With whatever it has started it is killed at the deadline, when `stop` is
// requested and when it prints too much. NotFound: there is no such program; FailedPrecondition: it failed; DeadlineExceeded, Cancelled,
// ResourceExhausted as they say. No error quotes what it has printed.
absl::StatusOr<std::string> RunProgram(const ChildProgram& program, std::stop_token stop, ProgramReport& report);

}  // namespace fusionllm::kube
