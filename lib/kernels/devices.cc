#include "lib/kernels/devices.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"
#ifdef FUSIONLLM_CUDA
#include "lib/kernels/cuda/device.h"
#endif

namespace fusionllm::kernels {
namespace {

constexpr int kMaxGpus = 1024;

#ifdef FUSIONLLM_CUDA

absl::StatusOr<DeviceChoice> ChooseCard(int index) {
  FUSIONLLM_ASSIGN_OR_RETURN(const cuda::DeviceInfo card, cuda::FindDevice(index));
  return DeviceChoice{.backend = absl::StrCat("cuda:", index),
                      .description = card.ToString(),
                      .memory_bytes = static_cast<int64_t>(card.memory_bytes),
                      .pci_bus_id = card.pci_bus_id};
}

absl::StatusOr<DeviceChoice> ChooseAny() {
  const absl::StatusOr<std::vector<cuda::DeviceInfo>> cards = cuda::Devices();
  // A driver that is too old, or a card, is no reason not to start where the card was not asked for.
  if (!cards.ok()) return DeviceChoice{.backend = "cpu", .description = absl::StrCat("the CPU: ", cards.status().message())};
  if (cards->empty()) return DeviceChoice{.backend = "cpu", .description = "the CPU: this machine has no NVIDIA driver or no CUDA device"};
  absl::StatusOr<DeviceChoice> first = ChooseCard(0);
  if (!absl::IsFailedPrecondition(first.status())) return first;
  return DeviceChoice{.backend = "cpu", .description = absl::StrCat("the CPU: ", first.status().message())};
}

#else

absl::StatusOr<DeviceChoice> ChooseCard(int index) {
  return absl::FailedPreconditionError(absl::StrCat(
      "cuda:", index, " is not there: this build has no CUDA back end; use the executor's CUDA image, or build it with `make cuda`"));
}

absl::StatusOr<DeviceChoice> ChooseAny() {
  return DeviceChoice{.backend = "cpu", .description = "the CPU: this build has no CUDA back end"};
}

#endif

}  // namespace

int CudaIndex(absl::string_view name) {
  int index = 0;
  if (!absl::ConsumePrefix(&name, "cuda:") || !absl::SimpleAtoi(name, &index) || index < 0 || index >= kMaxGpus) return -1;
  return absl::StrCat(index) == name ? index : -1;
}

absl::Status CheckDeviceName(absl::string_view name) {
  if (name == "auto" || name == "cpu" || CudaIndex(name) >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' is no device: use auto, cpu or cuda:N (cuda:0 is the first card)"));
}

absl::StatusOr<DeviceChoice> ChooseDevice(absl::string_view name) {
  FUSIONLLM_RETURN_IF_ERROR(CheckDeviceName(name));
  if (name == "cpu") return DeviceChoice{.backend = "cpu", .description = "the CPU"};
  return name == "auto" ? ChooseAny() : ChooseCard(CudaIndex(name));
}

}  // namespace fusionllm::kernels
