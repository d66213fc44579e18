// A simulated step as one SVG file: a row for each stage and each direction of a link, a box for each pass and message. Pure function.
#pragma once

#include <string>

#include "lib/scheduler/timeline.h"

namespace fusionllm::report {

// More boxes make a file that browsers draw badly: the rest is left out, and a line of text says so.
inline constexpr size_t kMaxDrawnBoxes = 20'000;

// A whole document, title, legend and time axis included. Boxes have tooltips; those wide enough have the number of their micro-batch. A
// thin line after a message is its latency, the dashed line the start of the next step.
std::string DrawPipeline(const scheduler::Timeline& timeline, const std::string& title);

}  // namespace fusionllm::report
