// A call as nothing of ours makes it, to see how a server takes it.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

namespace fusionllm::security {

// What a server without TLS at host:port says to a call of its health service (grpc.health.v1) whose message came compressed, though it
// does not ask for anything; UNIMPLEMENTED where it refuses such. Blocks, up to a minute.
grpc::StatusCode CodeOfCompressedCall(const std::string& address);

}  // namespace fusionllm::security
