// What a program leaves as its container's termination message.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "lib/base/printable_text.h"
#include "lib/base/truncate_utf8.h"

namespace fusionllm::services {

// One line of at most a KiB: who reads it keeps no more (operator/lifecycle/progress.h), and takes one of several lines
// (operator/cache/termination_message.h).
inline std::string TerminationSentence(absl::string_view message) { return base::TruncateUtf8(base::PrintableText(message), 1024); }

}  // namespace fusionllm::services
