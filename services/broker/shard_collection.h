// What sites have of a run's last checkpoint, brought to the broker when the run ends.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/checkpoint/manifest.h"
#include "services/broker/shard_fetcher.h"

namespace fusionllm::services {

// Brings `files`, which lie in sites, into `folder`, which the caller keeps from being removed: from all sites at the same time, so that
// several that are silent or away take as long as one. Blocks until each has sent everything, or nothing for `silence`. An error names the
// sites of which something is missing, and why.
absl::Status CollectShards(ShardFetcher& fetcher, const std::string& folder, const std::vector<checkpoint::FileEntry>& files,
                           absl::Duration silence);

}  // namespace fusionllm::services
