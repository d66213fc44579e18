// What a StreamEndpoint knows of one peer. Private to stream_endpoint*.cc.
#pragma once

#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "lib/base/mutex.h"
#include "lib/transport/incoming.h"
#include "lib/transport/stream_endpoint.h"

namespace fusionllm::transport {

// All but `writer`, `in` and what in_write_mu guards is guarded by StreamEndpoint::mu_, which the analysis of locks cannot say here.
struct StreamEndpoint::Peer {
  Peer(std::string name, const OutgoingLimits& limits) : name(std::move(name)), out(limits) {}

  const std::string name;
  uint64_t incarnation = 0;      // the newest that has spoken; 0: none yet
  absl::Status failed;           // OK while healthy
  uint64_t refused_session = 0;  // the last session of the peer's that was refused for `failed`; 0: none yet
  bool departed = false;         // said goodbye with nothing left undelivered
  bool forgotten = false;
  LinkStats counters;

  // Towards the peer.
  Outgoing out;
  uint64_t session = 0;               // of `out`; a stream started for another session must end
  FrameStream* out_stream = nullptr;  // while RunStream() has one
  bool out_ended = false;             // its reading side has ended
  bool connected_before = false;
  bool connected = false;
  std::optional<TimePoint> out_deadline;  // set while there is something to send and no connection
  absl::Status last_error;                // why the last connection ended
  std::condition_variable wake;           // the writer's
  std::thread writer;

  // From the peer.
  uint64_t in_session = 0;
  std::unique_ptr<Incoming> in;  // owned by the thread in Serve() while in_active
  bool in_active = false;
  FrameStream* in_stream = nullptr;
  std::optional<TimePoint> in_deadline;  // set while a stream that broke may yet be resumed
  base::Mutex in_write_mu;               // one writer of in_write_stream at a time
  FrameStream* in_write_stream ABSL_GUARDED_BY(in_write_mu) = nullptr;
  uint64_t in_taken ABSL_GUARDED_BY(in_write_mu) = 0;  // the next sequence number due; sent with every answer

  bool Usable() const { return failed.ok() && !departed && !forgotten; }
};

}  // namespace fusionllm::transport
