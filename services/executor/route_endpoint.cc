#include "services/executor/route_endpoint.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::services {

using transport::LinkStats;

RouteEndpoint::RouteEndpoint(std::unique_ptr<transport::GrpcEndpoint> direct, std::unique_ptr<transport::GrpcRelayEndpoint> relay)
    : direct_(std::move(direct)), relay_(std::move(relay)) {}

void RouteEndpoint::SetPeerAddress(const std::string& peer, const std::string& address) {
  const bool by_relay = absl::StartsWith(address, kRelayPrefix);
  {
    const base::MutexLock lock(mutex_);
    by_relay_[peer] = by_relay;
  }
  if (!by_relay) direct_->SetPeerAddress(peer, address);
}

bool RouteEndpoint::ByRelay(absl::string_view peer) const {
  const base::MutexLock lock(mutex_);
  const auto found = by_relay_.find(std::string(peer));
  return found != by_relay_.end() && found->second;
}

absl::StatusOr<transport::Endpoint*> RouteEndpoint::WayTo(absl::string_view peer) const {
  if (!ByRelay(peer)) return direct_.get();
  if (relay_ == nullptr)
    return absl::NotFoundError(absl::StrCat(peer, " is only reachable through a relay, and this executor was given none"));
  return relay_.get();
}

absl::Status RouteEndpoint::Send(absl::string_view peer, const transport::MessageHeader& header, transport::Payload payload) {
  FUSIONLLM_ASSIGN_OR_RETURN(transport::Endpoint* const way, WayTo(peer));
  return way->Send(peer, header, std::move(payload));
}

absl::Status RouteEndpoint::CanSend(absl::string_view peer, const transport::MessageHeader& header, size_t bytes) const {
  FUSIONLLM_ASSIGN_OR_RETURN(const transport::Endpoint* const way, WayTo(peer));
  return way->CanSend(peer, header, bytes);
}

void RouteEndpoint::SetReceiver(Receiver receiver) {
  if (relay_ != nullptr) relay_->SetReceiver(receiver);
  direct_->SetReceiver(std::move(receiver));
}

void RouteEndpoint::SetPeerFailure(PeerFailure callback) {
  if (relay_ != nullptr) relay_->SetPeerFailure(callback);
  direct_->SetPeerFailure(std::move(callback));
}

void RouteEndpoint::CancelEpoch(uint32_t epoch) {
  if (relay_ != nullptr) relay_->CancelEpoch(epoch);
  direct_->CancelEpoch(epoch);
}

void RouteEndpoint::ForgetPeer(absl::string_view peer) {
  if (relay_ != nullptr) relay_->ForgetPeer(peer);
  direct_->ForgetPeer(peer);
}

bool RouteEndpoint::ForgetPreviousIncarnation(absl::string_view peer, uint64_t incarnation) {
  const bool relayed = relay_ != nullptr && relay_->ForgetPreviousIncarnation(peer, incarnation);
  return direct_->ForgetPreviousIncarnation(peer, incarnation) || relayed;
}

LinkStats RouteEndpoint::stats(absl::string_view peer) const {
  LinkStats direct = direct_->stats(peer);
  if (relay_ == nullptr) return direct;
  LinkStats relayed = relay_->stats(peer);
  if (ByRelay(peer)) std::swap(direct, relayed);
  for (size_t p = 0; p < transport::kPriorityCount; ++p) {
    direct.CountSent(static_cast<transport::Priority>(p), relayed.wire_bytes_sent_by_priority[p]);
    direct.CountReceived(static_cast<transport::Priority>(p), relayed.wire_bytes_received_by_priority[p]);
  }
  direct.messages_sent += relayed.messages_sent;
  direct.messages_received += relayed.messages_received;
  direct.reconnects += relayed.reconnects;
  return direct;
}

void RouteEndpoint::Close() {
  if (relay_ != nullptr) relay_->Close();
  direct_->Close();
}

}  // namespace fusionllm::services
