// ResourceList of resources as Kubernetes writes them: "500m" of a CPU, "2Gi" of memory, "1e3". Thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kube {

// The amount in units of 1/per_one, rounded away from zero as the API server does: ("1500m", 1) is 2, ("1500m", 1000) is 1500.
// InvalidArgument: no quantity; OutOfRange: more than an int64 holds. per_one > 0.
absl::StatusOr<int64_t> ParseQuantity(absl::string_view text, int64_t per_one = 1);

}  // namespace fusionllm::kube
