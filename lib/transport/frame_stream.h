// A live connection that carries frames: what differs between in-process pipes, gRPC and the relay.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/transport/frame.h"

namespace fusionllm::transport {

// Frames arrive whole, once and in order, or the stream ends. One thread may read while another writes; Cancel() may be called from any
// thread.
class FrameStream {
 public:
  virtual ~FrameStream() = default;
  // Blocks for flow control. False: the stream has ended.
  virtual bool Write(const Frame& frame) = 0;
  // Blocks. False: the stream has ended, or what came was no frame (then Finish() says what was wrong with it).
  virtual bool Read(Frame* frame) = 0;
  // Nothing more will be written; the other side's Read() ends after what is under way.
  virtual void CloseWrites() = 0;
  // Ends the stream at once; blocked calls return false.
  virtual void Cancel() = 0;
  // Why the stream ended; OK for an orderly end. Called once, after Read() returned false and no call is under way.
  virtual absl::Status Finish() = 0;
};

// Makes outgoing streams. Thread-safe.
class Dialer {
 public:
  virtual ~Dialer() = default;
  // NOT_FOUND when there is no way to `peer`; checked by Send().
  virtual absl::Status CanReach(absl::string_view peer) const = 0;
  // Does not wait for the peer: an unreachable one shows as a stream that ends.
  virtual absl::StatusOr<std::unique_ptr<FrameStream>> Dial(absl::string_view peer) = 0;
};

}  // namespace fusionllm::transport
