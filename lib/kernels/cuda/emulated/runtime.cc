// Devices and memory.
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "lib/base/mutex.h"
#include "lib/kernels/cuda/emulated/card.h"
#include "lib/kernels/cuda/emulated/cuda_runtime.h"
#include "lib/kernels/cuda/emulated/device_memory.h"

namespace fusionllm::kernels::cuda::emulated {
namespace {

constexpr size_t kCardBytes = size_t{2} << 30;
constexpr size_t kSpacing = 4096;

base::Mutex one_at_a_time;  // held by whom the card serves
std::atomic<int> major_capability = 9;

// First fit among the gaps of one stretch of addresses.
class Card {
 public:
  Card() {
    void* base = mmap(nullptr, kCardBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) std::abort();
    base_ = static_cast<std::byte*>(base);
  }
  std::byte* Take(size_t bytes) {
    const size_t rounded = (bytes + kSpacing - 1) / kSpacing * kSpacing + kSpacing;  // and a page between two
    size_t begin = 0;
    for (const auto& [offset, size] : taken_) {
      if (offset - begin >= rounded) break;
      begin = offset + size;
    }
    if (begin + rounded > kCardBytes) return nullptr;
    taken_[begin] = rounded;
    return base_ + begin;
  }
  bool Give(const std::byte* data) { return taken_.erase(static_cast<size_t>(data - base_)) == 1; }
  void Protect(int protection) const {
    if (!taken_.empty()) mprotect(base_, taken_.rbegin()->first + taken_.rbegin()->second, protection);
  }
  size_t used() const {
    size_t sum = 0;
    for (const auto& [offset, size] : taken_) sum += size;
    return sum;
  }

 private:
  std::byte* base_;
  std::map<size_t, size_t> taken_;  // bytes by offset
};

Card& TheCard() {
  static Card card;
  return card;
}

// Tests ask for a machine without a driver.
bool Absent() { return std::getenv("FUSIONLLM_EMULATED_CARDS") != nullptr && std::atoi(std::getenv("FUSIONLLM_EMULATED_CARDS")) == 0; }

}  // namespace

void SetMajorCapability(int major) { major_capability = major; }

DeviceLock::DeviceLock() : lock_(one_at_a_time) {}
OpenDevice::OpenDevice() { TheCard().Protect(PROT_READ | PROT_WRITE); }
OpenDevice::~OpenDevice() { TheCard().Protect(PROT_NONE); }

}  // namespace fusionllm::kernels::cuda::emulated

namespace base = fusionllm::base;
namespace e = fusionllm::kernels::cuda::emulated;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
  }
  return "unknown";
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = e::Absent() ? 0 : 1;
  return e::Absent() ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 && !e::Absent() ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return cudaErrorInvalidDevice;
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "emulated card");
  properties->totalGlobalMem = e::kCardBytes;
  properties->major = e::major_capability;
  properties->multiProcessorCount = 4;
  properties->l2CacheSize = 1 << 20;
  properties->sharedMemPerBlockOptin = 227 * 1024;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* bus, int length, int device) {
  if (device != 0) return cudaErrorInvalidDevice;
  std::snprintf(bus, static_cast<size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = e::Absent() ? 0 : 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  const base::MutexLock lock(e::one_at_a_time);
  std::byte* taken = e::TheCard().Take(bytes);
  *data = taken;
  if (taken == nullptr) return cudaErrorMemoryAllocation;
  mprotect(taken, bytes, PROT_READ | PROT_WRITE);
  std::memset(taken, 0xFF, bytes);  // of code that reads before it writes, floats are NaN
  mprotect(taken, bytes, PROT_NONE);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  e::FinishAllStreams();
  const base::MutexLock lock(e::one_at_a_time);
  return data == nullptr || e::TheCard().Give(static_cast<std::byte*>(data)) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  e::FinishAllStreams();
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const base::MutexLock lock(e::one_at_a_time);
  *total = e::kCardBytes;
  *free = e::kCardBytes - e::TheCard().used();
  return cudaSuccess;
}
