// CUDA graphs of kernels, and marks in the order of a stream.
#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kernels/backend.h"
#include "lib/kernels/cuda/device.h"

namespace fusionllm::kernels::cuda {

// Backend::RecordEvent and Backend::CaptureGraph of a back end on `device`, which must outlive what they make.
absl::StatusOr<std::unique_ptr<TimingEvent>> RecordTimingEvent(Device& device);
absl::StatusOr<std::unique_ptr<CapturedGraph>> CaptureStream(Device& device, absl::FunctionRef<absl::Status()> run);

}  // namespace fusionllm::kernels::cuda
