// How an NVIDIA GPU fares, as the driver's own library says (NVML): how busy it is, how warm, what of its memory is taken.
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

// What a card does not tell, as a slice of one (MIG) does not tell how busy it is, is left out.
struct Reading {
  std::optional<double> utilization_ratio;  // of the driver's last sample period, a sixth of a second to one: when some kernel ran
  std::optional<int64_t> memory_used_bytes, memory_total_bytes;  // of all processes
  std::optional<int64_t> temperature_celsius;
  std::optional<double> power_watts;
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

 private:
  struct Library;
  Gpu(std::unique_ptr<Library> library, void* device);

  const std::unique_ptr<Library> library_;
  void* const device_;
};

}  // namespace fusionllm::nvml
