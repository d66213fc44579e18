// How many chunks one rank of a chain has at a time, whichever is slow: what executors must have memory for.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/collective/chain_communicator.h"
#include "lib/collective/testing/in_memory_network.h"

namespace fusionllm::collective {
namespace {

using tensor::DType;
using tensor::TensorView;
using testing::InMemoryNetwork;

// Counts chunks with numbers, by where they may lie. The chain is 0, 1, 2 ...
class Counts {
 public:
  explicit Counts(int size) : on_hop_(static_cast<size_t>(size - 1), 0), in_hand_(static_cast<size_t>(size), 0), most_(in_hand_) {}

  void Sent(int from, int to) {
    const std::lock_guard lock(mutex_);
    if (in_hand_[static_cast<size_t>(from)] > 0) --in_hand_[static_cast<size_t>(from)];  // else it is new
    ++on_hop_[static_cast<size_t>(std::min(from, to))];
    Look();
  }
  void Taken(int from, int by) {
    const std::lock_guard lock(mutex_);
    --on_hop_[static_cast<size_t>(std::min(from, by))];
    in_hand_[static_cast<size_t>(by)] = by == 0 ? 0 : 1;  // the first one keeps what comes back
    Look();
  }
  int on_hop(int hop) const {
    const std::lock_guard lock(mutex_);
    return on_hop_[static_cast<size_t>(hop)];
  }
  int most(int rank) const { return most_[static_cast<size_t>(rank)]; }  // once all have ended

 private:
  void Look() {
    for (size_t m = 0; m < in_hand_.size(); ++m) {
      const int before = m > 0 ? on_hop_[m - 1] : 0, after = m < on_hop_.size() ? on_hop_[m] : 0;
      most_[m] = std::max(most_[m], before + after + in_hand_[m]);
    }
  }

  mutable std::mutex mutex_;
  std::vector<int> on_hop_, in_hand_, most_;
};

class CountingChannel final : public PointToPointChannel {
 public:
  CountingChannel(PointToPointChannel& channel, int rank, Counts& counts) : channel_(channel), rank_(rank), counts_(counts) {}
  absl::Status Send(int to, const Chunk& chunk, std::vector<std::byte> bytes) override {
    if (chunk.round >= 0) counts_.Sent(rank_, to);
    return channel_.Send(to, chunk, std::move(bytes));
  }
  absl::StatusOr<std::vector<std::byte>> Receive(int from, const Chunk& chunk, absl::Time deadline) override {
    auto taken = channel_.Receive(from, chunk, deadline);
    if (taken.ok() && chunk.round >= 0) counts_.Taken(from, rank_);
    return taken;
  }
  void Cancel(absl::Status why) override { channel_.Cancel(std::move(why)); }

 private:
  PointToPointChannel& channel_;
  const int rank_;
  Counts& counts_;
};

// All sum once; each calls when `ready` lets it.
void SumAll(int size, uint32_t seed, Counts& counts, const std::function<void(int rank)>& ready) {
  constexpr int kElements = 6'000;
  InMemoryNetwork network(size, {.late = true, .seed = seed});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      CountingChannel channel(network.channel(rank), rank, counts);
      const auto c = MakeChain({.group = "g", .epoch = 3, .rank = rank, .size = size}, tensor::HostMemory(), channel, {.chunk_bytes = 100});
      ASSERT_TRUE(c.ok()) << c.status();
      ready(rank);
      std::vector<float> x(kElements, 1.0f);
      const TensorView views[] = {{{DType::kF32, {kElements}}, x.data()}};
      const absl::Status status = (*c)->AllReduce(views);
      EXPECT_TRUE(status.ok()) << "replica " << rank << ": " << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Until so many lie on a hop: the most that may, and nothing holds them up.
void AwaitChunks(const Counts& counts, int hop, int chunks) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (counts.on_hop(hop) < chunks) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << counts.on_hop(hop) << " chunks lie on hop " << hop << ", and not " << chunks;
      return;
    }
    std::this_thread::yield();
  }
}

// The one that is late finds all chunks that those before it may send.
TEST(ChainMemoryTest, RankHoldsAtMostTheChunksAhead) {
  for (int size = 2; size <= 5; ++size) {
    for (int late = 1; late < size; ++late) {
      for (uint32_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(absl::StrCat("rank ", late, " of ", size, " is late, seed ", seed));
        Counts counts(size);
        SumAll(size, seed, counts, [&](int rank) {
          if (rank == late) AwaitChunks(counts, late - 1, MaxChunksAt(late, size));
        });
        if (HasFailure()) return;  // it waits long for each
        EXPECT_EQ(counts.most(late), MaxChunksAt(late, size));
        if (late == 1) {
          EXPECT_EQ(counts.most(0), MaxChunksAt(0, size)) << "not yet sent, perhaps";
        }
        for (int rank = 0; rank < size; ++rank) EXPECT_LE(counts.most(rank), MaxChunksAt(rank, size)) << rank;
      }
    }
  }
}

}  // namespace
}  // namespace fusionllm::collective
