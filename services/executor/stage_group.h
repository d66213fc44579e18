// How the replicas of this executor's stage communicate: by NCCL where all of them have a card of their own in one site, else by messages.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/collective/channel.h"
#include "lib/collective/communicator.h"
#include "lib/kernels/backend.h"

namespace fusionllm::services {

// What the plan says of their sums.
struct StageChain {
  std::vector<int> replicas;  // in the order of the chain
  int64_t chunk_bytes = 0;    // 0: the chain's own
};

// Blocks until all replicas have called this; on the thread that uses the back end, which must outlive the communicator, as must `channel`.
// `near`: all of them are in one site. Errors: collective::JoinOverChannel's.
absl::StatusOr<std::unique_ptr<collective::Communicator>> JoinGroup(const collective::GroupRank& group_rank, kernels::Backend& backend,
                                                                    collective::PointToPointChannel& channel, const StageChain& chain,
                                                                    bool near, std::stop_token stop);

}  // namespace fusionllm::services
