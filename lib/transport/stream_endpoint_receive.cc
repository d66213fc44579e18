#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/transport/retry.h"
#include "lib/transport/stream_endpoint.h"
#include "lib/transport/stream_peer.h"

namespace fusionllm::transport {

absl::Status StreamEndpoint::Accept(FrameStream& stream, const std::vector<std::string>& authenticated_names) {
  {
    base::MutexLock lock(mu_);
    if (stopping_) return absl::UnavailableError(absl::StrCat("endpoint ", options_.name, " is closing"));
    ++accepts_;
  }
  uint64_t session = 0;
  absl::StatusOr<std::shared_ptr<Peer>> peer = Admit(stream, authenticated_names, &session);
  absl::Status status = peer.status();
  if (peer.ok()) {
    status = Serve(stream, **peer, session);
    {
      base::MutexLock writing((*peer)->in_write_mu);
      (*peer)->in_write_stream = nullptr;
    }
    base::MutexLock lock(mu_);
    Peer& p = **peer;
    p.in_active = false;
    p.in_stream = nullptr;
    if (!status.ok() && p.Usable() && p.in_session == session) {
      if (!Retryable(status)) FailLocked(p, status);
      p.in_deadline = std::chrono::steady_clock::now() + options_.reconnect_timeout;
      watch_wake_.notify_one();
    }
  }
  base::MutexLock lock(mu_);
  --accepts_;
  changed_.notify_all();
  return status;
}

absl::Status StreamEndpoint::CheckHello(const Hello& hello, const std::vector<std::string>& authenticated_names) const {
  if (hello.to != options_.name) {
    return absl::FailedPreconditionError(absl::StrCat("this is ", options_.name, ", not ", hello.to, ": the address is wrong"));
  }
  if (hello.job_hash != options_.job_hash) {
    return absl::FailedPreconditionError(absl::StrFormat("%s (build %s) works for job %016x, %s (build %s) for job %016x", options_.name,
                                                         options_.build_version, options_.job_hash, hello.from, hello.build_version,
                                                         hello.job_hash));
  }
  if (hello.incarnation == 0 || hello.session == 0) return absl::InvalidArgumentError("handshake without incarnation or session");
  if (!authenticated_names.empty() &&
      std::find(authenticated_names.begin(), authenticated_names.end(), hello.from) == authenticated_names.end()) {
    return absl::UnauthenticatedError(
        absl::StrCat("peer calls itself ", hello.from, " but its certificate is for ", absl::StrJoin(authenticated_names, ", ")));
  }
  return absl::OkStatus();
}

// The handshake. On success the peer's receiving half belongs to this thread.
absl::StatusOr<std::shared_ptr<StreamEndpoint::Peer>> StreamEndpoint::Admit(FrameStream& stream,
                                                                            const std::vector<std::string>& authenticated_names,
                                                                            uint64_t* session) {
  std::list<Handshake>::iterator handshake;
  {
    base::MutexLock lock(mu_);
    handshake = handshakes_.insert(handshakes_.end(), {&stream, std::chrono::steady_clock::now() + options_.reconnect_timeout});
    watch_wake_.notify_one();
  }
  Frame frame;
  const bool read = stream.Read(&frame);
  base::UniqueLock lock(mu_);
  handshakes_.erase(handshake);
  if (!read) {
    lock.unlock();
    const absl::Status end = stream.Finish();
    return end.ok() ? absl::CancelledError("the stream ended before the handshake") : end;
  }
  FUSIONLLM_RETURN_IF_ERROR(Verify(frame));
  if (frame.type != FrameType::kHello) return absl::FailedPreconditionError("the first frame is no handshake");
  FUSIONLLM_ASSIGN_OR_RETURN(const Hello hello, DecodeHello(frame));
  FUSIONLLM_RETURN_IF_ERROR(CheckHello(hello, authenticated_names));
  *session = hello.session;
  while (true) {
    if (stopping_) return absl::UnavailableError(absl::StrCat("endpoint ", options_.name, " is closing"));
    const std::shared_ptr<Peer> peer = FindOrMakePeer(hello.from);
    if (hello.incarnation < peer->incarnation) {
      return absl::FailedPreconditionError(absl::StrCat("another instance of ", hello.from, " that started later has taken its place"));
    }
    if (peer->incarnation != 0 && hello.incarnation > peer->incarnation) {
      if (!peer->departed) FailLocked(*peer, absl::UnavailableError(absl::StrCat("peer ", peer->name, " has restarted")));
      ResetLocked(*peer);
    }
    peer->incarnation = hello.incarnation;
    // A session made after that refusal is of a peer that has forgotten what failed: it starts anew, as it does once forgotten here.
    if (!peer->failed.ok() && peer->refused_session != 0 && hello.session > peer->refused_session) ResetLocked(*peer);
    if (!peer->failed.ok()) {
      peer->refused_session = hello.session;
      return absl::FailedPreconditionError(absl::StrCat(options_.name, " has given up on ", hello.from, ": ", peer->failed.message()));
    }
    if (hello.session < peer->in_session) return absl::FailedPreconditionError("a newer session has taken this one's place");
    if (peer->in_active) {
      // A new connection means that the peer has given the old one up.
      if (peer->in_stream != nullptr) peer->in_stream->Cancel();
      changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || !peer->in_active; });
      continue;
    }
    peer->in_active = true;
    peer->in_stream = &stream;
    peer->in_deadline.reset();
    peer->departed = false;
    if (peer->in_session != hello.session) {
      Incoming::Admit admit;
      if (options_.admit) {
        admit = [this, name = peer->name](const MessageHeader& header, uint64_t bytes) { return options_.admit(name, header, bytes); };
      }
      peer->in = std::make_unique<Incoming>(options_.message_bytes_max, std::move(admit));
    }
    peer->in_session = hello.session;
    return peer;
  }
}

bool StreamEndpoint::WriteIncoming(Peer& peer, Frame frame) {
  base::MutexLock writing(peer.in_write_mu);
  frame.sequence = peer.in_taken;
  Seal(frame);
  return peer.in_write_stream != nullptr && peer.in_write_stream->Write(frame);
}

// Takes frames until the stream ends. UNAVAILABLE: it broke and may be resumed.
absl::Status StreamEndpoint::Serve(FrameStream& stream, Peer& peer, uint64_t session) {
  {
    base::MutexLock writing(peer.in_write_mu);
    peer.in_write_stream = &stream;
    peer.in_taken = peer.in->next_sequence();
  }
  Frame welcome;
  welcome.type = FrameType::kWelcome;
  welcome.payload.push_back(
      EncodeHello({options_.name, peer.name, options_.build_version, options_.job_hash, options_.incarnation, session}));
  if (!WriteIncoming(peer, std::move(welcome))) return absl::UnavailableError("the connection ended during the handshake");
  Frame frame;
  while (stream.Read(&frame)) {
    const size_t bytes = frame.wire_bytes();
    const bool ack_requested = frame.ack_requested;
    uint32_t oldest_epoch = 0;
    {
      base::MutexLock lock(mu_);
      if (peer.in_session != session || !peer.Usable()) return absl::CancelledError("the session is over");
      peer.counters.CountReceived(frame.type == FrameType::kData ? frame.message.priority : Priority::kControl, bytes);
      oldest_epoch = oldest_epoch_;
      if (frame.type == FrameType::kGoodbye) {
        // Whether the peer has taken all that was sent to it is for the other stream to say; without one there was nothing to take.
        if (peer.out_stream == nullptr && peer.out.drained()) DepartLocked(peer);
        return absl::OkStatus();
      }
    }
    if (frame.type != FrameType::kData && frame.type != FrameType::kSkip) {
      return absl::InvalidArgumentError(
          absl::StrFormat("peer %s sent a frame of type %d among data", peer.name, static_cast<int>(frame.type)));
    }
    absl::StatusOr<std::optional<Incoming::Message>> message = peer.in->Take(std::move(frame), oldest_epoch);
    if (!message.ok()) return absl::Status(message.status().code(), absl::StrCat("from ", peer.name, ": ", message.status().message()));
    {
      // Before the message is delivered: should the receiver close this endpoint's owner, the goodbye must not say that it was lost.
      base::MutexLock writing(peer.in_write_mu);
      peer.in_taken = peer.in->next_sequence();
    }
    if (message->has_value()) {
      base::UniqueLock lock(mu_);
      changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || receiver_; });
      if (!receiver_) return absl::CancelledError("endpoint closed");
      ++peer.counters.messages_received;
      const Receiver receiver = receiver_;
      lock.unlock();
      receiver(peer.name, (*message)->first, std::move((*message)->second));
    }
    if (!ack_requested) continue;
    Frame ack;
    ack.type = FrameType::kAck;
    const size_t ack_bytes = ack.wire_bytes();
    if (!WriteIncoming(peer, std::move(ack))) break;
    base::MutexLock lock(mu_);
    peer.counters.CountSent(Priority::kControl, ack_bytes);
  }
  const absl::Status end = stream.Finish();
  if (!end.ok() && !Retryable(end)) return absl::Status(end.code(), absl::StrCat("from ", peer.name, ": ", end.message()));
  return absl::UnavailableError(absl::StrCat("the connection from ", peer.name, " broke"));
}

}  // namespace fusionllm::transport
