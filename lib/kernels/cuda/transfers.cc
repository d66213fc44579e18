#include "lib/kernels/cuda/transfers.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/device.h"

namespace fusionllm::kernels::cuda {
namespace {

// Of each direction: enough for one to be filled, one to be copied, and one to be read.
constexpr size_t kBuffers = 3;
constexpr size_t kMinPinnedBytes = 4096;

absl::Status Prepare(cudaStream_t& stream) {
  if (stream != nullptr) return absl::OkStatus();
  return ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
}

absl::Status Reserve(tensor::Memory& memory, tensor::MemoryBlock& block, size_t bytes) {
  if (block.data() != nullptr && block.size() >= bytes) return absl::OkStatus();
  block = tensor::MemoryBlock();
  FUSIONLLM_ASSIGN_OR_RETURN(block, memory.Allocate(bytes));
  return absl::OkStatus();
}

}  // namespace

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

absl::Status Event::Record(cudaStream_t stream) {
  // A waiting thread sleeps: the processor may be somebody else's.
  if (event_ == nullptr) {
    FUSIONLLM_RETURN_IF_ERROR(
        ToStatus(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync), "making an event"));
  }
  return ToStatus(cudaEventRecord(event_, stream), "recording an event");
}

absl::Status Event::Wait() const {
  return event_ == nullptr ? absl::OkStatus() : ToStatus(cudaEventSynchronize(event_), "waiting for the device");
}

absl::Status Event::MakeStreamWait(cudaStream_t stream) const {
  return event_ == nullptr ? absl::OkStatus() : ToStatus(cudaStreamWaitEvent(stream, event_, 0), "letting a stream wait");
}

PinnedPool::~PinnedPool() {
  for (const auto& [size, blocks] : free_) {
    for (const Block& block : blocks) cudaFreeHost(block.data);
  }
}

absl::StatusOr<PinnedPool::Block> PinnedPool::Allocate(size_t bytes) {
  Block block{.size = std::bit_ceil(std::max(bytes, kMinPinnedBytes))};
  {
    const base::MutexLock lock(mutex_);
    if (std::vector<Block>& free = free_[block.size]; !free.empty()) {
      block = free.back();
      free.pop_back();
      return block;
    }
  }
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaMallocHost(reinterpret_cast<void**>(&block.data), block.size),
                                     absl::StrFormat("pinning %d bytes of the host's memory", block.size)));
  return block;
}

void PinnedPool::Free(Block block) {
  if (block.data == nullptr) return;
  const base::MutexLock lock(mutex_);
  free_[block.size].push_back(block);
}

PendingTransfer::~PendingTransfer() {
  if (Wait().ok()) pool_.Free(block_);  // else the device may still write there
}

DeviceToHostCopier::~DeviceToHostCopier() {
  if (stream_ == nullptr) return;
  cudaStreamSynchronize(stream_);
  buffers_.clear();
  cudaStreamDestroy(stream_);
}

absl::StatusOr<std::byte*> DeviceToHostCopier::Begin(size_t bytes) {
  FUSIONLLM_RETURN_IF_ERROR(Prepare(stream_));
  if (buffers_.empty()) buffers_.resize(kBuffers);
  next_ = (next_ + 1) % kBuffers;
  Buffer& buffer = buffers_[next_];
  FUSIONLLM_RETURN_IF_ERROR(Reserve(memory_, buffer.block, bytes));
  FUSIONLLM_RETURN_IF_ERROR(buffer.left.MakeStreamWait(compute_));
  return buffer.block.data();
}

absl::StatusOr<std::unique_ptr<PendingTransfer>> DeviceToHostCopier::Send(size_t bytes) {
  Buffer& buffer = buffers_[next_];
  FUSIONLLM_RETURN_IF_ERROR(filled_.Record(compute_));
  FUSIONLLM_RETURN_IF_ERROR(filled_.MakeStreamWait(stream_));
  FUSIONLLM_ASSIGN_OR_RETURN(const PinnedPool::Block staging, pool_.Allocate(bytes));
  FUSIONLLM_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(staging.data, buffer.block.data(), bytes, cudaMemcpyDeviceToHost, stream_), "copying from the device"));
  FUSIONLLM_RETURN_IF_ERROR(buffer.left.Record(stream_));
  Event arrived;
  FUSIONLLM_RETURN_IF_ERROR(arrived.Record(stream_));
  return std::make_unique<PendingTransfer>(pool_, staging, bytes, std::move(arrived));
}

HostToDeviceCopier::~HostToDeviceCopier() {
  if (stream_ == nullptr) return;
  cudaStreamSynchronize(stream_);
  for (const Buffer& buffer : buffers_) pool_.Free(buffer.staging);
  buffers_.clear();
  cudaStreamDestroy(stream_);
}

absl::StatusOr<std::byte*> HostToDeviceCopier::CopyToDevice(std::span<const std::span<const std::byte>> pieces) {
  FUSIONLLM_RETURN_IF_ERROR(Prepare(stream_));
  if (buffers_.empty()) buffers_.resize(kBuffers);
  next_ = (next_ + 1) % kBuffers;
  Buffer& buffer = buffers_[next_];
  size_t bytes = 0;
  for (const std::span<const std::byte> piece : pieces) bytes += AlignedForTransfer(piece.size());
  FUSIONLLM_RETURN_IF_ERROR(Reserve(memory_, buffer.block, bytes));
  FUSIONLLM_RETURN_IF_ERROR(buffer.arrived.Wait());  // the staging is read
  if (buffer.staging.size < bytes) {
    pool_.Free(std::exchange(buffer.staging, {}));
    FUSIONLLM_ASSIGN_OR_RETURN(buffer.staging, pool_.Allocate(bytes));
  }
  size_t offset = 0;
  for (const std::span<const std::byte> piece : pieces) {
    if (!piece.empty()) std::memcpy(buffer.staging.data + offset, piece.data(), piece.size());
    offset += AlignedForTransfer(piece.size());
  }
  FUSIONLLM_RETURN_IF_ERROR(buffer.read.MakeStreamWait(stream_));
  FUSIONLLM_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(buffer.block.data(), buffer.staging.data, bytes, cudaMemcpyHostToDevice, stream_), "copying to the device"));
  FUSIONLLM_RETURN_IF_ERROR(buffer.arrived.Record(stream_));
  FUSIONLLM_RETURN_IF_ERROR(buffer.arrived.MakeStreamWait(compute_));
  return buffer.block.data();
}

absl::Status HostToDeviceCopier::Release() { return buffers_[next_].read.Record(compute_); }

}  // namespace fusionllm::kernels::cuda
