// What goes wrong in a chain, at a chunk that the seed chooses: all ranks end, with an error that says what it was, and none hangs.
#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/status_macros.h"
#include "lib/collective/chain_communicator.h"
#include "lib/collective/chain_messages.h"
#include "lib/collective/testing/in_memory_network.h"
#include "lib/tensor/memory.h"

namespace fusionllm::collective {
namespace {

using tensor::DType;
using tensor::TensorView;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::InMemoryNetwork;

// Found by who waits in vain, and by nothing else.
constexpr absl::Duration kShort = absl::Milliseconds(100);
constexpr absl::Duration kLong = absl::Minutes(1);  // ctest would tell

// Calls of all kinds in an order of the seed's, until one fails.
absl::Status CallForever(Communicator& c, uint32_t seed) {
  std::mt19937 draw(seed);  // the same on all
  while (true) {
    const auto count = static_cast<int64_t>(draw() % 60);
    const int kind = static_cast<int>(draw() % 4), root = static_cast<int>(draw() % static_cast<uint32_t>(c.size()));
    std::vector<float> x(static_cast<size_t>(count)), all(x.size() * static_cast<size_t>(c.size()));
    std::vector<uint16_t> y(x.size());
    const TensorView one = {{DType::kF32, {count}}, x.data()}, half = {{DType::kBF16, {count}}, y.data()},
                     whole = {{DType::kF32, {count * c.size()}}, all.data()};
    const TensorView both[] = {half, one};
    const Exchange gather[] = {{one, whole}}, scatter[] = {{whole, one}};
    FUSIONLLM_RETURN_IF_ERROR(kind == 0   ? c.AllReduce(both)
                              : kind == 1 ? c.Broadcast(both, root)
                              : kind == 2 ? c.AllGather(gather)
                                          : c.ReduceScatter(scatter));
  }
}

class Faulty {
 public:
  // What happens to a chunk: whether it happened, and whether the chunk goes on.
  struct Outcome {
    bool happened = true, goes = true;
  };
  using Fault = std::function<Outcome(Faulty&, int from, int to, const Chunk&, Bytes&)>;

  Faulty(uint32_t seed, absl::Duration timeout, Fault fault)
      : draw_(seed), size_(static_cast<int>(draw_() % 4) + 2), due_(static_cast<int>(draw_() % 400)), fault_(std::move(fault)) {
    victim_ = static_cast<int>(draw_() % static_cast<uint32_t>(size_));
    network_ = std::make_unique<InMemoryNetwork>(
        size_, InMemoryNetwork::FaultOptions{
                   .late = draw_() % 2 == 0, .seed = seed, .handle = [this](auto&&... chunk) { return Handle(chunk...); }});
    for (int rank = 0; rank < size_; ++rank) {
      auto made = MakeChain({.group = "g", .epoch = 1, .rank = rank, .size = size_}, tensor::HostMemory(), network_->channel(rank),
                            {.timeout = {.per_call = timeout}, .chunk_bytes = 50});
      EXPECT_TRUE(made.ok()) << made.status();
      communicators_.push_back(*std::move(made));
    }
    std::vector<std::thread> threads;
    statuses_.resize(communicators_.size());
    for (size_t rank = 0; rank < communicators_.size(); ++rank) {
      threads.emplace_back([&, rank] { statuses_[rank] = CallForever(*communicators_[rank], seed); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t rank = 0; rank < communicators_.size(); ++rank) {
      EXPECT_FALSE(statuses_[rank].ok());
      EXPECT_EQ(communicators_[rank]->AllReduce({}), statuses_[rank]) << "the first error stays";
    }
  }

  int victim() const { return victim_; }
  InMemoryNetwork& network() { return *network_; }
  Communicator& communicator(int rank) { return *communicators_[static_cast<size_t>(rank)]; }
  const std::vector<absl::Status>& statuses() const { return statuses_; }

 private:
  bool Handle(int from, int to, const Chunk& chunk, Bytes& bytes) {
    if (++handled_ <= due_ || over_.exchange(true)) return true;
    const Outcome outcome = fault_(*this, from, to, chunk, bytes);
    over_ = outcome.happened;
    return outcome.goes;
  }

  std::mt19937 draw_;
  const int size_;
  const int due_;  // the chunk
  const Fault fault_;
  int victim_ = 0;
  std::atomic<int> handled_ = 0;
  std::atomic<bool> over_ = false;
  std::unique_ptr<InMemoryNetwork> network_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<absl::Status> statuses_;  // by rank
};

constexpr uint32_t kSeeds = 24;

bool IsData(const Chunk& chunk) { return chunk.round >= 0; }
bool IsCallHeader(const Chunk& chunk) { return chunk.round == -1; }

TEST(ChainFaultsTest, AnAbortEndsAllWithItsWords) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Faulty run(seed, kLong, [](Faulty& faulty, int, int, const Chunk&, Bytes&) {
      faulty.communicator(faulty.victim()).Abort(absl::CancelledError("told to stop"));
      return Faulty::Outcome{};
    });
    for (const absl::Status& status : run.statuses()) {
      EXPECT_EQ(status, absl::CancelledError(absl::StrCat("replica ", run.victim(), " of ", run.statuses().size(),
                                                          " of group 'g' in plan epoch 1: told to stop")));
    }
  }
}

TEST(ChainFaultsTest, ALostRankEndsAll) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool silently : {false, true}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, silently ? ", silently" : ""));
      const Faulty run(seed, kShort, [silently](Faulty& faulty, int, int, const Chunk&, Bytes&) {
        faulty.network().Lose(faulty.victim(), silently);
        return Faulty::Outcome{};
      });
      for (const absl::Status& status : run.statuses()) EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    }
  }
}

TEST(ChainFaultsTest, MailThatIsCancelledByItsOwnerEndsAll) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Faulty run(seed, kLong, [](Faulty& faulty, int, int, const Chunk&, Bytes&) {
      faulty.network().channel(faulty.victim()).Cancel(absl::UnavailableError("the plan is over"));
      return Faulty::Outcome{};
    });
    for (const absl::Status& status : run.statuses()) {
      EXPECT_EQ(status, absl::UnavailableError(absl::StrCat("replica ", run.victim(), " of ", run.statuses().size(),
                                                            " of group 'g' in plan epoch 1: the plan is over")));
    }
  }
}

TEST(ChainFaultsTest, LostChunkEndsAllRanks) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Faulty run(seed, kShort, [](Faulty&, int, int, const Chunk&, Bytes&) { return Faulty::Outcome{.goes = false}; });
    for (const absl::Status& status : run.statuses()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("waited 100ms for replica "));
    }
  }
}

TEST(ChainFaultsTest, WrongSizedChunkNamesItsSender) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::atomic<int> sender = -1;
    const Faulty run(seed, kLong, [&sender, seed](Faulty&, int from, int, const Chunk& chunk, Bytes& bytes) {
      if (!IsData(chunk) || bytes.empty()) return Faulty::Outcome{.happened = false};
      const size_t sizes[] = {0, bytes.size() - 1, bytes.size() + 1, bytes.size() + 4, 100'000};
      bytes.resize(sizes[seed % std::size(sizes)]);
      sender = from;
      return Faulty::Outcome{};
    });
    for (const absl::Status& status : run.statuses()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("replica ", sender.load(), " of ")));
      EXPECT_THAT(std::string(status.message()), HasSubstr(" bytes where "));
    }
  }
}

TEST(ChainFaultsTest, MismatchedCallNamesBothRanks) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::atomic<int> sender = -1;
    const Faulty run(seed, kLong, [&sender](Faulty&, int from, int, const Chunk& chunk, Bytes& bytes) {
      if (!IsCallHeader(chunk)) return Faulty::Outcome{.happened = false};
      const tensor::TensorType type = {DType::kF32, {4711}};
      const int chain[] = {0};
      bytes = Encode(Describe("AllReduce", {&type, 1}, chain, 50));
      sender = from;
      return Faulty::Outcome{};
    });
    for (const absl::Status& status : run.statuses()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("replica ", sender.load(), " AllReduce f32[4711]")));
    }
  }
}

TEST(ChainFaultsTest, MalformedControlMessageNamesItsSender) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool call_header : {false, true}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, call_header ? ", call_header" : ", close_message"));
      std::atomic<int> sender = -1;
      const Faulty run(seed, kLong, [&sender, call_header](Faulty& faulty, int from, int to, const Chunk& chunk, Bytes& bytes) {
        if (!IsCallHeader(chunk)) return Faulty::Outcome{.happened = false};
        sender = from;
        if (call_header) {
          bytes.resize(3);
          return Faulty::Outcome{};
        }
        // In time to be looked for: its call header never comes.
        EXPECT_TRUE(faulty.network().channel(from).Send(to, {.round = -2}, Bytes(5)).ok());
        return Faulty::Outcome{.goes = false};
      });
      for (const absl::Status& status : run.statuses()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("replica ", sender.load(), " of ")));
        EXPECT_THAT(std::string(status.message()), HasSubstr(call_header ? "3 bytes are no call header" : "5 bytes are no close message"));
      }
    }
  }
}

// A device's, which is lost after so many copies.
class LostMemory final : public tensor::Memory {
 public:
  explicit LostMemory(int copies) : left_(copies) {}
  bool on_host() const override { return false; }
  absl::StatusOr<tensor::MemoryBlock> Allocate(size_t bytes) override { return tensor::HostMemory().Allocate(bytes); }
  absl::Status Zero(std::byte* to, size_t bytes) override { return tensor::HostMemory().Zero(to, bytes); }
  absl::Status CopyIn(void* to, const void* from, size_t bytes) override { return Copy(to, from, bytes); }
  absl::Status CopyOut(void* to, const void* from, size_t bytes) override { return Copy(to, from, bytes); }

 private:
  void Free(std::byte*) override {}  // nothing is its own
  absl::Status Copy(void* to, const void* from, size_t bytes) {
    if (left_-- == 0) return tensor::OutOfMemoryError("the copy was too large for the card");
    return tensor::HostMemory().CopyOut(to, from, bytes);
  }

  int left_;
};

TEST(ChainFaultsTest, MemoryErrorOfOneRankNamesItEverywhere) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 draw(seed);
    const int size = static_cast<int>(draw() % 4) + 2, victim = static_cast<int>(draw() % static_cast<uint32_t>(size));
    LostMemory lost(static_cast<int>(draw() % 100));
    InMemoryNetwork network(size, InMemoryNetwork::FaultOptions{.late = draw() % 2 == 0, .seed = seed, .handle = nullptr});
    std::vector<absl::Status> statuses(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto c = MakeChain({.group = "g", .epoch = 1, .rank = rank, .size = size}, rank == victim ? lost : tensor::HostMemory(),
                                 network.channel(rank), {.timeout = {.per_call = kLong}, .chunk_bytes = 50});
        statuses[static_cast<size_t>(rank)] = CallForever(**c, seed);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(status.message(),
                absl::StrCat("replica ", victim, " of ", size, " of group 'g' in plan epoch 1: the copy was too large for the card"));
    }
    EXPECT_TRUE(tensor::IsOutOfMemory(statuses[static_cast<size_t>(victim)])) << "of which its own stage says more";
  }
}

// One rank of several calls something else than the others, of each kind.
TEST(ChainFaultsTest, RanksThatCallDifferentThingsAllHearOfIt) {
  for (int size = 2; size <= 5; ++size) {
    for (int other = 0; other < size; ++other) {
      InMemoryNetwork network(size);
      std::vector<absl::Status> statuses(static_cast<size_t>(size));
      std::vector<std::thread> threads;
      for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
          const auto c = MakeChain({.group = "g", .epoch = 1, .rank = rank, .size = size}, tensor::HostMemory(), network.channel(rank));
          float x = 0;
          const TensorView views[] = {{{DType::kF32, {1}}, &x}};
          statuses[static_cast<size_t>(rank)] = rank == other ? (*c)->Broadcast(views, (other + 1) % size) : (*c)->AllReduce(views);
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const absl::Status& status : statuses) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("replica ", other, " Broadcast of replica ")));
      }
    }
  }
}

}  // namespace
}  // namespace fusionllm::collective
