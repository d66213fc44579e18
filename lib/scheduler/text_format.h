// Figures in sentences of plans and refusals. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::scheduler {

std::string SizeText(double bytes);  // "1.5 MiB"
// "1.2 MB", "322 MB": decimal, as rates of links count.
std::string TrafficText(double bytes);
std::string DurationText(double seconds);  // "12.3 ms"
// "; give executors more memory (where that is written)" and what else would help: behind a refusal for want of memory.
std::string MemoryRemedy(absl::string_view also = "");

}  // namespace fusionllm::scheduler
