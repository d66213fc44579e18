// Where tensors live: in this machine's memory, or in a device's, whose addresses the host must not touch.
//
// Code that computes through lib/kernels takes memory from Backend::memory(), and goes between it and the host by CopyIn and CopyOut.
// Copies and kernels of one back end happen in the order in which they were asked for. Not thread-safe, but for HostMemory(): one thread
// uses a device's memory at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::tensor {

class Memory;

// Owns bytes of a Memory, which must outlive it. Movable, not copyable.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  MemoryBlock(Memory& memory, std::byte* data, size_t size) : memory_(&memory), data_(data), size_(size) {}
  MemoryBlock(MemoryBlock&& other) noexcept { Swap(other); }
  MemoryBlock& operator=(MemoryBlock&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~MemoryBlock();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void Swap(MemoryBlock& other) {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  Memory* memory_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A copy to the host that was asked for; it may still be under way.
class PendingCopy {
 public:
  virtual ~PendingCopy() = default;
  // Waits for it, and copies what came to `to`. Errors: CopyOut's.
  virtual absl::Status Wait(void* to) = 0;
};

class Memory {
 public:
  virtual ~Memory() = default;
  // Whether the host may read and write its addresses.
  virtual bool on_host() const = 0;
  // Uninitialised, aligned to kAlignment at least. Errors: OutOfMemoryError, naming what was asked for.
  virtual absl::StatusOr<MemoryBlock> Allocate(size_t bytes) = 0;
  virtual absl::Status Zero(std::byte* to, size_t bytes) = 0;
  // `from` may be reused when it returns.
  virtual absl::Status CopyIn(void* to, const void* from, size_t bytes) = 0;
  // Waits for the kernels before it. Errors: theirs, too, where a device finds them late.
  virtual absl::Status CopyOut(void* to, const void* from, size_t bytes) = 0;
  // As CopyOut, of what is there when the kernels asked for so far are done, and waits for nothing: for a few bytes, whatever becomes of
  // `from` afterwards. The copy must go before the memory.
  virtual absl::StatusOr<std::unique_ptr<PendingCopy>> StartCopyOut(const void* from, size_t bytes);

 protected:
  friend class MemoryBlock;
  virtual void Free(std::byte* data) = 0;
};

// This machine's. Thread-safe.
Memory& HostMemory();

// What Allocate answers where memory is short, distinguished from other things that can be exhausted. `text` says whose memory, how much
// was asked for and how much there is.
absl::Status OutOfMemoryError(absl::string_view text);
bool IsOutOfMemory(const absl::Status& status);

}  // namespace fusionllm::tensor
