// Two ways to peers behind one endpoint: direct connections, and a relay for peers that cannot be dialled.
//
// A peer's address picks the way towards it: "host:port" is dialled, "relay:NAME" met at the relay. What arrives is taken from both, so the
// two directions of a pair may differ. When a peer changes its way, what was sent the old way is not resent.
// Thread-safe, as transport::Endpoint says.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "lib/base/mutex.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/grpc/grpc_endpoint.h"
#include "lib/transport/grpc/relay_endpoint.h"
#include "services/peer_address.h"

namespace fusionllm::services {

class RouteEndpoint final : public transport::Endpoint {
 public:
  // `relay` may be null: then peers at a relay cannot be reached, and Send to them is NOT_FOUND.
  RouteEndpoint(std::unique_ptr<transport::GrpcEndpoint> direct, std::unique_ptr<transport::GrpcRelayEndpoint> relay);

  void SetPeerAddress(const std::string& peer, const std::string& address);

  absl::string_view name() const override { return direct_->name(); }
  absl::Status Send(absl::string_view peer, const transport::MessageHeader& header, transport::Payload payload) override;
  absl::Status CanSend(absl::string_view peer, const transport::MessageHeader& header, size_t bytes) const override;
  void SetReceiver(Receiver receiver) override;
  void SetPeerFailure(PeerFailure callback) override;
  void CancelEpoch(uint32_t epoch) override;
  void ForgetPeer(absl::string_view peer) override;
  bool ForgetPreviousIncarnation(absl::string_view peer, uint64_t incarnation) override;
  // Counters of both ways; the estimates are those of the way towards the peer.
  transport::LinkStats stats(absl::string_view peer) const override;
  void Close() override;

 private:
  bool ByRelay(absl::string_view peer) const;
  absl::StatusOr<transport::Endpoint*> WayTo(absl::string_view peer) const;

  const std::unique_ptr<transport::GrpcEndpoint> direct_;
  const std::unique_ptr<transport::GrpcRelayEndpoint> relay_;
  mutable base::Mutex mutex_;
  std::map<std::string, bool> by_relay_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::services
