// The capacity of emulated links, shared by all processes of a run: each resource of a topology (a link between sites, a port, an uplink)
// is one token bucket, and all who pass it draw from it.
//
// A bucket is one number, the time at which it is free again; taking n bytes moves it by n / rate with a compare-and-swap. So a reservation
// costs a few nanoseconds, needs no lock and leaves nothing behind when a process dies. The numbers live in a small memory-mapped file in
// the run's folder, or in plain memory. Times are nanoseconds of CLOCK_MONOTONIC (any clock that all users share). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::transport {

inline constexpr size_t kBucketNameBytesMax = 495;
inline constexpr size_t kBucketsMax = 1'000'000;

struct BucketSpec {
  std::string name;        // 1 to kBucketNameBytesMax bytes, unique
  double bytes_per_s = 0;  // 1 to 1e15
};

class SharedBuckets {
 public:
  // Makes the file (mode 0600, replacing what was there); others then Open() it. Errors: INVALID_ARGUMENT names the bad spec; UNAVAILABLE:
  // the file system refuses.
  static absl::StatusOr<std::shared_ptr<SharedBuckets>> Create(const std::string& path, std::span<const BucketSpec> specs);
  static absl::StatusOr<std::shared_ptr<SharedBuckets>> Open(const std::string& path);
  static absl::StatusOr<std::shared_ptr<SharedBuckets>> InMemory(std::span<const BucketSpec> specs);
  ~SharedBuckets();
  SharedBuckets(const SharedBuckets&) = delete;
  SharedBuckets& operator=(const SharedBuckets&) = delete;

  size_t size() const { return count_; }
  // NOT_FOUND names the bucket. Cost: linear.
  absl::StatusOr<size_t> Find(absl::string_view name) const;

  // Reserves `bytes` for a user who could begin at ready_ns; returns when the last of them has passed. First come, first served.
  int64_t Reserve(size_t bucket, int64_t ready_ns, uint64_t bytes);
  double bytes_per_s(size_t bucket) const;
  // Takes effect with the next reservation, in all processes.
  absl::Status SetRate(size_t bucket, double bytes_per_s);

 private:
  struct Slot;
  struct Region;
  SharedBuckets(std::unique_ptr<Region> region, Slot* slots, size_t count);

  std::unique_ptr<Region> region_;
  Slot* slots_;
  size_t count_;
};

}  // namespace fusionllm::transport
