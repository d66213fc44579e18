// Replicas that exchange chunks: what every communicator must do, what goes over each link of the chain, and in which order sums are made.
#include "lib/collective/chain_communicator.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/status_macros.h"
#include "lib/collective/local_communicator.h"
#include "lib/collective/testing/communicator_conformance.h"
#include "lib/collective/testing/in_memory_network.h"
#include "lib/kernels/testing/isolated_memory.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::collective {
namespace {

using tensor::DType;
using tensor::TensorView;
using testing::Bytes;
using testing::CommunicatorConformance;
using testing::Implementation;
using testing::InMemoryNetwork;
using testing::TestRank;

// The network of a group, which its ranks find by what the first one says when they meet; kept until all have found it, as the first
// to find it may be gone by then.
std::shared_ptr<InMemoryNetwork> NetworkOf(const std::string& secret, int size, const InMemoryNetwork::FaultOptions& faults) {
  struct Entry {
    std::shared_ptr<InMemoryNetwork> network;
    int found = 0;
  };
  static std::mutex mutex;
  static auto* const networks = new std::map<std::string, Entry>();
  const std::lock_guard lock(mutex);
  Entry& entry = (*networks)[secret];
  if (entry.network == nullptr) entry.network = std::make_shared<InMemoryNetwork>(size, faults);
  std::shared_ptr<InMemoryNetwork> network = entry.network;
  if (++entry.found == size) networks->erase(secret);
  return network;
}

class OnChain final : public TestRank {
 public:
  OnChain(std::shared_ptr<InMemoryNetwork> network, std::unique_ptr<kernels::Backend> backend)
      : network_(std::move(network)), backend_(std::move(backend)) {}
  absl::Status Join(const GroupRank& group_rank, ChainOptions options) {
    tensor::Memory& memory = backend_ == nullptr ? tensor::HostMemory() : backend_->memory();
    FUSIONLLM_ASSIGN_OR_RETURN(communicator_, MakeChain(group_rank, memory, network_->channel(group_rank.rank), std::move(options)));
    return absl::OkStatus();
  }
  Communicator& communicator() override { return *communicator_; }

 private:
  const std::shared_ptr<InMemoryNetwork> network_;
  const std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<Communicator> communicator_;
};

struct Kind {
  std::string name;
  bool apart = false;
  bool permuted = false;
  bool late = false;
  size_t chunk_bytes = kChunkBytes;
};

// 0, 2, 4, 1, 3 of five: no neighbours by rank, and not its own inverse.
std::vector<int> Permuted(int size) {
  std::vector<int> chain;
  for (int rank = 0; rank < size; rank += 2) chain.push_back(rank);
  for (int rank = 1; rank < size; rank += 2) chain.push_back(rank);
  return chain;
}

Implementation Chain(const Kind& kind) {
  const auto join = [kind](Rendezvous& rendezvous, const GroupRank& group_rank, const Timeouts& timeout,
                           std::stop_token stop) -> absl::StatusOr<std::unique_ptr<TestRank>> {
    static std::atomic<int> groups = 0;
    const PeerInfo own = {.kind = "chain", .secret = group_rank.rank == 0 ? absl::StrCat(++groups) : ""};
    FUSIONLLM_ASSIGN_OR_RETURN(const auto all, ExchangePeerInfo(rendezvous, group_rank, own, timeout.to_join, std::move(stop)));
    std::unique_ptr<kernels::Backend> backend;
    if (kind.apart) {
      FUSIONLLM_ASSIGN_OR_RETURN(backend, kernels::testing::IsolatedMemoryBackend("ref"));
    }
    auto joined = std::make_unique<OnChain>(NetworkOf(all.front().secret, group_rank.size, {.late = kind.late}), std::move(backend));
    ChainOptions options = {.timeout = timeout, .chunk_bytes = kind.chunk_bytes};
    if (kind.permuted) options.chain = Permuted(group_rank.size);
    FUSIONLLM_RETURN_IF_ERROR(joined->Join(group_rank, options));
    return joined;
  };
  return {.name = kind.name, .join = join, .detects_mismatches = true, .propagates_errors = true};
}

INSTANTIATE_TEST_SUITE_P(Chain, CommunicatorConformance,
                         ::testing::Values(Chain({.name = "OnHost"}), Chain({.name = "Apart", .apart = true, .chunk_bytes = 1000}),
                                           Chain({.name = "Permuted", .permuted = true}),
                                           Chain({.name = "Late", .permuted = true, .late = true, .chunk_bytes = 4096})),
                         [](const auto& info) { return info.param.name; });

// Runs `body` for each rank on a thread of its own; all must end well.
void OnAll(InMemoryNetwork& network, int size, const ChainOptions& options, const std::function<absl::Status(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto c =
          MakeChain({.group = "g", .epoch = 3, .rank = rank, .size = size}, tensor::HostMemory(), network.channel(rank), options);
      ASSERT_TRUE(c.ok()) << c.status();
      const absl::Status status = body(**c);
      EXPECT_TRUE(status.ok()) << "replica " << rank << ": " << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Values {
  DType dtype;
  Bytes bytes;
  TensorView view() { return {{dtype, {static_cast<int64_t>(bytes.size() / tensor::SizeOf(dtype))}}, bytes.data()}; }
};

// Normal numbers of magnitudes whose sums depend on their order.
Values Drawn(DType dtype, size_t count, std::mt19937& draw) {
  Values values = {dtype, Bytes(count * tensor::SizeOf(dtype))};
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < count; ++i) {
    const float x = normal(draw) * std::exp2f(static_cast<float>(draw() % 20));
    const uint16_t rounded = tensor::RoundToBf16(x);
    if (dtype == DType::kF32) std::memcpy(values.bytes.data() + 4 * i, &x, 4);
    if (dtype == DType::kBF16) std::memcpy(values.bytes.data() + 2 * i, &rounded, 2);
  }
  return values;
}

void AddElement(DType dtype, std::byte* sum, const std::byte* term) {
  if (dtype == DType::kF32) {
    float a, b;
    std::memcpy(&a, sum, 4);
    std::memcpy(&b, term, 4);
    a += b;
    std::memcpy(sum, &a, 4);
  } else {
    uint16_t a, b;
    std::memcpy(&a, sum, 2);
    std::memcpy(&b, term, 2);
    a = tensor::RoundToBf16(tensor::UpcastBf16(a) + tensor::UpcastBf16(b));
    std::memcpy(sum, &a, 2);
  }
}

// As the header says: each element along the chain.
Bytes SumAlong(const std::vector<int>& chain, size_t tensor, const std::vector<std::vector<Values>>& all) {
  Bytes sum = all[static_cast<size_t>(chain.front())][tensor].bytes;
  for (size_t place = 1; place < chain.size(); ++place) {
    const Values& term = all[static_cast<size_t>(chain[place])][tensor];
    for (size_t at = 0; at < sum.size(); at += tensor::SizeOf(term.dtype)) AddElement(term.dtype, sum.data() + at, term.bytes.data() + at);
  }
  return sum;
}

struct Draw {
  int size;
  std::vector<int> chain;
  std::vector<DType> types;
  std::vector<size_t> counts;
  ChainOptions options;
  InMemoryNetwork::FaultOptions faults;
};

Draw DrawCase(std::mt19937& draw) {
  constexpr size_t kChunkSizes[] = {1, 6, 16, 100, 3000, kChunkBytes};
  Draw d = {.size = static_cast<int>(draw() % 5) + 1};
  d.chain.resize(static_cast<size_t>(d.size));
  std::iota(d.chain.begin(), d.chain.end(), 0);
  std::shuffle(d.chain.begin(), d.chain.end(), draw);
  const size_t tensors = draw() % 6;
  for (size_t i = 0; i < tensors; ++i) {
    d.types.push_back(draw() % 2 == 0 ? DType::kF32 : DType::kBF16);
    d.counts.push_back(draw() % 3 == 0 ? draw() % 3 : draw() % 120);
  }
  d.options = {.chain = d.chain, .chunk_bytes = kChunkSizes[draw() % std::size(kChunkSizes)]};
  d.faults = {.late = draw() % 2 == 0, .seed = static_cast<uint32_t>(draw())};
  return d;
}

TEST(ChainCommunicatorTest, SumsHaveTheBitsOfTheOrderThatIsPromised) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 draw(seed);
    const Draw d = DrawCase(draw);
    std::vector<std::vector<Values>> brought(static_cast<size_t>(d.size)), got;
    for (auto& values : brought) {
      for (size_t i = 0; i < d.types.size(); ++i) values.push_back(Drawn(d.types[i], d.counts[i], draw));
    }
    got = brought;
    InMemoryNetwork network(d.size, d.faults);
    OnAll(network, d.size, d.options, [&](Communicator& c) {
      std::vector<TensorView> views;
      for (Values& values : got[static_cast<size_t>(c.rank())]) views.push_back(values.view());
      return c.AllReduce(views);
    });
    for (size_t i = 0; i < d.types.size(); ++i) {
      const Bytes want = SumAlong(d.chain, i, brought);
      for (size_t rank = 0; rank < got.size(); ++rank) ASSERT_EQ(got[rank][i].bytes, want) << "tensor " << i << " of replica " << rank;
    }
  }
}

// It is the decision of a step that is sent so: its sender would wait for two latencies more than the sum of gradients takes.
TEST(ChainCommunicatorTest, BroadcastRootReturnsWithoutWaiting) {
  InMemoryNetwork network(2);
  const Timeouts timeout = {.per_call = absl::Seconds(20)};
  const auto at = [&](int rank) {
    return *MakeChain({.group = "g", .epoch = 1, .rank = rank, .size = 2}, tensor::HostMemory(), network.channel(rank),
                      {.timeout = timeout});
  };
  const auto root = at(0), other = at(1);
  float mine = 7, his = 0;
  const TensorView from{{DType::kF32, {1}}, reinterpret_cast<std::byte*>(&mine)},
      to{{DType::kF32, {1}}, reinterpret_cast<std::byte*>(&his)};
  ASSERT_TRUE(root->Broadcast({&from, 1}, 0).ok()) << "the other one has called nothing yet";
  std::thread later([&] { EXPECT_TRUE(other->Broadcast({&to, 1}, 0).ok()); });
  EXPECT_TRUE(root->Wait().ok());
  later.join();
  EXPECT_EQ(his, 7);
  // What does not fit is found in the next call.
  ASSERT_TRUE(root->Broadcast({&from, 1}, 0).ok());
  std::thread wrong([&] { EXPECT_EQ(other->AllReduce({&to, 1}).code(), absl::StatusCode::kInternal); });
  EXPECT_EQ(root->AllReduce({&from, 1}).code(), absl::StatusCode::kInternal);
  wrong.join();
}

TEST(ChainCommunicatorTest, ScatteredSumsHaveTheBitsOfTheOrderThatIsPromised) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 draw(seed);
    const Draw d = DrawCase(draw);
    const auto size = static_cast<size_t>(d.size);
    std::vector<std::vector<Values>> brought(size), got(size);
    for (size_t rank = 0; rank < size; ++rank) {
      for (size_t i = 0; i < d.types.size(); ++i) {
        brought[rank].push_back(Drawn(d.types[i], d.counts[i] * size, draw));
        got[rank].push_back(Drawn(d.types[i], d.counts[i], draw));
      }
    }
    std::vector<std::vector<Values>> before = brought;
    InMemoryNetwork network(d.size, d.faults);
    OnAll(network, d.size, d.options, [&](Communicator& c) {
      std::vector<Exchange> exchanges;
      const auto rank = static_cast<size_t>(c.rank());
      for (size_t i = 0; i < d.types.size(); ++i) exchanges.push_back({brought[rank][i].view(), got[rank][i].view()});
      return c.ReduceScatter(exchanges);
    });
    for (size_t i = 0; i < d.types.size(); ++i) {
      const Bytes sum = SumAlong(d.chain, i, before);
      for (size_t rank = 0; rank < size; ++rank) {
        ASSERT_EQ(brought[rank][i].bytes, before[rank][i].bytes) << "it is read only";
        const auto begin = sum.begin() + static_cast<std::ptrdiff_t>(rank * got[rank][i].bytes.size());
        ASSERT_EQ(got[rank][i].bytes, Bytes(begin, begin + static_cast<std::ptrdiff_t>(got[rank][i].bytes.size()))) << "replica " << rank;
      }
    }
  }
}

TEST(ChainCommunicatorTest, InTheOrderOfRanksHasTheBitsOfTheOneInProcess) {
  for (const int size : {2, 3, 5}) {
    std::mt19937 draw(5);
    std::vector<std::vector<Values>> chain(static_cast<size_t>(size)), local;
    for (auto& values : chain) values = {Drawn(DType::kF32, 10'001, draw), Drawn(DType::kBF16, 7'777, draw)};
    local = chain;
    const auto sum = [](Communicator& c, std::vector<std::vector<Values>>& all) {
      std::vector<TensorView> views;
      for (Values& values : all[static_cast<size_t>(c.rank())]) views.push_back(values.view());
      return c.AllReduce(views);
    };
    InMemoryNetwork network(size);
    OnAll(network, size, {.chunk_bytes = 1000}, [&](Communicator& c) { return sum(c, chain); });
    LocalRendezvous rendezvous;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto c = JoinInProcess(rendezvous, {.group = "g", .epoch = 3, .rank = rank, .size = size}, tensor::HostMemory());
        ASSERT_TRUE(c.ok()) << c.status();
        EXPECT_TRUE(sum(**c, local).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t rank = 0; rank < chain.size(); ++rank) {
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(chain[rank][i].bytes, local[rank][i].bytes) << i;
    }
  }
}

// Bytes of numbers, by sender and receiver. Checks names and sizes of all chunks.
std::map<std::pair<int, int>, int64_t> BytesOfNumbers(const InMemoryNetwork& network, size_t chunk_bytes) {
  std::map<std::pair<int, int>, int64_t> numbers, talk;
  std::set<std::tuple<int, int, Chunk>> names;
  for (const InMemoryNetwork::Sent& sent : network.sent()) {
    EXPECT_TRUE(names.insert({sent.from, sent.to, sent.chunk}).second) << "a chunk of a name that there was";
    EXPECT_GE(sent.chunk.call, 0) << "those below are for meetings";
    if (sent.chunk.round >= 0) {
      EXPECT_LE(sent.bytes, chunk_bytes + 4);
    }
    (sent.chunk.round >= 0 ? numbers : talk)[{sent.from, sent.to}] += static_cast<int64_t>(sent.bytes);
  }
  for (const auto& [link, said] : talk) EXPECT_LE(said, 100);
  return numbers;
}

// What the planner reckons with: all of the bytes once in each direction between neighbours, and nothing between others.
TEST(ChainCommunicatorTest, EachLinkOfTheChainCarriesTheBytesOnceEachWay) {
  for (int size = 1; size <= 5; ++size) {
    for (const auto& [floats, halves] : {std::pair(60'000, 1'200), std::pair(1'001, 1), std::pair(1, 0), std::pair(0, 0)}) {
      SCOPED_TRACE(absl::StrCat(size, " ranks, ", floats, " and ", halves, " elements"));
      const std::vector<int> chain = Permuted(size);
      InMemoryNetwork network(size);
      OnAll(network, size, {.chain = chain, .chunk_bytes = 5'000}, [floats = floats, halves = halves](Communicator& c) {
        std::vector<float> x(static_cast<size_t>(floats));
        std::vector<uint16_t> y(static_cast<size_t>(halves));
        const TensorView views[] = {{{DType::kBF16, {halves}}, y.data()}, {{DType::kF32, {floats}}, x.data()}};
        return c.AllReduce(views);
      });
      std::map<std::pair<int, int>, int64_t> want;
      for (size_t place = 0; place + 1 < chain.size(); ++place) {
        want[{chain[place], chain[place + 1]}] = want[{chain[place + 1], chain[place]}] = int64_t{4} * floats + int64_t{2} * halves;
      }
      EXPECT_EQ(BytesOfNumbers(network, 5'000), want);
    }
  }
}

// All there; back over each link the runs of those that are behind it.
TEST(ChainCommunicatorTest, ScatteredSumsComeBackAlongTheChain) {
  constexpr int kSize = 4, kShare = 3'000;
  const std::vector<int> chain = Permuted(kSize);
  InMemoryNetwork network(kSize);
  OnAll(network, kSize, {.chain = chain, .chunk_bytes = 5'000}, [](Communicator& c) {
    std::vector<float> from(kShare * kSize), to(kShare);
    const Exchange exchanges[] = {{{{DType::kF32, {kShare * kSize}}, from.data()}, {{DType::kF32, {kShare}}, to.data()}}};
    return c.ReduceScatter(exchanges);
  });
  std::map<std::pair<int, int>, int64_t> want;
  for (size_t place = 0; place + 1 < kSize; ++place) {
    want[{chain[place], chain[place + 1]}] = 4 * kShare * kSize;
    want[{chain[place + 1], chain[place]}] = 4 * kShare * static_cast<int64_t>(place + 1);
  }
  EXPECT_EQ(BytesOfNumbers(network, 5'000), want);
}

// However late one comes: no rank is further ahead of the next one than it may be.
TEST(ChainCommunicatorTest, ChunksInFlightAreBounded) {
  constexpr int kSize = 3, kElements = 30'000;
  std::mutex mutex;
  int to_second = 0, to_last = 0;  // before the last rank came
  bool came = false;
  InMemoryNetwork network(kSize, {.handle = [&](int, int to, const Chunk& chunk, Bytes&) {
                            const std::lock_guard lock(mutex);
                            if (chunk.round >= 0 && !came) ++(to == 1 ? to_second : to_last);
                            return true;
                          }});
  OnAll(network, kSize, {.chunk_bytes = 100}, [&](Communicator& c) {
    std::vector<float> x(kElements, 1.0f);
    const TensorView views[] = {{{DType::kF32, {kElements}}, x.data()}};
    const auto all_sent = [&] {
      const std::lock_guard lock(mutex);
      came = to_second > 2 * kChunksAhead && to_last > kChunksAhead;
      return came;
    };
    while (c.rank() == 2 && !all_sent()) std::this_thread::yield();
    return c.AllReduce(views);
  });
  EXPECT_EQ(to_second, 2 * kChunksAhead + 1);
  EXPECT_EQ(to_last, kChunksAhead + 1);
}

TEST(ChainCommunicatorTest, WhatTheOthersDoNotNeedOfARankItMayTakeAlong) {
  // Chunks of the one that leaves come after its close message, or so it looks to the one that stays.
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    InMemoryNetwork network(3, {.late = true, .seed = seed});
    OnAll(network, 3, {}, [](Communicator& c) {
      int64_t x = c.rank();
      const TensorView views[] = {{{DType::kI64, {1}}, &x}};
      FUSIONLLM_RETURN_IF_ERROR(c.Broadcast(views, 2));
      EXPECT_EQ(x, 2);
      return absl::OkStatus();
    });
  }
  InMemoryNetwork network(2);
  const auto stays = MakeChain({.group = "g", .epoch = 1, .rank = 0, .size = 2}, tensor::HostMemory(), network.channel(0));
  ASSERT_TRUE(MakeChain({.group = "g", .epoch = 1, .rank = 1, .size = 2}, tensor::HostMemory(), network.channel(1)).ok());
  EXPECT_TRUE((*stays)->Wait().ok());
  EXPECT_EQ((*stays)->AllReduce({}), absl::UnavailableError("replica 1 of 2 of group 'g' in plan epoch 1 has left"));
}

TEST(ChainCommunicatorTest, TimeoutNamesMissingRank) {
  InMemoryNetwork network(4);
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {  // 3 stays away
    threads.emplace_back([&, rank] {
      const auto c = MakeChain({.group = "g", .epoch = 1, .rank = rank, .size = 4}, tensor::HostMemory(), network.channel(rank),
                               {.timeout = {.per_call = absl::Milliseconds(200)}});
      ASSERT_TRUE(c.ok()) << c.status();
      float x = 1;
      const TensorView views[] = {{{DType::kF32, {1}}, &x}};
      statuses[static_cast<size_t>(rank)] = (*c)->AllReduce(views);
      EXPECT_EQ((*c)->Wait(), statuses[static_cast<size_t>(rank)]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                ::testing::MatchesRegex("replica [012] of 4 of group 'g' in plan epoch 1 waited 200ms for replica 3 in AllReduce f32.1."));
  }
}

TEST(ChainCommunicatorTest, RejectsDifferentChainsOrChunkSizes) {
  const auto run = [](const ChainOptions& first, const ChainOptions& second) {
    InMemoryNetwork network(2);
    std::vector<absl::Status> statuses(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto c = MakeChain({.group = "g", .epoch = 1, .rank = rank, .size = 2}, tensor::HostMemory(), network.channel(rank),
                                 rank == 0 ? first : second);
        statuses[static_cast<size_t>(rank)] = (*c)->AllReduce({});
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(statuses[0], statuses[1]);
    return statuses[0];
  };
  constexpr char kSays[] =
      "the replicas of group 'g' do not call the same: replica 0 AllReduce  .[0-9a-f]+., replica 1 AllReduce  .[0-9a-f]+.; "
      "executors of different builds may do so: run the same one on all devices";
  for (const absl::Status& status : {run({.chain = {0, 1}}, {.chain = {1, 0}}), run({}, {.chunk_bytes = 5})}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), ::testing::MatchesRegex(kSays));
  }
  EXPECT_TRUE(run({}, {.chain = {0, 1}}).ok());
}

TEST(ChainCommunicatorTest, RankAloneCanBeAborted) {
  InMemoryNetwork network(1);
  const auto c = MakeChain({.group = "g", .epoch = 1, .rank = 0, .size = 1}, tensor::HostMemory(), network.channel(0));
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_TRUE((*c)->AllReduce({}).ok());
  (*c)->Abort(absl::CancelledError("told to stop"));
  EXPECT_EQ((*c)->AllReduce({}), absl::CancelledError("replica 0 of 1 of group 'g' in plan epoch 1: told to stop"));
}

TEST(ChainCommunicatorTest, WhatIsNoChainIsRefused) {
  InMemoryNetwork network(3);
  const auto make = [&](int rank, ChainOptions options) {
    return MakeChain({.group = "g", .epoch = 1, .rank = rank, .size = 3}, tensor::HostMemory(), network.channel(0), std::move(options))
        .status();
  };
  EXPECT_EQ(make(1, {.chain = {0, 1}}),
            absl::InvalidArgumentError("the chain 0 1 of replica 1 of 3 of group 'g' in plan epoch 1 does not name each once"));
  for (const std::vector<int>& chain : {std::vector<int>{0, 1, 1}, {0, 1, 3}, {-1, 0, 1}, {0, 1, 2, 0}}) {
    EXPECT_EQ(make(0, {.chain = chain}).code(), absl::StatusCode::kInvalidArgument) << absl::StrJoin(chain, " ");
  }
  EXPECT_EQ(make(3, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(make(0, {.chunk_bytes = 0}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(make(0, {.chain = {2, 0, 1}}).ok());
}

}  // namespace
}  // namespace fusionllm::collective
