// Names of Kubernetes objects that become labels of DNS, of hosts say. Pure.
#pragma once

#include "absl/strings/string_view.h"

namespace fusionllm::base {

// RFC 1123, section 2.1, as Kubernetes reads it: 1 to 63 lower-case letters, digits and '-', the first and the last not '-'.
bool IsDnsLabel(absl::string_view text);

}  // namespace fusionllm::base
