// Names of container images, as Pods have them. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::op::manager {

// What is wrong with "[HOST[:PORT]/]NAME[:TAG][@DIGEST]", by the grammar of the OCI distribution specification, which kubelets read it by;
// empty: nothing. Whether there is such an image is another matter.
std::string CheckImage(absl::string_view text);

}  // namespace fusionllm::op::manager
