// Between the host and a device beside its computation: each direction has a stream of its own, so that what is sent leaves while kernels
// go on and what has come is on the device before its turn. The host waits for a copy of its own direction at most, and only where as many
// are under way as there is room for.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/tensor/memory.h"

namespace fusionllm::kernels::cuda {

// A point in the work of a stream. Movable; one that was never recorded has passed.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event();

  absl::Status Record(cudaStream_t stream);
  // The host waits for it. From any thread, but not while it is recorded.
  absl::Status Wait() const;
  // What `stream` is asked for from now on waits for it.
  absl::Status MakeStreamWait(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// Memory of the host that the device copies from and to at full speed, in blocks that are used again and never given back before the end.
// Thread-safe.
class PinnedPool {
 public:
  struct Block {
    std::byte* data = nullptr;
    size_t size = 0;
  };
  PinnedPool() = default;
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  ~PinnedPool();

  // At least `bytes`. Errors: ResourceExhausted.
  absl::StatusOr<Block> Allocate(size_t bytes);
  // Of Allocate; nothing may be under way to or from it.
  void Free(Block block);

 private:
  base::Mutex mutex_;
  std::map<size_t, std::vector<Block>> free_ ABSL_GUARDED_BY(mutex_);  // by size
};

// A copy to the host under way. One thread at a time, which need not be the device's; must go before the device.
class PendingTransfer {
 public:
  PendingTransfer(PinnedPool& pool, PinnedPool::Block block, size_t bytes, Event arrived)
      : pool_(pool), block_(block), bytes_(bytes), arrived_(std::move(arrived)) {}
  ~PendingTransfer();
  absl::Status Wait() const { return arrived_.Wait(); }
  size_t size() const { return bytes_; }
  // After Wait.
  std::span<const std::byte> bytes() const { return {block_.data, bytes_}; }

 private:
  PinnedPool& pool_;
  const PinnedPool::Block block_;
  const size_t bytes_;
  const Event arrived_;
};

// From the device. The device's thread alone.
class DeviceToHostCopier {
 public:
  DeviceToHostCopier(cudaStream_t compute, tensor::Memory& memory, PinnedPool& pool) : compute_(compute), memory_(memory), pool_(pool) {}
  ~DeviceToHostCopier();
  DeviceToHostCopier(const DeviceToHostCopier&) = delete;
  DeviceToHostCopier& operator=(const DeviceToHostCopier&) = delete;

  // A buffer on the device that kernels of the compute stream may fill, aligned to 256; good until the next Begin. Errors:
  // ResourceExhausted.
  absl::StatusOr<std::byte*> Begin(size_t bytes);
  // Copies the first `bytes` of the buffer when the kernels asked for so far are done.
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Send(size_t bytes);

 private:
  struct Buffer {
    tensor::MemoryBlock block;
    Event left;  // its last copy
  };
  const cudaStream_t compute_;
  tensor::Memory& memory_;
  PinnedPool& pool_;
  cudaStream_t stream_ = nullptr;
  Event filled_;
  std::vector<Buffer> buffers_;
  size_t next_ = 0;
};

// To the device. The device's thread alone.
class HostToDeviceCopier {
 public:
  HostToDeviceCopier(cudaStream_t compute, tensor::Memory& memory, PinnedPool& pool) : compute_(compute), memory_(memory), pool_(pool) {}
  ~HostToDeviceCopier();
  HostToDeviceCopier(const HostToDeviceCopier&) = delete;
  HostToDeviceCopier& operator=(const HostToDeviceCopier&) = delete;

  // Brings `pieces`, each to an offset aligned to 256 behind the one before, where kernels of the compute stream asked for from now on find
  // them. `bytes` may be reused when it returns. Good for kernels asked for before Release. Errors: ResourceExhausted.
  absl::StatusOr<std::byte*> CopyToDevice(std::span<const std::span<const std::byte>> pieces);
  // The kernels asked for so far are the last to read what was brought.
  absl::Status Release();

 private:
  struct Buffer {
    tensor::MemoryBlock block;
    PinnedPool::Block staging;
    Event arrived;  // the copy from the staging
    Event read;
  };
  const cudaStream_t compute_;
  tensor::Memory& memory_;
  PinnedPool& pool_;
  cudaStream_t stream_ = nullptr;
  std::vector<Buffer> buffers_;
  size_t next_ = 0;
};

// Offsets of what lies one behind the other in a buffer of either.
inline constexpr size_t kTransferAlignment = 256;
inline size_t AlignedForTransfer(size_t bytes) { return (bytes + kTransferAlignment - 1) / kTransferAlignment * kTransferAlignment; }

}  // namespace fusionllm::kernels::cuda
