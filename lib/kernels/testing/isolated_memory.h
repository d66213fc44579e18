// A back end whose tensors live in memory that the host cannot touch, as a device's: code that follows one of its addresses outside of a
// kernel or a copy dies of SIGSEGV. For tests of what runs on devices, on machines that have none.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kernels/backend.h"

namespace fusionllm::kernels::testing {

// The kernels of `inner` ("ref", "cpu"), in memory of its own. Data out of range that a kernel finds is reported late, by Synchronize or
// the next copy to the host. Not thread-safe.
absl::StatusOr<std::unique_ptr<Backend>> IsolatedMemoryBackend(absl::string_view inner);

}  // namespace fusionllm::kernels::testing
