// Moves framed messages between named endpoints, reliably and in order per (peer, priority).
//
// Delivery: every message arrives exactly once, in the order of Send() among messages of the same peer and priority, until the peer is
// declared broken. A connection that drops is resumed where it stopped; nothing is lost or repeated. A peer that stays away longer than the
// endpoint's reconnect timeout, restarts under a new incarnation, or sends what cannot be trusted (bad checksum, absurd length, foreign
// protocol) is broken: its queues are dropped and the failure callback runs once. It stays broken until ForgetPeer(), until it comes back
// with a newer incarnation, or until it was refused once for that and has then forgotten this endpoint itself.
// Threads: every method may be called from any thread. Callbacks run on transport threads with no lock held: those of one peer one after
// the other, those of different peers at the same time. A receiver that blocks holds back its peer, control messages included. Callbacks
// may call everything here except Close(). Limits: messages to 4 GiB, queued and unacknowledged bytes per peer bounded by options, <= 64
// peers is what the thread-per-peer implementations are meant for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/transport/message.h"
#include "lib/transport/payload.h"

namespace fusionllm::transport {

// Counters of one peer since the endpoint was made; the estimates are of the direction towards the peer.
struct LinkStats {
  uint64_t wire_bytes_sent = 0;  // with framing, acknowledgements and what was sent again after a reconnect
  // The same by Priority: data by its own, handshakes and acknowledgements as control. They add up to wire_bytes_sent.
  std::array<uint64_t, kPriorityCount> wire_bytes_sent_by_priority = {};
  uint64_t wire_bytes_received = 0;
  std::array<uint64_t, kPriorityCount> wire_bytes_received_by_priority = {};  // likewise
  uint64_t messages_sent = 0;                                                 // handed to the wire in full
  uint64_t messages_received = 0;
  uint64_t reconnects = 0;
  double bandwidth_bytes_per_s = 0;  // smoothed, from real traffic; 0: nothing measured yet
  uint64_t bandwidth_samples = 0;    // measurements in it: what sends little is measured seldom
  double rtt_s = 0;                  // smoothed, of small frames; 0: nothing measured yet

  void CountSent(Priority priority, uint64_t wire_bytes) {
    wire_bytes_sent += wire_bytes;
    wire_bytes_sent_by_priority[static_cast<size_t>(priority)] += wire_bytes;
  }
  void CountReceived(Priority priority, uint64_t wire_bytes) {
    wire_bytes_received += wire_bytes;
    wire_bytes_received_by_priority[static_cast<size_t>(priority)] += wire_bytes;
  }
};

class Endpoint {
 public:
  using Receiver = std::function<void(absl::string_view from, const MessageHeader& header, Payload payload)>;
  using PeerFailure = std::function<void(absl::string_view peer, const absl::Status& why)>;

  virtual ~Endpoint() = default;

  virtual absl::string_view name() const = 0;

  // Queues a message; returns before it is delivered. Blocks while the peer's queue is full (a message larger than the whole queue is taken
  // when the queue is empty; control messages never block). The payload is shared, not copied.
  // Errors: NOT_FOUND: no way to that peer is known; UNAVAILABLE or the peer's failure: it is broken; CANCELLED: this endpoint is closed,
  // or CancelEpoch() outdated the message; INVALID_ARGUMENT: over the size limit.
  virtual absl::Status Send(absl::string_view peer, const MessageHeader& header, Payload payload) = 0;

  // The error with which Send() would refuse such a message at once, OK if it would take it or wait.
  virtual absl::Status CanSend(absl::string_view peer, const MessageHeader& header, size_t bytes) const = 0;

  // Received payloads are aligned to 64 bytes. Messages that come before a receiver is set wait for it.
  virtual void SetReceiver(Receiver receiver) = 0;
  virtual void SetPeerFailure(PeerFailure callback) = 0;

  // Drops queued, unacknowledged and half-received messages of epochs < epoch, and refuses such messages from now on, both ways. A blocked
  // Send() of such a message returns. Messages of Priority::kControl are exempt: they carry the agreement on epochs itself.
  virtual void CancelEpoch(uint32_t epoch) = 0;

  // Drops all state of a peer, its failure included, so that it can be used again. Does not wait.
  virtual void ForgetPeer(absl::string_view peer) = 0;
  // The same, unless the peer is well and has spoken as this incarnation or a later one: of a peer that others say has restarted, before
  // this endpoint noticed by itself, which it would take for a failure. What is left of the former one, a failure not yet reported
  // included, counts no more. False: there was nothing else to forget.
  virtual bool ForgetPreviousIncarnation(absl::string_view peer, uint64_t incarnation) = 0;

  virtual LinkStats stats(absl::string_view peer) const = 0;

  // Refuses new messages, delivers what is queued as far as the linger time allows, says goodbye to peers, joins all threads. No callback
  // runs after it returns. Idempotent.
  virtual void Close() = 0;
};

}  // namespace fusionllm::transport
