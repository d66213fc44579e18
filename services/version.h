// The build that a program belongs to, as handshakes and --version show it.
#pragma once

namespace fusionllm::services {

inline constexpr char kBuildVersion[] = "0.1.0";

}  // namespace fusionllm::services
