// How a device without a certificate shows its join token: beside the call, where the broker sees it before it reads any message.
#pragma once

namespace fusionllm::services {

inline constexpr char kJoinTokenMetadata[] = "fusionllm-join-token";  // the token's text, see lib/security/join_token.h

}  // namespace fusionllm::services
