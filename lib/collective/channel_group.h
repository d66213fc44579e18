// The communicator of a group whose ranks are in different processes: the fastest way that all of them have, which they find out over a
// channel; that channel itself (chain_communicator.h) where they have no faster one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/collective/channel.h"
#include "lib/collective/communicator.h"
#include "lib/collective/rendezvous.h"
#include "lib/tensor/memory.h"

namespace fusionllm::collective {

// A way that a rank may have to others like it: NCCL between cards.
struct FastTransport {
  std::string kind;    // "nccl"; one word
  std::string device;  // no two ranks of a group share one
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(Rendezvous& rendezvous, std::stop_token stop)> join;
};

struct ChannelGroupOptions {
  Timeouts timeout;
  std::vector<int> chain;                    // as ChainOptions has it, as is
  size_t chunk_bytes = 0;                    // 0: theirs
  std::optional<FastTransport> fast;         // nothing: this rank has none
  std::string why_not_fast = "it has none";  // then
};

// Blocks until all ranks have called this. Where the fast way is not open to one of them after all (its join fails), they take the
// channel together; that may be known only when the others' joins have given up, too. `channel` must outlive the communicator. `account`,
// if not null: by what way and why, for people. Errors: ChannelRendezvous::Exchange's, and MakeChain's.
absl::StatusOr<std::unique_ptr<Communicator>> JoinOverChannel(const GroupRank& group_rank, tensor::Memory& memory,
                                                              PointToPointChannel& channel, const ChannelGroupOptions& options,
                                                              std::stop_token stop = {}, std::string* account = nullptr);

}  // namespace fusionllm::collective
