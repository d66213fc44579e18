// A page of the monitoring server that every long-running program of ours has (lib/daemon/monitoring_server.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace fusionllm::op::manager {

// GET http://`address``page`: the body. `address`: HOST:PORT. Unavailable: the answer is not 200; else why there is none. Blocks for a few
// seconds at most; what is longer than a progress page may be is refused.
absl::StatusOr<std::string> FetchMonitoringPage(const std::string& address, const char* page);

}  // namespace fusionllm::op::manager
