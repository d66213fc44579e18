// JSON from the API server as the tree that lib/job reads from, so that objects are read by the same tables, rules and words as files.
#pragma once

#include "absl/status/statusor.h"
#include "lib/job/document.h"
#include "nlohmann/json_fwd.hpp"

namespace fusionllm::kubeapi {

// InvalidArgument beyond the limits of document.h on values and levels: no object that the API server accepted comes near them.
absl::StatusOr<job::Node> ToTree(const nlohmann::json& value);

}  // namespace fusionllm::kubeapi
