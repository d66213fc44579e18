// How the ranks of a group find each other before there is a communicator: each leaves a few bytes and takes those of all.
//
// An interface, because who carries the bytes depends on where the ranks are: LocalRendezvous within a process; between processes the one
// who knows them all, which is the broker.
#pragma once

#include <condition_variable>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/collective/communicator.h"

namespace fusionllm::collective {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Blocks until all ranks of the same group and epoch have called this, and returns what they brought, by rank. Each comes once. Thread-
  // safe. Errors: FailedPrecondition, a sentence with both numbers, for a rank of an epoch that is over, or one that waited when a newer
  // one began; InvalidArgument for ranks that count themselves differently; Unavailable, naming who is missing, after `timeout`;
  // Cancelled when `stop` says so.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(const GroupRank& group_rank, std::string bytes, absl::Duration timeout,
                                                            std::stop_token stop) = 0;
};

// For ranks in one process.
class LocalRendezvous final : public Rendezvous {
 public:
  absl::StatusOr<std::vector<std::string>> Exchange(const GroupRank& group_rank, std::string bytes, absl::Duration timeout,
                                                    std::stop_token stop) override;

 private:
  struct Meeting {
    uint32_t epoch = 0;
    std::vector<std::optional<std::string>> brought;  // by rank
    size_t missing() const;
  };
  absl::Status Enter(const GroupRank& group_rank, std::string bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  base::Mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, Meeting> meetings_ ABSL_GUARDED_BY(mutex_);  // the newest epoch of each group
};

// What a rank tells the others, and how they check it, whatever carried it.
struct PeerInfo {
  std::string kind;    // of the group: "nccl", "local"
  std::string device;  // no two ranks share one; empty: it does not matter
  std::string secret;  // rank 0's: what the others need to join
};

// Meets and checks: `kind` is everybody's, devices differ. Errors: Exchange's; FailedPrecondition for a rank of another kind or epoch, or
// for two on one device, naming them; InvalidArgument for bytes that are no introduction.
absl::StatusOr<std::vector<PeerInfo>> ExchangePeerInfo(Rendezvous& rendezvous, const GroupRank& group_rank, const PeerInfo& own,
                                                       absl::Duration timeout, std::stop_token stop);

}  // namespace fusionllm::collective
