// Files and programs that a configuration names, looked at before they are needed. Blocks on the file system.
#pragma once

#include "absl/status/status.h"
#include "lib/kube/auth/client_config.h"

namespace fusionllm::kube {

// InvalidArgument, with the entry and the field: a file that cannot be read (the token's, certificates', a key's), a token file without a
// token, a program that is not there or may not be run. A source of credentials would say Unauthenticated of the same, for it may come
// back.
absl::Status CheckNamedFiles(const ClientConfig& config);

}  // namespace fusionllm::kube
