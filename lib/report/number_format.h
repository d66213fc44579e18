// Numbers as people read them. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace fusionllm::report {

std::string Count(double value);          // "5,210", "52.1", "0.31"; "-" when not finite
std::string WholeNumber(int64_t number);  // "5,210", "52"
std::string TimeSpan(double seconds);     // "2h36m", "4m10s", "12s"
std::string StepSeconds(double seconds);  // "1.92s", "85ms"
std::string ElapsedTime(double seconds);  // like TimeSpan, below ten seconds like StepSeconds
std::string TrafficBytes(double bytes);   // decimal, as links count: "12.3 MB"
std::string MemoryBytes(double bytes);    // binary, as memory counts: "1.5 GiB"
std::string Percent(double share);        // 0.024: "2.4%"
// Of a link: what crosses it in a step, uncompressed, over what is sent of it; ids and tied gradients count, too. "10.5x", "-" when not
// finite.
std::string Ratio(double ratio);

}  // namespace fusionllm::report
