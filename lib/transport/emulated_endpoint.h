// An Endpoint whose messages arrive as over the links of a topology. Works over any other endpoint, in one process or between processes of
// one machine (both ends must wrap theirs and share clock and buckets).
//
// The sender draws a message's wire bytes from the buckets of its path slice by slice, the most urgent message first, and hands the message
// on while its last slice is passing, stamped with its arrival time; the receiver's side holds it until then. The true transport's own time
// is thus hidden inside the emulated one, as long as it is shorter. Send() blocks for a full queue only, never for latency. Peers without a
// path (services, not devices) are passed through. Threads: one for each peer with a path, one for deliveries; they sleep until the next
// slice or arrival.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/transport/clock.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/link_emulator.h"

namespace fusionllm::transport {

struct EmulationOptions {
  std::shared_ptr<SharedBuckets> buckets;
  std::map<std::string, EmulatedPath> paths;  // by the peer's name; from this endpoint to it
  uint64_t seed = 0;
  Clock* clock = &MonotonicClock();
  // A link thread that wakes up late makes up for it, since a real link would have gone on without it; but not for more than this.
  int64_t catch_up_ns_max = 250'000'000;
  size_t queue_bytes_max = 64u << 20;       // to each peer, and again for what has arrived ahead of its time
  uint64_t chunk_bytes = 1u << 20;          // of the inner endpoint, to count the bytes of frames
  std::chrono::milliseconds linger{1'000};  // how long Close() lets queued messages pass the links
};

// Takes the inner endpoint over, callbacks and closing included; those who share it must not set callbacks again. On an error the inner
// endpoint stays as it was.
absl::StatusOr<std::unique_ptr<Endpoint>> MakeEmulatedEndpoint(std::shared_ptr<Endpoint> inner, EmulationOptions options);

}  // namespace fusionllm::transport
