#include "lib/transport/stream_endpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/transport/stream_peer.h"

// Public methods, failure and the watch thread. The sending side is in stream_endpoint_send.cc, the receiving side in
// stream_endpoint_receive.cc.
namespace fusionllm::transport {

StreamEndpoint::StreamEndpoint(EndpointOptions options, std::shared_ptr<Dialer> dialer)
    : options_([&] {
        if (options.incarnation == 0) {
          options.incarnation = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
        }
        options.limits.chunk_bytes = std::clamp<size_t>(options.limits.chunk_bytes, 1, kFramePayloadBytesMax);
        options.message_bytes_max = std::min<uint64_t>(options.message_bytes_max, kMessageBytesMax);
        return std::move(options);
      }()),
      dialer_(std::move(dialer)),
      watch_([this] { RunWatch(); }) {}

StreamEndpoint::~StreamEndpoint() { StreamEndpoint::Close(); }

std::shared_ptr<StreamEndpoint::Peer> StreamEndpoint::FindOrMakePeer(absl::string_view name) {
  const auto found = peers_.find(std::string(name));
  if (found != peers_.end()) return found->second;
  auto peer = std::make_shared<Peer>(std::string(name), options_.limits);
  peer->session = ++sessions_;
  peers_[peer->name] = peer;
  return peer;
}

absl::Status StreamEndpoint::CheckSend(const Peer& peer, const MessageHeader& header) const {
  if (closing_) return absl::CancelledError(absl::StrCat("endpoint ", options_.name, " is closed"));
  if (peer.forgotten) return absl::UnavailableError(absl::StrCat("peer ", peer.name, " was dropped"));
  if (!peer.failed.ok()) return peer.failed;
  if (peer.departed) return absl::UnavailableError(absl::StrCat("peer ", peer.name, " has closed"));
  if (header.epoch < oldest_epoch_ && header.priority != Priority::kControl) {
    return absl::CancelledError(
        absl::StrFormat("message of epoch %d to %s: epochs before %d are cancelled", header.epoch, peer.name, oldest_epoch_));
  }
  return absl::OkStatus();
}

absl::Status StreamEndpoint::CheckTarget(absl::string_view peer, size_t bytes) const {
  if (bytes > options_.message_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrFormat("message of %d bytes to %s is over the limit of %d", bytes, std::string(peer), options_.message_bytes_max));
  }
  if (peer.empty() || peer.size() > 253) return absl::InvalidArgumentError("a peer's name has 1 to 253 bytes");
  return dialer_->CanReach(peer);
}

absl::Status StreamEndpoint::CanSend(absl::string_view to, const MessageHeader& header, size_t bytes) const {
  FUSIONLLM_RETURN_IF_ERROR(CheckTarget(to, bytes));
  base::MutexLock lock(mu_);
  const auto found = peers_.find(std::string(to));
  if (found != peers_.end()) return CheckSend(*found->second, header);
  return CheckSend(Peer(std::string(to), options_.limits), header);
}

absl::Status StreamEndpoint::Send(absl::string_view to, const MessageHeader& header, Payload payload) {
  FUSIONLLM_RETURN_IF_ERROR(CheckTarget(to, payload.size()));
  base::UniqueLock lock(mu_);
  if (closing_) return absl::CancelledError(absl::StrCat("endpoint ", options_.name, " is closed"));
  const std::shared_ptr<Peer> peer = FindOrMakePeer(to);
  while (true) {
    FUSIONLLM_RETURN_IF_ERROR(CheckSend(*peer, header));
    if (peer->out.HasRoom(header, payload.size())) break;
    changed_.wait(lock);
  }
  peer->out.Push(header, std::move(payload));
  if (!peer->writer.joinable()) peer->writer = std::thread([this, peer] { RunOutgoing(peer); });
  peer->wake.notify_one();
  return absl::OkStatus();
}

void StreamEndpoint::SetReceiver(Receiver receiver) {
  base::MutexLock lock(mu_);
  receiver_ = std::move(receiver);
  changed_.notify_all();
}

void StreamEndpoint::SetPeerFailure(PeerFailure callback) {
  base::MutexLock lock(mu_);
  peer_failure_ = std::move(callback);
  watch_wake_.notify_one();
}

void StreamEndpoint::CancelEpoch(uint32_t epoch) {
  base::MutexLock lock(mu_);
  oldest_epoch_ = std::max(oldest_epoch_, epoch);
  for (auto& [name, peer] : peers_) {
    peer->out.CancelEpoch(epoch);
    peer->wake.notify_one();
  }
  changed_.notify_all();
}

void StreamEndpoint::ForgetPeer(absl::string_view name) {
  base::MutexLock lock(mu_);
  if (const auto found = peers_.find(std::string(name)); found != peers_.end()) ForgetLocked(found->second);
}

bool StreamEndpoint::ForgetPreviousIncarnation(absl::string_view name, uint64_t incarnation) {
  base::MutexLock lock(mu_);
  const auto found = peers_.find(std::string(name));
  if (found == peers_.end()) return false;
  if (found->second->Usable() && found->second->incarnation >= incarnation) {
    std::erase_if(failures_, [&](const auto& failure) { return failure.first == name; });
    return false;
  }
  ForgetLocked(found->second);
  return true;
}

void StreamEndpoint::ForgetLocked(std::shared_ptr<Peer> peer) {
  peers_.erase(peer->name);
  peer->forgotten = true;
  std::erase_if(failures_, [&](const auto& failure) { return failure.first == peer->name; });
  if (peer->out_stream != nullptr) peer->out_stream->Cancel();
  if (peer->in_stream != nullptr) peer->in_stream->Cancel();
  peer->wake.notify_one();
  changed_.notify_all();
  forgotten_.push_back(std::move(peer));
  watch_wake_.notify_one();
}

LinkStats StreamEndpoint::stats(absl::string_view name) const {
  base::MutexLock lock(mu_);
  const auto found = peers_.find(std::string(name));
  if (found == peers_.end()) return {};
  LinkStats stats = found->second->counters;
  stats.messages_sent += found->second->out.messages_sent();
  stats.bandwidth_bytes_per_s = found->second->out.bandwidth_bytes_per_s();
  stats.bandwidth_samples = found->second->out.bandwidth_samples();
  stats.rtt_s = found->second->out.rtt_s();
  return stats;
}

void StreamEndpoint::EmptyQueue(Peer& peer) const {
  peer.counters.messages_sent += peer.out.messages_sent();
  peer.out = Outgoing(options_.limits);
}

void StreamEndpoint::FailLocked(Peer& peer, const absl::Status& why) {
  if (!peer.failed.ok() || peer.forgotten || stopping_) return;
  peer.failed = why;
  peer.refused_session = 0;
  EmptyQueue(peer);
  peer.out_deadline.reset();
  peer.in_deadline.reset();
  failures_.emplace_back(peer.name, why);
  if (peer.out_stream != nullptr) peer.out_stream->Cancel();
  if (peer.in_stream != nullptr) peer.in_stream->Cancel();
  peer.wake.notify_one();
  changed_.notify_all();
  watch_wake_.notify_one();
}

void StreamEndpoint::DepartLocked(Peer& peer) {
  if (!peer.Usable()) return;
  if (!peer.out.drained())
    return FailLocked(peer, absl::UnavailableError(absl::StrCat("peer ", peer.name, " closed before it had taken all messages")));
  peer.departed = true;
  peer.wake.notify_one();
  changed_.notify_all();
}

// The peer has restarted, or starts anew after a failure that it was told of: nothing of before counts.
void StreamEndpoint::ResetLocked(Peer& peer) {
  peer.failed = absl::OkStatus();
  peer.departed = false;
  EmptyQueue(peer);
  peer.session = ++sessions_;
  peer.in_session = 0;
  peer.out_deadline.reset();
  peer.in_deadline.reset();
  if (peer.out_stream != nullptr) peer.out_stream->Cancel();
  if (peer.in_stream != nullptr) peer.in_stream->Cancel();
  peer.wake.notify_one();
}

void StreamEndpoint::Close() {
  base::MutexLock one_at_a_time(close_mu_);
  std::vector<std::shared_ptr<Peer>> peers;
  {
    base::UniqueLock lock(mu_);
    if (closed_) return;
    closing_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, options_.linger, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return std::all_of(peers_.begin(), peers_.end(),
                         [](const auto& entry) { return !entry.second->Usable() || entry.second->out.drained(); });
    });
    stopping_ = true;
    stop_deadline_ = std::chrono::steady_clock::now() + options_.linger;
    for (auto& [name, peer] : peers_) {
      peers.push_back(peer);
      peer->wake.notify_one();
    }
    changed_.notify_all();
    watch_wake_.notify_one();
  }
  if (options_.linger.count() > 0) {
    for (const auto& peer : peers) {
      Frame goodbye;
      goodbye.type = FrameType::kGoodbye;
      WriteIncoming(*peer, std::move(goodbye));
    }
  }
  for (const auto& peer : peers) {
    if (peer->writer.joinable()) peer->writer.join();
  }
  {
    base::UniqueLock lock(mu_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return accepts_ == 0; });
    closed_ = true;
    watch_wake_.notify_one();
  }
  watch_.join();
}

StreamEndpoint::TimePoint StreamEndpoint::CheckDeadlinesLocked(TimePoint now) {
  TimePoint next = now + std::chrono::hours(1);
  const auto passed = [&](const std::optional<TimePoint>& deadline) {
    if (!deadline.has_value()) return false;
    if (*deadline <= now) return true;
    next = std::min(next, *deadline);
    return false;
  };
  const double seconds = std::chrono::duration<double>(options_.reconnect_timeout).count();
  for (auto& [name, peer] : peers_) {
    if (passed(peer->out_deadline)) {
      FailLocked(*peer, absl::UnavailableError(absl::StrFormat("peer %s could not be reached for %g s; last error: %s", name, seconds,
                                                               peer->last_error.ok() ? "no answer" : peer->last_error.ToString())));
    }
    if (passed(peer->in_deadline)) {
      FailLocked(*peer, absl::UnavailableError(absl::StrFormat("peer %s went away and did not come back for %g s", name, seconds)));
    }
  }
  for (Handshake& handshake : handshakes_) {
    if (passed(handshake.deadline)) handshake.stream->Cancel();
  }
  if (stopping_) {
    if (passed(stop_deadline_)) {
      next = now + std::chrono::milliseconds(20);  // streams may still be in the making
      for (auto& [name, peer] : peers_) {
        if (peer->out_stream != nullptr) peer->out_stream->Cancel();
        if (peer->in_stream != nullptr) peer->in_stream->Cancel();
      }
    }
    for (Handshake& handshake : handshakes_) handshake.stream->Cancel();
  }
  return next;
}

void StreamEndpoint::RunWatch() {
  base::UniqueLock lock(mu_);
  while (true) {
    if (peer_failure_ && !failures_.empty() && !stopping_) {
      const auto [name, why] = std::move(failures_.front());
      failures_.pop_front();
      const PeerFailure callback = peer_failure_;
      lock.unlock();
      callback(name, why);
      lock.lock();
      continue;
    }
    if (!forgotten_.empty()) {
      std::vector<std::shared_ptr<Peer>> forgotten;
      forgotten.swap(forgotten_);
      lock.unlock();
      for (const auto& peer : forgotten) {
        if (peer->writer.joinable()) peer->writer.join();
      }
      lock.lock();
      continue;
    }
    if (closed_) return;
    const TimePoint next = CheckDeadlinesLocked(std::chrono::steady_clock::now());
    if (peer_failure_ && !failures_.empty() && !stopping_) continue;
    watch_wake_.wait_until(lock, next);
  }
}

}  // namespace fusionllm::transport
