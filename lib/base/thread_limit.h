// What is said where the system refuses a thread or a process, since a user or a container has as many as it may.
#pragma once

#include <string>
#include <system_error>

#include "absl/strings/string_view.h"

namespace fusionllm::base {

// What the standard library throws where a thread cannot be started.
bool IsThreadLimitError(const std::system_error& error);

// "cannot start WHAT: the system refuses more threads and processes (Resource temporarily unavailable); the limit is reached: ..".
std::string ThreadLimitMessage(absl::string_view what);

// Where the log of a program that has ended says that it was refused threads, as libraries do that abort: a sentence that names the limits
// as the likely cause. Empty: it does not, or the program has named them itself.
std::string LikelyThreadLimit(absl::string_view end_of_log);

}  // namespace fusionllm::base
