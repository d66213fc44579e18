// Methods and metadata keys of fusionllm.v1.Relay, for its two sides. Private to lib/transport/grpc.
#pragma once

namespace fusionllm::transport {

inline constexpr char kRelayListen[] = "/fusionllm.v1.Relay/Listen";
inline constexpr char kRelayDial[] = "/fusionllm.v1.Relay/Dial";
inline constexpr char kRelayAnswer[] = "/fusionllm.v1.Relay/Answer";
inline constexpr char kRelayCaller[] = "fusionllm-endpoint";
inline constexpr char kRelayPeer[] = "fusionllm-peer";
inline constexpr char kRelayCall[] = "fusionllm-call";

}  // namespace fusionllm::transport
