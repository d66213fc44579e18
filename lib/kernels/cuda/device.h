// One CUDA device as the kernels of this back end see it: a stream, memory, and a place where kernels leave what they find wrong with data.
//
// Everything is asynchronous and in the order of one stream; Synchronize and copies to the host wait. Messages go beside it (transfers.h).
// Not thread-safe: one thread uses a Device.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kernels/cuda/transfers.h"
#include "lib/tensor/memory.h"

namespace fusionllm::kernels::cuda {

// OK, or what went wrong with `what` ("copying to the device") in CUDA's words: ResourceExhausted for memory, else Internal.
absl::Status ToStatus(cudaError_t error, absl::string_view what);

struct DeviceInfo {
  int index = 0;
  std::string name;
  size_t memory_bytes = 0;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int driver_version = 0, runtime_version = 0;  // as CUDA counts: 13020 is 13.2
  std::string pci_bus_id;                       // "0000:3b:00.0"
  std::string ToString() const;
};

// What this machine has; empty where there is none. Errors: FailedPrecondition, a sentence that says what to do, where there is a driver
// that is too old for this build.
absl::StatusOr<std::vector<DeviceInfo>> Devices();

// Errors: NotFound "no device ..." where there is none of that index, naming what there is; FailedPrecondition as Devices, and where this
// build has no code for it.
absl::StatusOr<DeviceInfo> FindDevice(int index);

// The first value out of range that kernels met, as they leave it on the device.
struct DeviceFault {
  int32_t found = 0;  // 0: none; else the number of the check + 1
  int32_t value = 0;
  int64_t position = 0;
};

// How an algorithm of a library is chosen for a shape.
enum class AlgorithmChoice {
  kHeuristic,  // the library's own first, which depends on the shape and the kind of card alone: the same bits on any number of stages
  kMeasured,   // the fastest of its first few by measurement, kept for the process; another process may choose others, with other bits
};

class Device {
 public:
  // Errors: FindDevice's.
  static absl::StatusOr<std::unique_ptr<Device>> Open(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const { return info_; }
  cudaStream_t stream() const { return stream_; }
  tensor::Memory& memory();
  // Of its memory, whichever process has the rest. Waits for what was asked for.
  absl::StatusOr<size_t> FreeBytes();
  PinnedPool& pinned() { return pinned_; }
  DeviceToHostCopier& device_to_host() { return *device_to_host_; }
  HostToDeviceCopier& host_to_device() { return *host_to_device_; }
  // Of what is prepared from then on.
  AlgorithmChoice algorithm_choice() const { return algorithm_choice_; }
  void set_algorithm_choice(AlgorithmChoice choice) { algorithm_choice_ = choice; }

  // What the user of a library keeps as long as the device, null at first; goes before the stream does.
  std::shared_ptr<void>& LibraryState(const std::string& library) { return kept_[library]; }

  // A check that kernels make of ids: `text` is what a message says before "at position 3 is 70000, not in [0, 50257)". Returns its number.
  int32_t AddCheck(std::string text, int64_t limit);
  DeviceFault* fault() const { return fault_; }

  absl::Status Synchronize();

 private:
  class StreamMemory;
  Device() = default;
  // The error of what kernels left, if anything, which is forgotten then.
  absl::Status CheckFault(const DeviceFault& fault);

  struct Check {
    std::string text;
    int64_t limit;
  };
  DeviceInfo info_;
  cudaStream_t stream_ = nullptr;
  PinnedPool pinned_;
  AlgorithmChoice algorithm_choice_ = AlgorithmChoice::kHeuristic;
  std::unique_ptr<StreamMemory> memory_;
  std::unique_ptr<DeviceToHostCopier> device_to_host_;
  std::unique_ptr<HostToDeviceCopier> host_to_device_;
  DeviceFault* fault_ = nullptr;       // on the device
  DeviceFault* host_fault_ = nullptr;  // pinned
  std::vector<Check> checks_;
  std::map<std::string, std::shared_ptr<void>> kept_;
};

}  // namespace fusionllm::kernels::cuda
