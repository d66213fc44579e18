// An endpoint that only dials out: it meets its peers at a relay (relay.h). All its streams share one connection.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/transport/stream_endpoint.h"

namespace grpc {
class ChannelCredentials;
}

namespace fusionllm::transport {

struct RelayClientOptions {
  std::string address;                                    // of the server that hosts the relay, "host:port"
  std::string name = "broker";                            // that its certificate must hold
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // required
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds keepalive{10'000};
};

class GrpcRelayEndpoint : public StreamEndpoint {
 public:
  // Blocks until the relay lists this endpoint. Errors: UNAVAILABLE after connect_timeout; a refusal (UNAUTHENTICATED, ...) at once.
  static absl::StatusOr<std::unique_ptr<GrpcRelayEndpoint>> Create(EndpointOptions options, RelayClientOptions relay);
  ~GrpcRelayEndpoint() override;
  void Close() override;

 private:
  class Client;
  GrpcRelayEndpoint(EndpointOptions options, std::shared_ptr<Client> client);

  std::shared_ptr<Client> client_;
};

}  // namespace fusionllm::transport
