// How chunks travel between the ranks of a group that are in different processes. An interface, because who carries them is not this
// library's matter: an executor's data plane, or a test's queues.
//
// A channel belongs to one group in one plan epoch: what is sent in another never comes. Thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fusionllm::collective {

// Names a chunk; unique per sender and receiver. Calls of a communicator count from 0; meetings before it have negative numbers.
struct Chunk {
  int64_t call = 0;
  int32_t round = 0;
  int32_t part = 0;
  auto operator<=>(const Chunk&) const = default;
};

class PointToPointChannel {
 public:
  virtual ~PointToPointChannel() = default;
  // Hands bytes over; returns before they have arrived. May block while queues are full. Chunks to one rank may overtake each other.
  // Errors: Unavailable when the peer is lost, Cancelled when the epoch is over.
  virtual absl::Status Send(int to_rank, const Chunk& chunk, std::vector<std::byte> bytes) = 0;
  // Blocks until the chunk is there. Errors: DeadlineExceeded at `deadline`; what Cancel said.
  virtual absl::StatusOr<std::vector<std::byte>> Receive(int from_rank, const Chunk& chunk, absl::Time deadline) = 0;
  // Ends every Receive, now and later, with `why` (not OK). The first call decides.
  virtual void Cancel(absl::Status why) = 0;
};

}  // namespace fusionllm::collective
