// The file by which the processes of an emulated topology share its links' rates.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "lib/job/topology.h"

namespace fusionllm::services {

// Makes the file `path` (transport::SharedBuckets) of every resource that the topology's paths name, with its rate in bytes per second.
// Blocks on the file system; errors as SharedBuckets::Create and LinkTable::Between.
absl::Status CreateLinkState(const job::LinkTable& links, const std::string& path);

}  // namespace fusionllm::services
