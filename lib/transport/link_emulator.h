// When a slice of bytes sent over an emulated link arrives: bandwidth, latency, jitter, loss. No clock and no threads: times in, times out.
//
// Bandwidth: a slice draws from every bucket of its path at once and has passed when the last bucket lets it go, so the slowest or busiest
// one sets the pace and all senders through a bucket share it slice by slice. Latency is one-way and added after that; jitter adds a
// uniform share of [0, jitter). Loss: the stream below is reliable, so a lost packet (of 1448 bytes) shows as its retransmission does: its
// bytes pass the buckets again and the slice arrives one round trip (twice the latency, 1 ms at least) later, for each time it is lost.
// Congestion control, which would slow down besides, is not modelled: loss costs less here than it does plain TCP.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/philox.h"
#include "lib/transport/shared_buckets.h"

namespace fusionllm::transport {

// What a topology says of one directed pair of devices.
struct EmulatedPath {
  std::vector<std::string> buckets;  // names in SharedBuckets; none: unlimited
  int64_t latency_ns = 0;            // 0 to one hour, as jitter_ns
  int64_t jitter_ns = 0;
  double loss = 0;  // of a packet, in [0, 1)
};

class LinkEmulator {
 public:
  struct Transit {
    int64_t sent_ns;     // the sender's line is free again
    int64_t arrival_ns;  // the receiver has the slice; may be out of order under jitter and loss
  };

  // `name` and `seed` make the random numbers of jitter and loss. Errors: NOT_FOUND: a bucket; INVALID_ARGUMENT: latency, jitter or loss.
  static absl::StatusOr<LinkEmulator> Create(std::shared_ptr<SharedBuckets> buckets, const EmulatedPath& path, uint64_t seed,
                                             absl::string_view name);

  // A slice whose sender could begin at ready_ns.
  Transit Pass(int64_t ready_ns, uint64_t bytes);

  // Small enough that a control message waits some milliseconds at most, large enough to wake up seldom: what passes in 4 ms, 16 to 256
  // KiB.
  uint64_t slice_bytes() const;

 private:
  LinkEmulator(std::shared_ptr<SharedBuckets> buckets, std::vector<size_t> path, const EmulatedPath& link, base::CounterRng rng);
  float Draw() { return rng_.Uniform(draws_++); }

  std::shared_ptr<SharedBuckets> buckets_;
  std::vector<size_t> path_;
  int64_t latency_ns_, jitter_ns_;
  double loss_;
  base::CounterRng rng_;
  uint64_t draws_ = 0;
};

}  // namespace fusionllm::transport
