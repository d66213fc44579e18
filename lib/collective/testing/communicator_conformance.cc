#include "lib/collective/testing/communicator_conformance.h"

#include <atomic>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "lib/base/status_macros.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::collective::testing {
namespace {

using tensor::DType;
using tensor::TensorType;
using tensor::TensorView;
using ::testing::HasSubstr;

constexpr absl::Duration kShort = absl::Milliseconds(200);
// Far longer than anything here takes; who hangs is found by it and not by ctest.
constexpr Timeouts kLong = {.to_join = absl::Minutes(1), .per_call = absl::Minutes(1)};
constexpr size_t kTrap = 64;  // bytes after each tensor, which must not be written

// A tensor in a rank's memory, with a trap behind it.
class Placed {
 public:
  template <typename T>
  Placed(tensor::Memory& memory, DType dtype, const std::vector<T>& values)
      : memory_(memory), type_{dtype, {static_cast<int64_t>(values.size())}} {
    std::vector<std::byte> bytes(type_.bytes() + kTrap, std::byte{0x5A});
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), type_.bytes());
    auto block = memory.Allocate(bytes.size());
    EXPECT_TRUE(block.ok()) << block.status();
    block_ = *std::move(block);
    EXPECT_TRUE(memory.CopyIn(block_.data(), bytes.data(), bytes.size()).ok());
  }
  TensorView view() const { return {type_, block_.data()}; }
  template <typename T>
  std::vector<T> Values() const {
    std::vector<std::byte> bytes(block_.size());
    EXPECT_TRUE(memory_.CopyOut(bytes.data(), block_.data(), bytes.size()).ok());
    for (size_t i = type_.bytes(); i < bytes.size(); ++i) EXPECT_EQ(bytes[i], std::byte{0x5A}) << "written beyond its end";
    std::vector<T> values(type_.bytes() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), type_.bytes());
    return values;
  }

 private:
  tensor::Memory& memory_;
  TensorType type_;
  tensor::MemoryBlock block_;
};

// Sums of these are exact in fp32, whatever their order.
std::vector<float> WholeNumbers(size_t count, int rank, uint32_t seed = 1) {
  std::mt19937 draw(seed * 1000 + static_cast<uint32_t>(rank));
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>(static_cast<int>(draw() % 2001) - 1000);
  return values;
}

std::vector<float> SumOfWholeNumbers(size_t count, int size, uint32_t seed = 1) {
  std::vector<float> sum(count);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<float> term = WholeNumbers(count, rank, seed);
    for (size_t i = 0; i < count; ++i) sum[i] += term[i];
  }
  return sum;
}

absl::Status SumAndWait(Communicator& c, std::span<const TensorView> tensors) {
  FUSIONLLM_RETURN_IF_ERROR(c.AllReduce(tensors));
  return c.Wait();
}

absl::Status SumOfOne(Communicator& c, size_t count = 5) {
  const Placed x(c.memory(), DType::kF32, WholeNumbers(count, c.rank()));
  const TensorView views[] = {x.view()};
  return SumAndWait(c, views);
}

}  // namespace

std::vector<absl::Status> CommunicatorConformance::Run(int size, const Body& body, const Timeouts& timeout) const {
  LocalRendezvous rendezvous;
  std::vector<absl::Status> statuses(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto joined = GetParam().join(rendezvous, {.group = "stage-0", .epoch = 7, .rank = rank, .size = size}, timeout, {});
      statuses[static_cast<size_t>(rank)] = joined.ok() ? body((*joined)->communicator()) : joined.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

void CommunicatorConformance::MustRun(int size, const Body& body) const {
  const std::vector<absl::Status> statuses = Run(size, body, kLong);
  for (size_t rank = 0; rank < statuses.size(); ++rank) EXPECT_TRUE(statuses[rank].ok()) << "replica " << rank << ": " << statuses[rank];
}

TEST_P(CommunicatorConformance, RankKnowsItsPlace) {
  std::atomic<int> ranks = 0;
  MustRun(3, [&](Communicator& c) {
    EXPECT_EQ(c.size(), 3);
    EXPECT_EQ(c.epoch(), 7u);
    ranks += 1 << c.rank();
    return absl::OkStatus();
  });
  EXPECT_EQ(ranks, 7);
}

TEST_P(CommunicatorConformance, SumsOfAnyLengthReachEverybody) {
  for (int size = 1; size <= 5; ++size) {
    MustRun(size, [&](Communicator& c) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{64}, size_t{1023}, size_t{100'003}}) {
        const Placed x(c.memory(), DType::kF32, WholeNumbers(count, c.rank()));
        const TensorView views[] = {x.view()};
        FUSIONLLM_RETURN_IF_ERROR(SumAndWait(c, views));
        EXPECT_EQ(x.Values<float>(), SumOfWholeNumbers(count, size)) << count << " elements of " << size << " replicas";
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(CommunicatorConformance, ManyTensorsGoInOneCall) {
  MustRun(3, [](Communicator& c) {
    std::vector<Placed> placed;
    std::vector<TensorView> views;
    for (uint32_t i = 0; i < 200; ++i) placed.emplace_back(c.memory(), DType::kF32, WholeNumbers(i % 7 * 11, c.rank(), i));
    for (const Placed& x : placed) views.push_back(x.view());
    FUSIONLLM_RETURN_IF_ERROR(SumAndWait(c, views));
    for (uint32_t i = 0; i < placed.size(); ++i) EXPECT_EQ(placed[i].Values<float>(), SumOfWholeNumbers(i % 7 * 11, 3, i)) << i;
    FUSIONLLM_RETURN_IF_ERROR(SumAndWait(c, {}));  // none at all
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorConformance, EverybodyHasTheSameBitsAndHasThemAgain) {
  std::vector<std::vector<float>> sums(4);
  const auto sum = [&](Communicator& c) -> absl::Status {
    std::mt19937 draw(static_cast<uint32_t>(c.rank()));
    std::vector<float> values(1001);
    for (float& x : values) x = std::normal_distribution<float>()(draw);
    const Placed x(c.memory(), DType::kF32, values);
    const TensorView views[] = {x.view()};
    FUSIONLLM_RETURN_IF_ERROR(SumAndWait(c, views));
    sums[static_cast<size_t>(c.rank())] = x.Values<float>();
    return absl::OkStatus();
  };
  MustRun(4, sum);
  for (size_t rank = 1; rank < 4; ++rank) EXPECT_EQ(sums[rank], sums[0]);
  const auto before = sums[0];
  MustRun(4, sum);
  EXPECT_EQ(sums[0], before);
}

// 256 has no bf16 neighbour nearer than 2: each addition rounds, so the order of ranks shows.
TEST_P(CommunicatorConformance, Bf16IsRoundedAfterEachAddition) {
  MustRun(2, [](Communicator& c) {
    const float values[] = {c.rank() == 0 ? 1.0f : 0.00390625f, c.rank() == 0 ? 256.0f : 1.0f, c.rank() == 0 ? -3.0f : 4.5f};
    std::vector<uint16_t> bits;
    for (const float value : values) bits.push_back(tensor::RoundToBf16(value));
    const Placed x(c.memory(), DType::kBF16, bits);
    const TensorView views[] = {x.view()};
    FUSIONLLM_RETURN_IF_ERROR(SumAndWait(c, views));
    const std::vector<uint16_t> sums = x.Values<uint16_t>();
    EXPECT_EQ(tensor::UpcastBf16(sums[0]), 1.0f) << "a tie goes to even";
    EXPECT_EQ(tensor::UpcastBf16(sums[1]), 256.0f);
    EXPECT_EQ(tensor::UpcastBf16(sums[2]), 1.5f);
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorConformance, ScatteringGivesEachHisShareOfTheSum) {
  for (int size = 1; size <= 5; ++size) {
    MustRun(size, [&](Communicator& c) {
      constexpr size_t kShare = 17;
      const auto all = kShare * static_cast<size_t>(size);
      const Placed from(c.memory(), DType::kF32, WholeNumbers(all, c.rank()));
      const Placed to(c.memory(), DType::kF32, std::vector<float>(kShare));
      const Exchange exchanges[] = {{from.view(), to.view()}};
      FUSIONLLM_RETURN_IF_ERROR(c.ReduceScatter(exchanges));
      FUSIONLLM_RETURN_IF_ERROR(c.Wait());
      const std::vector<float> sum = SumOfWholeNumbers(all, size);
      const auto begin = sum.begin() + c.rank() * static_cast<int>(kShare);
      EXPECT_EQ(to.Values<float>(), std::vector<float>(begin, begin + kShare));
      EXPECT_EQ(from.Values<float>(), WholeNumbers(all, c.rank())) << "it is read only";
      return absl::OkStatus();
    });
  }
}

TEST_P(CommunicatorConformance, GatheringPutsThemByRankWhateverTheirType) {
  for (int size = 1; size <= 5; ++size) {
    MustRun(size, [&](Communicator& c) {
      const Placed bytes(c.memory(), DType::kU8, std::vector<uint8_t>{static_cast<uint8_t>(c.rank()), 9, 8});
      const Placed all_bytes(c.memory(), DType::kU8, std::vector<uint8_t>(3 * static_cast<size_t>(size)));
      const Placed counter(c.memory(), DType::kI64, std::vector<int64_t>{int64_t{1} << (40 + c.rank())});
      const Placed counters(c.memory(), DType::kI64, std::vector<int64_t>(static_cast<size_t>(size)));
      const Exchange exchanges[] = {{bytes.view(), all_bytes.view()}, {counter.view(), counters.view()}};
      FUSIONLLM_RETURN_IF_ERROR(c.AllGather(exchanges));
      FUSIONLLM_RETURN_IF_ERROR(c.Wait());
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(all_bytes.Values<uint8_t>()[3 * static_cast<size_t>(rank)], rank);
        EXPECT_EQ(counters.Values<int64_t>()[static_cast<size_t>(rank)], int64_t{1} << (40 + rank));
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(CommunicatorConformance, EveryRootCanBroadcast) {
  MustRun(3, [](Communicator& c) {
    for (int root = 0; root < 3; ++root) {
      const Placed numbers(c.memory(), DType::kI32, std::vector<int32_t>{c.rank(), root, -1});
      const Placed none(c.memory(), DType::kF32, std::vector<float>());
      const TensorView views[] = {none.view(), numbers.view()};
      FUSIONLLM_RETURN_IF_ERROR(c.Broadcast(views, root));
      FUSIONLLM_RETURN_IF_ERROR(c.Wait());
      EXPECT_EQ(numbers.Values<int32_t>(), (std::vector<int32_t>{root, root, -1}));
    }
    return absl::OkStatus();
  });
}

// Calls of every kind, types and lengths in an order that the seed gives; whole numbers, so that the sums are known.
TEST_P(CommunicatorConformance, AnySequenceOfCalls) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const int size = static_cast<int>(seed % 5) + 1;
    MustRun(size, [&](Communicator& c) {
      std::mt19937 draw(seed);  // the same on all
      for (int call = 0; call < 12; ++call) {
        const size_t count = draw() % 300, tensors = draw() % 4;
        const int kind = static_cast<int>(draw() % 3), root = static_cast<int>(draw() % static_cast<uint32_t>(size));
        std::vector<Placed> placed, gathered;
        std::vector<TensorView> views;
        std::vector<Exchange> exchanges;
        for (uint32_t i = 0; i < tensors; ++i) placed.emplace_back(c.memory(), DType::kF32, WholeNumbers(count + i, c.rank(), seed + i));
        for (uint32_t i = 0; i < tensors; ++i) {
          gathered.emplace_back(c.memory(), DType::kF32, std::vector<float>((count + i) * static_cast<size_t>(size)));
        }
        for (uint32_t i = 0; i < tensors; ++i) {
          views.push_back(placed[i].view());
          exchanges.push_back({placed[i].view(), gathered[i].view()});
        }
        FUSIONLLM_RETURN_IF_ERROR(kind == 0 ? c.AllReduce(views) : kind == 1 ? c.Broadcast(views, root) : c.AllGather(exchanges));
        FUSIONLLM_RETURN_IF_ERROR(c.Wait());
        for (uint32_t i = 0; i < tensors; ++i) {
          const std::vector<float> want =
              kind == 0 ? SumOfWholeNumbers(count + i, size, seed + i) : WholeNumbers(count + i, root, seed + i);
          if (kind < 2) {
            EXPECT_EQ(placed[i].Values<float>(), want);
          }
          for (int rank = 0; kind == 2 && rank < size; ++rank) {
            const std::vector<float> all = gathered[i].Values<float>(), his = WholeNumbers(count + i, rank, seed + i);
            EXPECT_TRUE(std::equal(his.begin(), his.end(), all.begin() + rank * static_cast<int>(count + i)));
          }
        }
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(CommunicatorConformance, WhatCannotBeAddedIsRefusedAndTheGroupGoesOn) {
  MustRun(2, [](Communicator& c) {
    const Placed numbers(c.memory(), DType::kI32, std::vector<int32_t>{1, 2, 3});
    const Placed floats(c.memory(), DType::kF32, std::vector<float>{1, 2, 3});
    const TensorView integers[] = {floats.view(), numbers.view()};
    EXPECT_EQ(c.AllReduce(integers).message(), "AllReduce: tensor 1 is i32[3], and sums are of f32 or bf16");
    const Exchange no_shares[] = {{floats.view(), floats.view()}};
    EXPECT_THAT(std::string(c.ReduceScatter(no_shares).message()), HasSubstr("which does not make f32[3] of all"));
    EXPECT_THAT(std::string(c.AllGather(no_shares).message()), HasSubstr("f32[3] for each of 2 replicas"));
    EXPECT_EQ(c.Broadcast({}, 2).message(), "Broadcast: replica 2 is none of the 2 of the group");
    return SumOfOne(c);
  });
}

TEST_P(CommunicatorConformance, AnAbortEndsWhoWaitsAndAllThatFollows) {
  std::promise<Communicator*> waiting;
  std::promise<void> aborted, over;
  std::future<void> is_over = over.get_future();
  std::thread other([&] {
    Communicator* const c = waiting.get_future().get();
    absl::Time begin = absl::Now();
    while (absl::Now() - begin < absl::Milliseconds(20)) std::this_thread::yield();  // so that it most likely waits already
    c->Abort(absl::UnavailableError("the plan is over"));
    c->Abort(absl::CancelledError("too late to decide"));
    aborted.set_value();
  });
  const std::vector<absl::Status> statuses = Run(
      2,
      [&](Communicator& c) -> absl::Status {
        if (c.rank() == 1) {  // it never calls
          is_over.wait();
          return absl::OkStatus();
        }
        waiting.set_value(&c);
        const absl::Status first = SumOfOne(c);
        aborted.get_future().wait();
        EXPECT_EQ(SumOfOne(c), first);
        EXPECT_EQ(c.Wait(), first);
        over.set_value();
        return first;
      },
      kLong);
  other.join();
  EXPECT_EQ(statuses[0], absl::UnavailableError("replica 0 of 2 of group 'stage-0' in plan epoch 7: the plan is over"));
}

TEST_P(CommunicatorConformance, AbortOfOneRankEndsTheOthers) {
  const Timeouts timeout = {.to_join = kLong.to_join, .per_call = GetParam().propagates_errors ? kLong.per_call : kShort};
  const std::vector<absl::Status> statuses = Run(
      3,
      [](Communicator& c) {
        if (c.rank() == 1) c.Abort(absl::CancelledError("told to stop"));
        return SumOfOne(c);
      },
      timeout);
  EXPECT_EQ(statuses[1], absl::CancelledError("replica 1 of 3 of group 'stage-0' in plan epoch 7: told to stop"));
  for (const size_t rank : {0u, 2u}) {
    EXPECT_FALSE(statuses[rank].ok());
    if (GetParam().propagates_errors) {
      EXPECT_EQ(statuses[rank], statuses[1]);
    }
  }
}

TEST_P(CommunicatorConformance, RankThatStaysAwayFromACallIsNotWaitedForForever) {
  std::promise<void> over;
  std::shared_future<void> is_over = over.get_future().share();
  const std::vector<absl::Status> statuses = Run(2,
                                                 [&](Communicator& c) -> absl::Status {
                                                   if (c.rank() == 1) {
                                                     is_over.wait();
                                                     return absl::OkStatus();
                                                   }
                                                   const absl::Status status = SumOfOne(c);
                                                   over.set_value();
                                                   return status;
                                                 },
                                                 {.to_join = kLong.to_join, .per_call = kShort});
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kUnavailable) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("replica 0 of 2 of group 'stage-0' in plan epoch 7"));
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("200ms"));
}

TEST_P(CommunicatorConformance, RankThatNeverComesIsNotWaitedForForever) {
  LocalRendezvous rendezvous;
  const GroupRank group_rank = {.group = "stage-3", .epoch = 7, .rank = 1, .size = 2};
  const auto alone = GetParam().join(rendezvous, group_rank, {.to_join = kShort, .per_call = kShort}, {});
  EXPECT_EQ(alone.status(), absl::UnavailableError("replica 1 of 2 of group 'stage-3' in plan epoch 7 waited 200ms for replica 0 to come"));
}

TEST_P(CommunicatorConformance, StopTokenEndsJoin) {
  LocalRendezvous rendezvous;
  std::stop_source stop;
  std::thread other([&] { stop.request_stop(); });
  const auto alone = GetParam().join(rendezvous, {.group = "stage-3", .epoch = 7, .rank = 1, .size = 2}, kLong, stop.get_token());
  other.join();
  EXPECT_EQ(alone.status().code(), absl::StatusCode::kCancelled) << alone.status();
}

TEST_P(CommunicatorConformance, CallsThatDoNotFitAreAnError) {
  const Timeouts timeout = {.to_join = kLong.to_join, .per_call = GetParam().detects_mismatches ? kLong.per_call : kShort};
  const std::vector<absl::Status> statuses = Run(
      2, [](Communicator& c) { return SumOfOne(c, c.rank() == 0 ? 5 : 6); }, timeout);
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    if (!GetParam().detects_mismatches) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << "nothing that the user said: " << status;
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("the replicas of group 'stage-0' do not call the same: "
                                                                     "replica 0 AllReduce f32[5], replica 1 AllReduce f32[6]"));
  }
}

}  // namespace fusionllm::collective::testing
