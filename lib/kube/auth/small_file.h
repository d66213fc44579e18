// Files that are read whole: tokens, certificates, kubeconfigs. Blocks on the file system.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace fusionllm::kube {

// NotFound; InvalidArgument: a folder, a device, or longer than max_bytes; Unavailable: it cannot be read. The message names the path.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace fusionllm::kube
