// DataPlane's own kinds of messages, which only somebody who looked them up sends by hand.
#pragma once

#include <cstdint>

namespace fusionllm {

inline constexpr uint8_t kPing = 200, kPong = 201;
inline constexpr uint32_t kProbeEpoch = 0xFFFFFFFF;

}  // namespace fusionllm
