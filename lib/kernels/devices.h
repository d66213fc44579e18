// Which device of this machine computes: the words a user writes for one, and what there is.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kernels {

struct DeviceChoice {
  std::string backend;  // for CreateBackend: "cpu" or "cuda:N"
  std::string
      description;  // one line for logs and lists: the card's name, memory, compute capability and driver; for the CPU why it is that
  int64_t memory_bytes = 0;     // the card's; 0: the machine's
  std::string pci_bus_id = {};  // the card's, for what the driver knows of it; empty: no card
};

// OK for "auto", "cpu" and "cuda:N". Errors: InvalidArgument saying what there is to choose from.
absl::Status CheckDeviceName(absl::string_view name);

// "auto" is the first CUDA device where this build and this machine have one, else the CPU. Errors: CheckDeviceName's; NotFound where
// "cuda:N" does not exist; FailedPrecondition where this build has no CUDA, or none for that card, or the driver is too
// old: each says what to do.
absl::StatusOr<DeviceChoice> ChooseDevice(absl::string_view name);

// N of "cuda:N"; -1 where the name is another's.
int CudaIndex(absl::string_view name);

}  // namespace fusionllm::kernels
