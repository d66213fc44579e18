// Endpoint over frame streams: sessions, resumption, failure. What carries the frames (pipes, gRPC, relay) is a Dialer and calls of
// Accept().
//
// A stream carries data one way, from the side that dialled it, and acknowledgements back; two peers that talk both ways use two streams,
// so there is no tie to break when both dial. Per peer: one writer thread, one thread that reads acknowledgements, and the caller's thread
// in Accept(). One more thread per endpoint watches deadlines and runs failure callbacks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/frame_stream.h"
#include "lib/transport/outgoing.h"

namespace fusionllm::transport {

struct EndpointOptions {
  std::string name;           // 1 to 253 bytes, unique in the job
  uint64_t job_hash = 0;      // peers of another job are refused
  uint64_t incarnation = 0;   // must grow with every start under the same name; 0: taken from the wall clock
  std::string build_version;  // shown in refusals
  OutgoingLimits limits;
  uint64_t message_bytes_max = kMessageBytesMax;
  // Whether a message of so many bytes is to be received; asked when it begins, before memory is taken for it. Others are passed over as if
  // they had not been sent. Called as receivers are (endpoint.h). Empty: all are.
  std::function<bool(absl::string_view from, const MessageHeader& header, uint64_t bytes)> admit;
  // How long a peer may stay unreachable before it is broken.
  std::chrono::milliseconds reconnect_timeout{10'000};
  std::chrono::milliseconds backoff_min{20};
  std::chrono::milliseconds backoff_max{1'000};
  // How long Close() waits for queued messages to be acknowledged and for peers to hang up.
  std::chrono::milliseconds linger{1'000};
  // Wraps every outgoing stream; for fault injection.
  std::function<std::unique_ptr<FrameStream>(absl::string_view peer, std::unique_ptr<FrameStream>)> decorate_stream;
};

class StreamEndpoint : public Endpoint {
 public:
  StreamEndpoint(EndpointOptions options, std::shared_ptr<Dialer> dialer);
  ~StreamEndpoint() override;

  absl::string_view name() const override { return options_.name; }
  absl::Status Send(absl::string_view peer, const MessageHeader& header, Payload payload) override;
  absl::Status CanSend(absl::string_view peer, const MessageHeader& header, size_t bytes) const override;
  void SetReceiver(Receiver receiver) override;
  void SetPeerFailure(PeerFailure callback) override;
  void CancelEpoch(uint32_t epoch) override;
  void ForgetPeer(absl::string_view peer) override;
  bool ForgetPreviousIncarnation(absl::string_view peer, uint64_t incarnation) override;
  LinkStats stats(absl::string_view peer) const override;
  void Close() override;

  // Serves a stream that a peer dialled, on the caller's thread, until it ends; the result is the status to end it with.
  // `authenticated_names`: when not empty, the handshake must come from one of them (UNAUTHENTICATED otherwise).
  absl::Status Accept(FrameStream& stream, const std::vector<std::string>& authenticated_names = {});

  const EndpointOptions& options() const { return options_; }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Peer;
  struct Handshake {
    FrameStream* stream;
    TimePoint deadline;
  };

  std::shared_ptr<Peer> FindOrMakePeer(absl::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckTarget(absl::string_view peer, size_t bytes) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckSend(const Peer& peer, const MessageHeader& header) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EmptyQueue(Peer& peer) const;
  void FailLocked(Peer& peer, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DepartLocked(Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetLocked(std::shared_ptr<Peer> peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ResetLocked(Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void RunOutgoing(std::shared_ptr<Peer> peer);
  absl::Status RunStream(const std::shared_ptr<Peer>& peer, uint64_t session);
  absl::Status PerformHandshake(FrameStream& stream, Peer& peer, uint64_t session);
  absl::Status WriteFrames(FrameStream& stream, Peer& peer, uint64_t session);
  absl::Status ReadAcknowledgements(FrameStream& stream, Peer& peer, uint64_t session);

  absl::StatusOr<std::shared_ptr<Peer>> Admit(FrameStream& stream, const std::vector<std::string>& authenticated_names, uint64_t* session);
  absl::Status CheckHello(const Hello& hello, const std::vector<std::string>& authenticated_names) const;
  absl::Status Serve(FrameStream& stream, Peer& peer, uint64_t session);
  static bool WriteIncoming(Peer& peer, Frame frame);

  void RunWatch();
  TimePoint CheckDeadlinesLocked(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const EndpointOptions options_;
  const std::shared_ptr<Dialer> dialer_;

  mutable base::Mutex mu_;           // never held during callbacks or stream reads and writes
  std::condition_variable changed_;  // anything that Send(), Accept() or Close() may wait for
  std::condition_variable watch_wake_;
  Receiver receiver_ ABSL_GUARDED_BY(mu_);
  PeerFailure peer_failure_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Peer>, std::less<>> peers_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Peer>> forgotten_ ABSL_GUARDED_BY(mu_);  // their writers are still to be joined
  std::deque<std::pair<std::string, absl::Status>> failures_ ABSL_GUARDED_BY(mu_);
  std::list<Handshake> handshakes_ ABSL_GUARDED_BY(mu_);
  uint32_t oldest_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t sessions_ ABSL_GUARDED_BY(mu_) = 0;
  int accepts_ ABSL_GUARDED_BY(mu_) = 0;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;   // no new messages, streams or peers
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;  // streams are to end
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  TimePoint stop_deadline_ ABSL_GUARDED_BY(mu_);
  base::Mutex close_mu_;  // one Close() at a time
  std::thread watch_;
};

}  // namespace fusionllm::transport
