// How an executor that cannot be dialled says where its peers meet it: "relay:NAME" in place of "host:port".
#pragma once

namespace fusionllm::services {

inline constexpr char kRelayPrefix[] = "relay:";

}  // namespace fusionllm::services
