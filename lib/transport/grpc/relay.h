// A switch for endpoints that can only dial out: everyone dials the relay, and the relay joins their streams in pairs.
//
// Host it in a server that all can reach (the broker's): builder.RegisterService(relay.service()). With mutual TLS a caller must go by a
// name of its certificate; the relay vouches for names to the others, since TLS ends here: peers trust the relay as they trust the broker.
// Frames pass unread and uncopied, each pair on streams of its own, so a slow receiver holds back its own senders alone (HTTP/2 flow
// control). Threads: two for each joined pair and direction, one for each endpoint that listens. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace grpc {
class ServerContext;
class Service;
}  // namespace grpc

namespace fusionllm::transport {

struct RelayOptions {
  std::chrono::milliseconds answer_timeout{10'000};  // for the peer to answer a dial
  // Refuse callers that show no certificate; for servers that let such callers in for other calls. Without it callers without a
  // certificate go by the name they give.
  bool require_certificate = false;
  // Asked at the beginning of each call; what it gives is held until the call ends, and an error is the call's answer. May be empty. Called
  // from several threads; must not block.
  std::function<absl::StatusOr<std::shared_ptr<void>>(const grpc::ServerContext& context)> enter;
};

class Relay {
 public:
  explicit Relay(RelayOptions options = {});
  ~Relay();

  grpc::Service* service() const;
  // Names that can be dialled now.
  std::vector<std::string> endpoints() const;
  // Ends all calls; to be called before the server is shut down. Idempotent.
  void Shutdown();

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace fusionllm::transport
