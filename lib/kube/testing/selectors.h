// Label and field selectors, as a fake API server needs them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kube::testing {

// Whether the object has the labels ("a=b,c!=d,e in (f,g),!h") and the fields ("metadata.name=x,status.phase!=Running").
// InvalidArgument when a selector cannot be read.
absl::StatusOr<bool> Selects(const std::string& labels, const std::string& fields, const nlohmann::json& object);

}  // namespace fusionllm::kube::testing
