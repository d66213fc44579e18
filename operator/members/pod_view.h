// What the operator keeps of a Pod.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op {

// From the JSON of a Pod as an API server gives it. `cluster`: where it was read; a label does not count, for whoever may write pods may
// write labels. InvalidArgument when it is none, or none of the operator's.
absl::StatusOr<PodView> ReadPod(absl::string_view json, const std::string& cluster);

}  // namespace fusionllm::op
