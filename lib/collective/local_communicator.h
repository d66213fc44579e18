// Replicas in one process, by way of the host's memory: for several stages of a plan in one process, and for tests on any back end.
//
// Sums are made in the order of ranks, by the last to come. A call returns when it has been done, so Wait has nothing to wait for. What
// ends one rank ends all: an abort, a rank that is destroyed while others wait for it, calls that do not fit each other.
#pragma once

#include <memory>
#include <stop_token>

#include "absl/status/statusor.h"
#include "lib/collective/communicator.h"
#include "lib/collective/rendezvous.h"
#include "lib/tensor/memory.h"

namespace fusionllm::collective {

// Blocks until all ranks have called this. `memory` must outlive the communicator, `rendezvous` need not; ranks may have memories of
// different kinds. Errors: ExchangePeerInfo's; FailedPrecondition for ranks in another process.
absl::StatusOr<std::unique_ptr<Communicator>> JoinInProcess(Rendezvous& rendezvous, const GroupRank& group_rank, tensor::Memory& memory,
                                                            const Timeouts& timeout = {}, std::stop_token stop = {});

}  // namespace fusionllm::collective
