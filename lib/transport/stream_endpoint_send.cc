#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/transport/retry.h"
#include "lib/transport/stream_endpoint.h"
#include "lib/transport/stream_peer.h"

namespace fusionllm::transport {
namespace {

double NowSeconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

void StreamEndpoint::RunOutgoing(std::shared_ptr<Peer> peer) {
  base::UniqueLock lock(mu_);
  const auto stop = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || peer->forgotten; };
  auto backoff = options_.backoff_min;
  while (true) {
    peer->wake.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stop() || (peer->Usable() && !peer->out.drained()); });
    if (stop()) return;
    if (!peer->out_deadline.has_value()) {
      peer->out_deadline = std::chrono::steady_clock::now() + options_.reconnect_timeout;
      watch_wake_.notify_one();
    }
    const uint64_t session = peer->session;
    peer->connected = false;
    lock.unlock();
    const absl::Status status = RunStream(peer, session);
    lock.lock();
    if (std::exchange(peer->connected, false)) backoff = options_.backoff_min;
    if (stop()) return;
    if (peer->session != session || !peer->Usable()) continue;
    if (!Retryable(status)) {
      FailLocked(*peer, absl::Status(status.code(), absl::StrCat("peer ", peer->name, ": ", status.message())));
      continue;
    }
    peer->last_error = status;
    peer->wake.wait_for(lock, backoff, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stop() || !peer->Usable(); });
    backoff = std::min(backoff * 2, options_.backoff_max);
  }
}

// One connection, from dialling to its end. The result says why it ended; it is meaningless once the session is over.
absl::Status StreamEndpoint::RunStream(const std::shared_ptr<Peer>& peer, uint64_t session) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<FrameStream> stream, dialer_->Dial(peer->name));
  if (options_.decorate_stream) stream = options_.decorate_stream(peer->name, std::move(stream));
  {
    base::MutexLock lock(mu_);
    peer->out_stream = stream.get();
    peer->out_ended = false;
    if (stopping_ || peer->session != session || !peer->Usable()) stream->Cancel();
  }
  absl::Status status = PerformHandshake(*stream, *peer, session);
  if (status.ok()) {
    absl::Status read_status;
    std::thread reader([&] {
      read_status = ReadAcknowledgements(*stream, *peer, session);
      if (!read_status.ok()) stream->Cancel();
      base::MutexLock lock(mu_);
      peer->out_ended = true;
      peer->wake.notify_one();
    });
    status = WriteFrames(*stream, *peer, session);
    if (!status.ok()) stream->Cancel();
    reader.join();
    status.Update(read_status);
  } else if (status.code() != absl::StatusCode::kUnavailable) {
    stream->Cancel();
  }
  {
    base::MutexLock lock(mu_);
    peer->out_stream = nullptr;
  }
  const absl::Status end = stream->Finish();
  // A stream that merely ended leaves its reason in `end`; what we found wrong with it ourselves says more.
  if (!status.ok() && status.code() != absl::StatusCode::kUnavailable) return status;
  if (!end.ok()) return end;
  return status.ok() ? absl::UnavailableError("the connection ended") : status;
}

absl::Status StreamEndpoint::PerformHandshake(FrameStream& stream, Peer& peer, uint64_t session) {
  Frame hello;
  hello.type = FrameType::kHello;
  hello.payload.push_back(
      EncodeHello({options_.name, peer.name, options_.build_version, options_.job_hash, options_.incarnation, session}));
  Seal(hello);
  Frame answer;
  if (!stream.Write(hello) || !stream.Read(&answer)) {
    while (stream.Read(&answer)) {
    }
    return absl::UnavailableError("the connection ended during the handshake");
  }
  FUSIONLLM_RETURN_IF_ERROR(Verify(answer));
  if (answer.type != FrameType::kWelcome) return absl::FailedPreconditionError("the handshake was not answered with a welcome");
  FUSIONLLM_ASSIGN_OR_RETURN(const Hello welcome, DecodeHello(answer));
  if (welcome.from != peer.name) {
    return absl::FailedPreconditionError(absl::StrCat("the endpoint at that address is called ", welcome.from));
  }
  base::MutexLock lock(mu_);
  peer.counters.CountSent(Priority::kControl, hello.wire_bytes());
  peer.counters.CountReceived(Priority::kControl, answer.wire_bytes());
  if (peer.session != session || !peer.Usable()) return absl::CancelledError("the session is over");
  if (welcome.incarnation < peer.incarnation) return absl::CancelledError("the endpoint at that address is an old instance");
  if (peer.incarnation != 0 && welcome.incarnation > peer.incarnation) {
    FailLocked(peer, absl::UnavailableError(absl::StrCat("peer ", peer.name, " has restarted")));
    peer.incarnation = welcome.incarnation;
    ResetLocked(peer);
    return absl::CancelledError("the session is over");
  }
  peer.incarnation = welcome.incarnation;
  FUSIONLLM_RETURN_IF_ERROR(peer.out.Resume(answer.sequence, NowSeconds()));
  peer.out_deadline.reset();
  peer.connected = true;
  if (std::exchange(peer.connected_before, true)) ++peer.counters.reconnects;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status StreamEndpoint::WriteFrames(FrameStream& stream, Peer& peer, uint64_t session) {
  base::UniqueLock lock(mu_);
  while (true) {
    const auto over = [&] { return peer.session != session || !peer.Usable(); };
    peer.wake.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return peer.out_ended || stopping_ || over() || peer.out.HasFrame(); });
    if (peer.out_ended) return absl::OkStatus();
    if (over()) return absl::CancelledError("the session is over");
    Frame frame;
    const bool goodbye = stopping_;
    if (goodbye) {
      frame.type = FrameType::kGoodbye;
    } else {
      frame = *peer.out.Next(NowSeconds());
    }
    peer.counters.CountSent(frame.type == FrameType::kData ? frame.message.priority : Priority::kControl, frame.wire_bytes());
    lock.unlock();
    Seal(frame);
    const bool written = stream.Write(frame);
    if (goodbye) stream.CloseWrites();
    lock.lock();
    changed_.notify_all();  // there may be room in the queue now
    if (!written || goodbye) return absl::OkStatus();
  }
}

absl::Status StreamEndpoint::ReadAcknowledgements(FrameStream& stream, Peer& peer, uint64_t session) {
  Frame frame;
  while (stream.Read(&frame)) {
    FUSIONLLM_RETURN_IF_ERROR(Verify(frame));
    base::MutexLock lock(mu_);
    peer.counters.CountReceived(Priority::kControl, frame.wire_bytes());
    if (peer.session != session) return absl::CancelledError("the session is over");
    if (frame.type == FrameType::kAck) {
      FUSIONLLM_RETURN_IF_ERROR(peer.out.Acknowledge(frame.sequence, NowSeconds()));
      peer.wake.notify_one();
      changed_.notify_all();
    } else if (frame.type == FrameType::kGoodbye) {
      FUSIONLLM_RETURN_IF_ERROR(peer.out.Acknowledge(frame.sequence, NowSeconds()));
      DepartLocked(peer);
    } else {
      return absl::InvalidArgumentError(absl::StrFormat("frame of type %d among acknowledgements", static_cast<int>(frame.type)));
    }
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::transport
