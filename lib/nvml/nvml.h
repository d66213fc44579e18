// How an NVIDIA GPU fares, as the driver's own library says (NVML): how busy it is, how warm, what of its memory is taken, what slows it
// down, what errors it has had.
//
// The library comes with the driver and is loaded when somebody first asks, so nothing of it is needed to build, or to start without one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fusionllm::nvml {

// What holds the clocks of a card down now.
struct Throttling {
  bool power = false;     // its limit, or the machine's brake
  bool heat = false;      // its own slowdown, or the driver's
  bool hardware = false;  // slowed down by itself to less than half, for any reason
  bool operator==(const Throttling&) const = default;
};

// What a card does not tell, as a slice of one (MIG) does not tell how busy it is, is left out.
struct Reading {
  std::optional<double> utilization_ratio;  // of the driver's last sample period, a sixth of a second to one: when some kernel ran
  std::optional<int64_t> memory_used_bytes, memory_total_bytes;  // of all processes
  std::optional<int64_t> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<Throttling> throttling;
  std::optional<int64_t> uncorrected_ecc_errors;  // of its memories, since the driver was loaded; cards without ECC tell none
  bool operator==(const Reading&) const = default;
};

class Gpu {
 public:
  // `pci_bus_id` as CUDA names the card ("0000:3b:00.0"): its indices count other cards where CUDA_VISIBLE_DEVICES is set. `names`: of the
  // library. Errors: FailedPrecondition where there is no such library, or it cannot begin; NotFound where it has no such card.
  static absl::StatusOr<std::unique_ptr<Gpu>> Open(const std::string& pci_bus_id,
                                                   const std::vector<std::string>& names = {"libnvidia-ml.so.1"});
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Asks the driver, which takes a millisecond or so. Thread-safe. Errors: Unavailable, in NVML's words, when the card has been lost.
  absl::StatusOr<Reading> Read() const;
  // Xid errors that the driver has reported since this object was opened, or since the last call: each number as often as it came, at most
  // kMaxXids a call. Does not wait for any. None from a card or driver that tells of none. Thread-safe, and works for a card that is lost:
  // that is one of them.
  static constexpr int kMaxXids = 1000;
  std::vector<uint64_t> TakeXids() const;

 private:
  struct Library;
  Gpu(std::unique_ptr<Library> library, void* device, void* events);

  const std::unique_ptr<Library> library_;
  void* const device_;
  void* const events_;  // null: there are none
};

}  // namespace fusionllm::nvml
