// Ranks that can write to each other meet, and agree on the fastest way that all of them have.
#include "lib/collective/channel_group.h"

#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/collective/chain_communicator.h"
#include "lib/collective/channel_rendezvous.h"
#include "lib/collective/deferred_communicator.h"
#include "lib/collective/local_communicator.h"
#include "lib/collective/testing/in_memory_network.h"

namespace fusionllm::collective {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::InMemoryNetwork;

GroupRank RankOf(int rank, int size) { return {.group = "stage-1", .epoch = 3, .rank = rank, .size = size}; }

// What each of `size` ranks answers, all at once.
template <typename Answer>
std::vector<Answer> All(int size, const std::function<Answer(int rank)>& answer_of) {
  std::vector<std::future<Answer>> answers;
  for (int rank = 0; rank < size; ++rank) answers.push_back(std::async(std::launch::async, answer_of, rank));
  std::vector<Answer> all;
  for (auto& answer : answers) all.push_back(answer.get());
  return all;
}

TEST(ChannelRendezvousTest, EverybodyGetsWhatAllBroughtInEachMeeting) {
  InMemoryNetwork network(3, {.late = true, .seed = 5});
  using Answer = std::vector<std::string>;
  const auto answers = All<Answer>(3, [&](int rank) {
    ChannelRendezvous rendezvous(network.channel(rank));
    Answer all;
    for (const char* meeting : {"a", "b"}) {
      const auto brought = rendezvous.Exchange(RankOf(rank, 3), absl::StrCat(meeting, rank), absl::Seconds(20), {});
      EXPECT_TRUE(brought.ok()) << brought.status();
      if (brought.ok()) all.insert(all.end(), brought->begin(), brought->end());
    }
    return all;
  });
  for (const Answer& all : answers) EXPECT_THAT(all, ElementsAre("a0", "a1", "a2", "b0", "b1", "b2"));
}

TEST(ChannelRendezvousTest, WhoDoesNotComeIsNamed) {
  InMemoryNetwork network(3);
  ChannelRendezvous rendezvous(network.channel(0)), other(network.channel(1));
  ASSERT_FALSE(other.Exchange(RankOf(1, 3), "1", absl::ZeroDuration(), {}).ok());
  const absl::Status status = rendezvous.Exchange(RankOf(0, 3), "0", absl::Milliseconds(1), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("replica 0 of 3 of group 'stage-1' in plan epoch 3 waited 1ms for replica 2 to come"));
}

TEST(ChannelRendezvousTest, AStopOrTheEndOfTheMailEndsTheWait) {
  InMemoryNetwork network(2);
  std::stop_source stop;
  stop.request_stop();
  ChannelRendezvous rendezvous(network.channel(0));
  EXPECT_EQ(rendezvous.Exchange(RankOf(0, 2), "", absl::Hours(1), stop.get_token()).status().code(), absl::StatusCode::kCancelled);
  network.channel(0).Cancel(absl::UnavailableError("lost"));
  EXPECT_EQ(rendezvous.Exchange(RankOf(0, 2), "", absl::Hours(1), {}).status().message(), "lost");
}

// A way that counts how many took it.
class ChannelGroupTest : public ::testing::Test {
 protected:
  ChannelGroupOptions With(const std::string& kind, const std::string& device, const GroupRank& group_rank) {
    ChannelGroupOptions options{.timeout = {.to_join = absl::Seconds(20), .per_call = absl::Seconds(20)}};
    options.fast = FastTransport{.kind = kind, .device = device, .join = [this, group_rank](Rendezvous& rendezvous, std::stop_token stop) {
                                   ++fast_;
                                   // They meet once more by the same channel, as NCCL's do.
                                   EXPECT_TRUE(ExchangePeerInfo(rendezvous, group_rank, {.kind = "x"}, absl::Seconds(20), stop).ok());
                                   return JoinInProcess(local_, group_rank, tensor::HostMemory(), {}, stop);
                                 }};
    return options;
  }
  // Accounts of all ranks, which then add up 1, 2, ... by the way that they found.
  std::vector<std::string> Join(int size, const std::function<ChannelGroupOptions(int rank)>& options) {
    InMemoryNetwork network(size);
    return All<std::string>(size, [&](int rank) {
      std::string account;
      const GroupRank group_rank = RankOf(rank, size);
      const auto joined = JoinOverChannel(group_rank, tensor::HostMemory(), network.channel(rank), options(rank), {}, &account);
      EXPECT_TRUE(joined.ok()) << joined.status();
      if (!joined.ok()) return std::string(joined.status().message());
      float value = static_cast<float>(rank + 1);
      const tensor::TensorView view{{tensor::DType::kF32, {1}}, reinterpret_cast<std::byte*>(&value)};
      EXPECT_TRUE((*joined)->AllReduce({&view, 1}).ok());
      EXPECT_TRUE((*joined)->Wait().ok());
      EXPECT_EQ(value, static_cast<float>(size * (size + 1) / 2));
      return account;
    });
  }

  std::atomic<int> fast_ = 0;
  LocalRendezvous local_;
};

TEST_F(ChannelGroupTest, TheFastWayIsTakenWhereAllHaveIt) {
  const auto accounts = Join(3, [&](int rank) { return With("nccl", absl::StrCat("card ", rank), RankOf(rank, 3)); });
  EXPECT_EQ(fast_, 3);
  EXPECT_EQ(accounts[2], "replica 2 of 3 of group 'stage-1' in plan epoch 3 communicates by nccl");
}

TEST_F(ChannelGroupTest, OneThatHasNoneIsEnoughForMessages) {
  const auto accounts = Join(2, [&](int rank) {
    if (rank == 0) return With("nccl", "card", RankOf(rank, 2));
    return ChannelGroupOptions{.why_not_fast = "it computes on a CPU"};
  });
  EXPECT_EQ(fast_, 0);
  for (const std::string& account : accounts) EXPECT_THAT(account, HasSubstr("by messages (replica 1: it computes on a CPU)"));
}

TEST_F(ChannelGroupTest, TwoOnOneDeviceAndTwoKindsAreNoFastWay) {
  auto accounts = Join(3, [&](int rank) { return With("nccl", rank == 1 ? "card 1" : "card 0", RankOf(rank, 3)); });
  EXPECT_THAT(accounts[1], HasSubstr("by messages (replicas 0 and 2 are both on card 0)"));
  accounts = Join(2, [&](int rank) { return With(rank == 0 ? "nccl" : "rccl", absl::StrCat(rank), RankOf(rank, 2)); });
  EXPECT_THAT(accounts[0], HasSubstr("replica 0 communicates by 'nccl', and replica 1 by 'rccl'"));
  EXPECT_EQ(fast_, 0);
}

// NCCL that finds no way to the others, say: all take the channel then, those too whose join was well.
TEST_F(ChannelGroupTest, WhereTheFastWayIsNotOpenToOneAllTakeMessages) {
  for (const int failing : {0, 1}) {
    const auto accounts = Join(2, [&](int rank) {
      ChannelGroupOptions options = With("nccl", absl::StrCat("card ", rank), RankOf(rank, 2));
      options.fast->join = [rank, failing](Rendezvous& rendezvous, std::stop_token) -> absl::StatusOr<std::unique_ptr<Communicator>> {
        if (rank == failing) return absl::InternalError("no\nshared memory");  // before it has met anybody
        EXPECT_FALSE(rendezvous.Exchange(RankOf(rank, 2), "", absl::Milliseconds(1), {}).ok());
        return JoinInProcess(*std::make_unique<LocalRendezvous>(), {.group = "alone", .epoch = 1, .rank = 0, .size = 1},
                             tensor::HostMemory());
      };
      return options;
    });
    for (const std::string& account : accounts) {
      EXPECT_THAT(account, HasSubstr(absl::StrCat("by messages (replica ", failing, ", by nccl: INTERNAL: no")));
      EXPECT_EQ(account.find('\n'), std::string::npos) << account;
    }
  }
}

// ---- DeferredCommunicator
// -------------------------------------------------------------------------------------------------------------------

class DeferredCommunicatorTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Communicator>> Alone(const GroupRank& group_rank) {
    return JoinInProcess(local_, group_rank, tensor::HostMemory());
  }
  absl::Status RunAllReduce() {
    float value = 2;
    const tensor::TensorView view{{tensor::DType::kF32, {1}}, reinterpret_cast<std::byte*>(&value)};
    return deferred_.AllReduce({&view, 1});
  }

  LocalRendezvous local_;
  DeferredCommunicator deferred_{RankOf(0, 1), tensor::HostMemory()};
};

TEST_F(DeferredCommunicatorTest, IsItsGroupsFromTheMeetingOn) {
  EXPECT_EQ(RunAllReduce().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(deferred_.Join([&](std::stop_token) { return Alone(RankOf(0, 1)); }).ok());
  EXPECT_TRUE(RunAllReduce().ok());
  EXPECT_TRUE(deferred_.Wait().ok());
  EXPECT_FALSE(deferred_.Join([&](std::stop_token) { return Alone(RankOf(0, 1)); }).ok()) << "once";
  deferred_.Leave();
  EXPECT_EQ(RunAllReduce().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(DeferredCommunicatorTest, AnotherGroupIsNotItsOwn) {
  GroupRank other = RankOf(0, 1);
  other.epoch = 4;
  EXPECT_EQ(deferred_.Join([&](std::stop_token) { return Alone(other); }).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DeferredCommunicatorTest, AnAbortBeforeDuringAndAfterTheMeetingEndsIt) {
  EXPECT_EQ(deferred_
                .Join([&](std::stop_token stop) -> absl::StatusOr<std::unique_ptr<Communicator>> {
                  std::thread([&] { deferred_.Abort(absl::CancelledError("over")); }).join();
                  EXPECT_TRUE(stop.stop_requested());
                  return absl::UnavailableError("somebody did not come");
                })
                .message(),
            "over");
  EXPECT_EQ(RunAllReduce().message(), "over");
  EXPECT_EQ(deferred_.Join([&](std::stop_token) { return Alone(RankOf(0, 1)); }).message(), "over");

  DeferredCommunicator joined(RankOf(0, 1), tensor::HostMemory());
  LocalRendezvous local;
  ASSERT_TRUE(joined.Join([&](std::stop_token) { return JoinInProcess(local, RankOf(0, 1), tensor::HostMemory()); }).ok());
  joined.Abort(absl::UnavailableError("the plan is over"));
  float value = 2;
  const tensor::TensorView view{{tensor::DType::kF32, {1}}, reinterpret_cast<std::byte*>(&value)};
  EXPECT_THAT(std::string(joined.AllReduce({&view, 1}).message()), HasSubstr("the plan is over"));
  EXPECT_THAT(std::string(joined.Wait().message()), HasSubstr("the plan is over"));
}

// A channel that ends what uses it, as an executor's inbox does.
class CancellingChannel final : public PointToPointChannel {
 public:
  CancellingChannel(PointToPointChannel& channel, DeferredCommunicator& notified) : channel_(channel), notified_(notified) {}
  absl::Status Send(int to_rank, const Chunk& chunk, std::vector<std::byte> bytes) override {
    return channel_.Send(to_rank, chunk, std::move(bytes));
  }
  absl::StatusOr<std::vector<std::byte>> Receive(int from_rank, const Chunk& chunk, absl::Time deadline) override {
    return channel_.Receive(from_rank, chunk, deadline);
  }
  void Cancel(absl::Status why) override {
    channel_.Cancel(why);
    notified_.Abort(std::move(why));
  }

 private:
  PointToPointChannel& channel_;
  DeferredCommunicator& notified_;
};

TEST(DeferredCommunicatorOverChannelTest, FirstAbortOrCancelDecides) {
  for (const bool by_mail : {false, true}) {
    InMemoryNetwork network(2);
    DeferredCommunicator late(RankOf(0, 2), tensor::HostMemory());
    CancellingChannel channel(network.channel(0), late);
    ASSERT_TRUE(late.Join([&](std::stop_token) { return MakeChain(RankOf(0, 2), tensor::HostMemory(), channel); }).ok());
    float value = 2;
    const tensor::TensorView view{{tensor::DType::kF32, {1}}, reinterpret_cast<std::byte*>(&value)};
    auto waits = std::async(std::launch::async, [&] { return late.AllReduce({&view, 1}); });
    if (by_mail) {
      channel.Cancel(absl::UnavailableError("the plan is over"));
    } else {
      late.Abort(absl::UnavailableError("the plan is over"));
    }
    EXPECT_THAT(std::string(waits.get().message()), HasSubstr("the plan is over"));
    late.Leave();
  }
}

}  // namespace
}  // namespace fusionllm::collective
