// How samples of a link become its measured round trip and bandwidth.
#pragma once

#include <cstdint>

namespace fusionllm::transport {

// Fewer bytes measure the round trip, not the bandwidth.
inline constexpr uint64_t kRateSampleBytesMin = 64 << 10;

// As TCP's smoothed round trip, RFC 6298 section 2. An `old` of 0: there was no sample yet.
inline double Smooth(double old, double sample) {
  constexpr double kSmoothing = 0.125;
  return old == 0 ? sample : old + kSmoothing * (sample - old);
}

}  // namespace fusionllm::transport
