// The build that a program belongs to, as handshakes and --version show it.
#pragma once

#include <cstdint>

namespace fusionllm::services {

inline constexpr char kBuildVersion[] = "0.1.0";

// Of broker.proto: grows when an old peer could misunderstand a new one.
inline constexpr uint32_t kProtocolVersion = 2;  // 2: checkpoint.proto, Welcome.shared_token

}  // namespace fusionllm::services
