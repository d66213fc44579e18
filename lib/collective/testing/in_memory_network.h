// Chunks between ranks in one process, for tests: with all that a channel may do, by seed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/collective/channel.h"

namespace fusionllm::collective::testing {

using Bytes = std::vector<std::byte>;

// A box for each rank. Unbounded; thread-safe; outlives who uses its channel.
class InMemoryNetwork {
 public:
  struct FaultOptions {
    bool late = false;  // chunks overtake each other at random, and some come only when their receiver has nothing else to wait for
    uint32_t seed = 1;  // of that
    // What becomes of a chunk, before it goes, on the sender's thread; may change its bytes, and use the network. False: it is lost.
    std::function<bool(int from, int to, const Chunk&, std::vector<std::byte>&)> handle;
  };
  explicit InMemoryNetwork(int size) : InMemoryNetwork(size, FaultOptions()) {}
  InMemoryNetwork(int size, FaultOptions faults);

  PointToPointChannel& channel(int rank) { return *mailboxes_[static_cast<size_t>(rank)]; }

  // From now on nothing reaches this rank, and nothing comes from it. Who sends to it hears of it, or finds out in time.
  void Lose(int rank, bool silently);

  struct Sent {
    int from, to;
    Chunk chunk;
    size_t bytes;
  };
  std::vector<Sent> sent() const;  // all of it so far, in the order in which they were sent

 private:
  using Bytes = std::vector<std::byte>;
  using Key = std::pair<int, Chunk>;  // with its sender

  class Mailbox final : public PointToPointChannel {
   public:
    Mailbox(InMemoryNetwork& network, int rank) : network_(network), rank_(rank) {}
    absl::Status Send(int to, const Chunk& chunk, Bytes bytes) override { return network_.Send(rank_, to, chunk, std::move(bytes)); }
    absl::StatusOr<Bytes> Receive(int from, const Chunk& chunk, absl::Time deadline) override;
    void Cancel(absl::Status why) override;

   private:
    friend class InMemoryNetwork;
    void DeliverOne();

    InMemoryNetwork& network_;
    const int rank_;
    // Guarded by the network's mutex.
    std::condition_variable changed_;
    std::map<Key, Bytes> here_;
    std::vector<std::pair<Key, Bytes>> under_way_;
    absl::Status cancelled_;
  };

  absl::Status Send(int from, int to, const Chunk& chunk, Bytes bytes);

  const FaultOptions faults_;
  mutable base::Mutex mutex_;
  std::mt19937 draw_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::map<int, bool> lost_ ABSL_GUARDED_BY(mutex_);  // whether silently
  std::vector<Sent> sent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::collective::testing
