// What the operator keeps of a Pod.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op {

// From a Pod as an API server gives it. `cluster`: where it was read; a label does not count, for whoever may write pods may write labels.
// InvalidArgument when it is none, or none of the operator's.
absl::StatusOr<PodView> ReadPod(const nlohmann::json& pod, const std::string& cluster);

// The job whose pod it is, by its label; empty: none.
std::string JobUidOf(const nlohmann::json& pod);

}  // namespace fusionllm::op
