// What a container's termination message says of its end, in one sentence.
//
// A program of ours writes its sentence itself. One that was killed, or crashed, left the kubelet the last lines of its log instead
// (FallbackToLogsOnError), most of which are no reason for anything.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::op::cache {

// The message itself where it is one line and none of a log; else its last line that may be a reason: of a log of ours (text, JSON or a
// broker's record) a warning or an error, without its time and program, or what something else has written behind that log. Empty: none is.
std::string TerminationSummary(absl::string_view termination_message);

}  // namespace fusionllm::op::cache
