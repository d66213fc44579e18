#include "lib/kernels/cuda/device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/architectures.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr size_t kStagingBytes = size_t{8} << 20;
constexpr size_t kCopiesUnderWay = 4;
constexpr char kReadingState[] = "reading the state of the device";
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

// Through pinned memory, so that the device copies at full speed and the caller may go on with his.
class Device::StreamMemory final : public tensor::Memory {
 public:
  explicit StreamMemory(Device& device) : device_(device) {}
  ~StreamMemory() override {
    for (const Staged& staged : staged_) {
      if (staged.read.Wait().ok()) device_.pinned_.Free(staged.block);
    }
  }

  bool on_host() const override { return false; }

  absl::StatusOr<tensor::MemoryBlock> Allocate(size_t bytes) override {
    void* data = nullptr;
    if (const cudaError_t error = cudaMalloc(&data, bytes == 0 ? 1 : bytes); error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // so that no later call takes it for its own
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

  // Several pieces may be on their way: a copy waits for the kernels before it, and the host for none of them.
  absl::Status CopyIn(void* to, const void* from, size_t bytes) override {
    for (size_t done = 0; done < bytes; done += kStagingBytes) {
      const size_t piece = std::min(kStagingBytes, bytes - done);
      Staged& staged = staged_[next_];
      next_ = (next_ + 1) % staged_.size();
      FUSIONLLM_RETURN_IF_ERROR(staged.read.Wait());
      if (staged.block.size < piece) {
        device_.pinned_.Free(std::exchange(staged.block, {}));
        FUSIONLLM_ASSIGN_OR_RETURN(staged.block, device_.pinned_.Allocate(piece));
      }
      std::memcpy(staged.block.data, static_cast<const std::byte*>(from) + done, piece);
      FUSIONLLM_RETURN_IF_ERROR(
          ToStatus(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, staged.block.data, piece, cudaMemcpyHostToDevice, device_.stream_),
                   "copying to the device"));
      FUSIONLLM_RETURN_IF_ERROR(staged.read.Record(device_.stream_));
    }
    return absl::OkStatus();
  }

  absl::Status CopyOut(void* to, const void* from, size_t bytes) override {
    FUSIONLLM_RETURN_IF_ERROR(device_.Synchronize());
    if (bytes == 0) return absl::OkStatus();
    FUSIONLLM_ASSIGN_OR_RETURN(const PinnedPool::Block staging, device_.pinned_.Allocate(std::min(kStagingBytes, bytes)));
    for (size_t done = 0; done < bytes; done += kStagingBytes) {
      const size_t piece = std::min(kStagingBytes, bytes - done);
      FUSIONLLM_RETURN_IF_ERROR(ToStatus(
          cudaMemcpyAsync(staging.data, static_cast<const std::byte*>(from) + done, piece, cudaMemcpyDeviceToHost, device_.stream_),
          "copying from the device"));
      FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(device_.stream_), "copying from the device"));
      std::memcpy(static_cast<std::byte*>(to) + done, staging.data, piece);
    }
    device_.pinned_.Free(staging);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<tensor::PendingCopy>> StartCopyOut(const void* from, size_t bytes) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const PinnedPool::Block staging, device_.pinned_.Allocate(sizeof(DeviceFault) + bytes));
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(
        cudaMemcpyAsync(staging.data, device_.fault_, sizeof(DeviceFault), cudaMemcpyDeviceToHost, device_.stream_), kReadingState));
    FUSIONLLM_RETURN_IF_ERROR(
        ToStatus(cudaMemcpyAsync(staging.data + sizeof(DeviceFault), from, bytes, cudaMemcpyDeviceToHost, device_.stream_),
                 "copying from the device"));
    Event arrived;
    FUSIONLLM_RETURN_IF_ERROR(arrived.Record(device_.stream_));
    return std::make_unique<CopyUnderWay>(
        device_, std::make_unique<PendingTransfer>(device_.pinned_, staging, sizeof(DeviceFault) + bytes, std::move(arrived)));
  }

 protected:
  void Free(std::byte* data) override { cudaFree(data); }

 private:
  // What kernels had found before, and the bytes.
  class CopyUnderWay final : public tensor::PendingCopy {
   public:
    CopyUnderWay(Device& device, std::unique_ptr<PendingTransfer> transfer) : device_(device), transfer_(std::move(transfer)) {}
    absl::Status Wait(void* to) override {
      FUSIONLLM_RETURN_IF_ERROR(transfer_->Wait());
      const std::span<const std::byte> bytes = transfer_->bytes();
      DeviceFault fault;
      std::memcpy(&fault, bytes.data(), sizeof(fault));
      FUSIONLLM_RETURN_IF_ERROR(device_.CheckFault(fault));
      std::memcpy(to, bytes.data() + sizeof(fault), bytes.size() - sizeof(fault));
      return absl::OkStatus();
    }

   private:
    Device& device_;
    const std::unique_ptr<PendingTransfer> transfer_;
  };
  struct Staged {
    PinnedPool::Block block;
    Event read;  // its last copy
  };

  Device& device_;
  std::array<Staged, kCopiesUnderWay> staged_;
  size_t next_ = 0;
};

absl::StatusOr<size_t> Device::FreeBytes() {
  FUSIONLLM_RETURN_IF_ERROR(Synchronize());
  size_t free = 0, total = 0;
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaMemGetInfo(&free, &total), "asking the device for its free memory"));
  return free;
}

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
  if (const absl::Status fits = CheckArchitecture(FUSIONLLM_CUDA_ARCHITECTURES, devices[index].major, devices[index].minor); !fits.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("cuda:", index, " (", devices[index].name, ") ", fits.message()));
  }
  return devices[index];
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(int index) {
  FUSIONLLM_ASSIGN_OR_RETURN(const DeviceInfo info, FindDevice(index));
  std::unique_ptr<Device> device(new Device());
  device->info_ = info;
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaSetDevice(index), absl::StrCat("opening cuda:", index)));
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking), "making a stream"));
  FUSIONLLM_RETURN_IF_ERROR(
      ToStatus(cudaMalloc(reinterpret_cast<void**>(&device->fault_), sizeof(DeviceFault)), "taking memory of the device"));
  FUSIONLLM_RETURN_IF_ERROR(
      ToStatus(cudaMallocHost(reinterpret_cast<void**>(&device->host_fault_), sizeof(DeviceFault)), "pinning memory of the host"));
  FUSIONLLM_RETURN_IF_ERROR(
      ToStatus(cudaMemsetAsync(device->fault_, 0, sizeof(DeviceFault), device->stream_), "clearing memory of the device"));
  device->memory_ = std::make_unique<StreamMemory>(*device);
  device->device_to_host_ = std::make_unique<DeviceToHostCopier>(device->stream_, *device->memory_, device->pinned_);
  device->host_to_device_ = std::make_unique<HostToDeviceCopier>(device->stream_, *device->memory_, device->pinned_);
  return device;
}

tensor::Memory& Device::memory() { return *memory_; }

Device::~Device() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  kept_.clear();
  host_to_device_.reset();
  device_to_host_.reset();
  memory_.reset();
  cudaFree(fault_);
  cudaFreeHost(host_fault_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

int32_t Device::AddCheck(std::string text, int64_t limit) {
  checks_.push_back({std::move(text), limit});
  return static_cast<int32_t>(checks_.size() - 1);
}

absl::Status Device::Synchronize() {
  FUSIONLLM_RETURN_IF_ERROR(
      ToStatus(cudaMemcpyAsync(host_fault_, fault_, sizeof(DeviceFault), cudaMemcpyDeviceToHost, stream_), kReadingState));
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream_), "running on the device"));
  return CheckFault(*host_fault_);
}

absl::Status Device::CheckFault(const DeviceFault& fault) {
  if (fault.found == 0) return absl::OkStatus();
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaMemsetAsync(fault_, 0, sizeof(DeviceFault), stream_), "clearing the state of the device"));
  const Check& check = checks_.at(fault.found - 1);
  return absl::InvalidArgumentError(
      absl::StrCat(check.text, " at position ", fault.position, " is ", fault.value, ", outside [0, ", check.limit, ")"));
}

}  // namespace fusionllm::kernels::cuda
