// Lines of the log that many parts of a process would write again.
#pragma once

#include "absl/strings/string_view.h"
#include "lib/base/log.h"

namespace fusionllm::base {

// Log, of each sentence once in a process; one that is below the level asked for counts as said. Sentences are kept: for few kinds of them.
// Thread-safe.
void LogOnce(LogLevel level, absl::string_view sentence);

}  // namespace fusionllm::base
