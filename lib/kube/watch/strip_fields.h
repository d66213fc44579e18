// An object as the server sent it, without what is not read here: managedFields, which are often half of it, and whole fields.
#pragma once

#include <initializer_list>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kube {

// `without`: names of fields at the top ("spec"). InvalidArgument: not the JSON of an object; what is left out is looked at no further
// than to find its end.
absl::StatusOr<std::string> StripFields(absl::string_view object, std::initializer_list<absl::string_view> without = {});

}  // namespace fusionllm::kube
