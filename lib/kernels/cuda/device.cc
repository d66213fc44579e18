#include "lib/kernels/cuda/device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr size_t kStagingBytes = size_t{8} << 20;
constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

}  // namespace

absl::Status ToStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  return error == cudaErrorMemoryAllocation ? tensor::OutOfMemoryError(text) : absl::InternalError(text);
}

std::string DeviceInfo::ToString() const {
  return absl::StrFormat("%s, %.1f GiB, compute capability %d.%d, %d multiprocessors, driver for CUDA %s", name,
                         static_cast<double>(memory_bytes) / kGiB, major, minor, multiprocessors, Version(driver_version));
}

absl::StatusOr<std::vector<DeviceInfo>> Devices() {
  int driver = 0, runtime = 0, count = 0;
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaDriverGetVersion(&driver), "asking for the driver's version"));
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version"));
  if (driver == 0) return std::vector<DeviceInfo>();  // no driver
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorInsufficientDriver) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the NVIDIA driver of this machine is for CUDA %s and this build needs CUDA %s: install a newer driver, or run on "
                        "the CPU (--device cpu)",
                        Version(driver), Version(runtime)));
  }
  if (counted == cudaErrorNoDevice) return std::vector<DeviceInfo>();
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(counted, "counting CUDA devices"));
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaGetDeviceProperties(&properties, i), absl::StrCat("asking about CUDA device ", i)));
    char bus[32] = {};
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaDeviceGetPCIBusId(bus, sizeof(bus), i), absl::StrCat("asking where CUDA device ", i, " is")));
    devices.push_back({.index = i,
                       .name = properties.name,
                       .memory_bytes = properties.totalGlobalMem,
                       .major = properties.major,
                       .minor = properties.minor,
                       .multiprocessors = properties.multiProcessorCount,
                       .driver_version = driver,
                       .runtime_version = runtime,
                       .pci_bus_id = bus});
  }
  return devices;
}

// Through a pinned buffer, so that the device copies at full speed and the caller may go on with his memory.
class Device::StreamMemory final : public tensor::Memory {
 public:
  explicit StreamMemory(Device& device) : device_(device) {}
  ~StreamMemory() override {
    cudaFreeHost(staging_);
    if (staged_ != nullptr) cudaEventDestroy(staged_);
  }
  absl::Status Prepare() {
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaMallocHost(reinterpret_cast<void**>(&staging_), kStagingBytes), "pinning memory of the host"));
    return ToStatus(cudaEventCreateWithFlags(&staged_, cudaEventDisableTiming), "making an event");
  }

  bool on_host() const override { return false; }

  absl::StatusOr<tensor::MemoryBlock> Allocate(size_t bytes) override {
    void* data = nullptr;
    if (const cudaError_t error = cudaMalloc(&data, bytes == 0 ? 1 : bytes); error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // so that nobody takes it for his own
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      return tensor::OutOfMemoryError(absl::StrFormat(
          "CUDA device %d (%s) is out of memory: %.2f GiB more were asked for, %.2f GiB of %.2f GiB are free", device_.info_.index,
          device_.info_.name, static_cast<double>(bytes) / kGiB, static_cast<double>(free) / kGiB, static_cast<double>(total) / kGiB));
    } else if (error != cudaSuccess) {
      return ToStatus(error, "taking memory of the device");
    }
    return tensor::MemoryBlock(*this, static_cast<std::byte*>(data), bytes);
  }

  absl::Status Zero(std::byte* to, size_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    return ToStatus(cudaMemsetAsync(to, 0, bytes, device_.stream_), "clearing memory of the device");
  }

  absl::Status CopyIn(void* to, const void* from, size_t bytes) override {
    for (size_t done = 0; done < bytes; done += kStagingBytes) {
      const size_t piece = std::min(kStagingBytes, bytes - done);
      FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(staged_), "waiting for a copy to the device"));
      std::memcpy(staging_, static_cast<const std::byte*>(from) + done, piece);
      FUSIONLLM_RETURN_IF_ERROR(
          ToStatus(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, staging_, piece, cudaMemcpyHostToDevice, device_.stream_),
                   "copying to the device"));
      FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaEventRecord(staged_, device_.stream_), "copying to the device"));
    }
    return absl::OkStatus();
  }

  absl::Status CopyOut(void* to, const void* from, size_t bytes) override {
    FUSIONLLM_RETURN_IF_ERROR(device_.Finish());
    for (size_t done = 0; done < bytes; done += kStagingBytes) {
      const size_t piece = std::min(kStagingBytes, bytes - done);
      FUSIONLLM_RETURN_IF_ERROR(
          ToStatus(cudaMemcpyAsync(staging_, static_cast<const std::byte*>(from) + done, piece, cudaMemcpyDeviceToHost, device_.stream_),
                   "copying from the device"));
      FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(device_.stream_), "copying from the device"));
      std::memcpy(static_cast<std::byte*>(to) + done, staging_, piece);
    }
    return absl::OkStatus();
  }

 protected:
  void Free(std::byte* data) override { cudaFree(data); }

 private:
  Device& device_;
  std::byte* staging_ = nullptr;  // pinned
  cudaEvent_t staged_ = nullptr;  // the last copy from it to the device
};

absl::StatusOr<DeviceInfo> FindDevice(int index) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, Devices());
  if (index < 0 || index >= static_cast<int>(devices.size())) {
    if (devices.empty()) {
      return absl::NotFoundError(absl::StrCat("no device cuda:", index,
                                              ": this machine has no NVIDIA driver or no CUDA device; run on the CPU "
                                              "(--device cpu), or, in a container, give it the GPU"));
    }
    const std::string names = absl::StrJoin(
        devices, ", ", [](std::string* out, const DeviceInfo& d) { absl::StrAppend(out, "cuda:", d.index, " (", d.name, ")"); });
    return absl::NotFoundError(absl::StrCat("no device cuda:", index, ": this machine has ", names));
  }
  return devices[index];
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(int index) {
  FUSIONLLM_ASSIGN_OR_RETURN(const DeviceInfo info, FindDevice(index));
  std::unique_ptr<Device> device(new Device());
  device->info_ = info;
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaSetDevice(index), absl::StrCat("opening cuda:", index)));
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking), "making a stream"));
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaMalloc(reinterpret_cast<void**>(&device->fault_), sizeof(Fault)), "taking memory of the device"));
  FUSIONLLM_RETURN_IF_ERROR(
      ToStatus(cudaMallocHost(reinterpret_cast<void**>(&device->host_fault_), sizeof(Fault)), "pinning memory of the host"));
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaMemsetAsync(device->fault_, 0, sizeof(Fault), device->stream_), "clearing memory of the device"));
  device->memory_ = std::make_unique<StreamMemory>(*device);
  FUSIONLLM_RETURN_IF_ERROR(device->memory_->Prepare());
  return device;
}

tensor::Memory& Device::memory() { return *memory_; }

Device::~Device() {
  memory_.reset();
  cudaFree(fault_);
  cudaFreeHost(host_fault_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

int32_t Device::AddCheck(std::string text, int64_t limit) {
  checks_.push_back({std::move(text), limit});
  return static_cast<int32_t>(checks_.size() - 1);
}

absl::Status Device::Finish() {
  FUSIONLLM_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(host_fault_, fault_, sizeof(Fault), cudaMemcpyDeviceToHost, stream_), "reading the state of the device"));
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream_), "running on the device"));
  return host_fault_->found == 0 ? absl::OkStatus() : TakeFault();
}

absl::Status Device::TakeFault() {
  const Fault fault = *host_fault_;
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaMemsetAsync(fault_, 0, sizeof(Fault), stream_), "clearing the state of the device"));
  const Check& check = checks_.at(fault.found - 1);
  return absl::InvalidArgumentError(
      absl::StrCat(check.text, " at position ", fault.position, " is ", fault.value, ", outside [0, ", check.limit, ")"));
}

}  // namespace fusionllm::kernels::cuda
