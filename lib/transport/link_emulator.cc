#include "lib/transport/link_emulator.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::transport {
namespace {

constexpr uint64_t kPacketBytes = 1448;  // TCP payload of a 1500-byte Ethernet frame with timestamps
constexpr int64_t kHourNs = 3'600'000'000'000;
constexpr int kResendsMax = 20;

}  // namespace

LinkEmulator::LinkEmulator(std::shared_ptr<SharedBuckets> buckets, std::vector<size_t> path, const EmulatedPath& link, base::CounterRng rng)
    : buckets_(std::move(buckets)),
      path_(std::move(path)),
      latency_ns_(link.latency_ns),
      jitter_ns_(link.jitter_ns),
      loss_(link.loss),
      rng_(rng) {}

absl::StatusOr<LinkEmulator> LinkEmulator::Create(std::shared_ptr<SharedBuckets> buckets, const EmulatedPath& path, uint64_t seed,
                                                  absl::string_view name) {
  if (path.latency_ns < 0 || path.latency_ns > kHourNs || path.jitter_ns < 0 || path.jitter_ns > kHourNs) {
    return absl::InvalidArgumentError(absl::StrFormat("link %s: latency %d ns and jitter %d ns must be 0 to one hour", std::string(name),
                                                      path.latency_ns, path.jitter_ns));
  }
  if (!(path.loss >= 0 && path.loss < 1)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("link %s: loss is %g; it must be at least 0 and less than 1", std::string(name), path.loss));
  }
  std::vector<size_t> indices;
  for (const std::string& bucket : path.buckets) {
    FUSIONLLM_ASSIGN_OR_RETURN(const size_t index, buckets->Find(bucket));
    indices.push_back(index);
  }
  return LinkEmulator(std::move(buckets), std::move(indices), path, base::CounterRng(seed, name));
}

LinkEmulator::Transit LinkEmulator::Pass(int64_t ready_ns, uint64_t bytes) {
  int64_t resend_ns = 0;
  if (loss_ > 0) {
    uint64_t outstanding = (bytes + kPacketBytes - 1) / kPacketBytes;
    for (int round = 0; round < kResendsMax && outstanding > 0; ++round) {
      uint64_t lost = 0;
      for (uint64_t packet = 0; packet < outstanding; ++packet) lost += Draw() < loss_ ? 1 : 0;
      if (lost > 0) resend_ns += std::max<int64_t>(2 * latency_ns_, 1'000'000);
      bytes += lost * kPacketBytes;
      outstanding = lost;
    }
  }
  int64_t sent_ns = ready_ns;
  for (const size_t bucket : path_) sent_ns = std::max(sent_ns, buckets_->Reserve(bucket, ready_ns, bytes));
  const int64_t jitter_ns = jitter_ns_ > 0 ? static_cast<int64_t>(static_cast<double>(Draw()) * static_cast<double>(jitter_ns_)) : 0;
  return {sent_ns, sent_ns + latency_ns_ + jitter_ns + resend_ns};
}

uint64_t LinkEmulator::slice_bytes() const {
  double rate = std::numeric_limits<double>::max();
  for (const size_t bucket : path_) rate = std::min(rate, buckets_->bytes_per_s(bucket));
  return static_cast<uint64_t>(std::clamp(rate * 4e-3, 16.0 * 1024, 256.0 * 1024));
}

}  // namespace fusionllm::transport
