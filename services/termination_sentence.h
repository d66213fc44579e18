// What a program leaves as its container's termination message.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "lib/base/cut_text.h"
#include "lib/base/printable_text.h"

namespace fusionllm::services {

// One line of at most a KiB: who reads it keeps no more (operator/progress), and takes one of several lines (operator/members).
inline std::string TerminationSentence(absl::string_view message) { return base::CutText(base::PrintableText(message), 1024); }

}  // namespace fusionllm::services
