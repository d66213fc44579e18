// Endpoints on different machines, joined by gRPC streams (proto/fusionllm/v1/peer.proto): each listens, and dials those to whom it sends.
//
// With mutual TLS a peer's name in the handshake must be a name of its certificate, and a dialled server's certificate must hold the name
// that was dialled, whatever its address. The same options on all peers: keepalive may differ, credentials must match.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "lib/transport/stream_endpoint.h"

namespace grpc {
class ChannelCredentials;
class Server;
class ServerCredentials;
}  // namespace grpc

namespace fusionllm::transport {

struct GrpcOptions {
  std::shared_ptr<grpc::ServerCredentials> server_credentials;    // required
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials;  // required
  std::string listen_address = "127.0.0.1:0";                     // port 0: any free one
  // A connection that is silent this long is asked for a sign of life; with none for as long again it is broken.
  std::chrono::milliseconds keepalive{10'000};
};

class GrpcEndpoint : public StreamEndpoint {
 public:
  // Errors: UNAVAILABLE: the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<GrpcEndpoint>> Create(EndpointOptions options, GrpcOptions grpc_options);
  ~GrpcEndpoint() override;

  // The port that was bound.
  int port() const { return port_; }
  // Where a peer listens ("host:port"); takes effect at the next dial. Peers that only dial in need none, until something is sent to them.
  void SetPeerAddress(absl::string_view peer, absl::string_view address);
  void Close() override;

 private:
  class Service;
  class AddressBook;
  GrpcEndpoint(EndpointOptions options, std::shared_ptr<AddressBook> addresses);

  std::shared_ptr<AddressBook> addresses_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace fusionllm::transport
