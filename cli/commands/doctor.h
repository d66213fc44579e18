// What `fusionctl doctor` looks at.
#pragma once

#include <string>
#include <vector>

namespace fusionllm::cli {

enum class CheckStatus {
  kOk,
  kNote,     // something is not there that few need
  kWarning,  // jobs run, but worse than they could
  kProblem,  // jobs cannot run
};

struct Check {
  std::string name;
  CheckStatus status = CheckStatus::kOk;
  std::string finding;  // what is
  std::string advice;   // what to do; empty when nothing
};

// Looks at this machine; blocks for well under a second.
std::vector<Check> RunChecks();

}  // namespace fusionllm::cli
