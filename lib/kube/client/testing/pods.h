// What the tests of this folder ask a server for.
#pragma once

#include "lib/kube/api/resource.h"

namespace fusionllm::kube::testing {

inline const Resource kPods = {"", "v1", "pods", "Pod", true};

}  // namespace fusionllm::kube::testing
