// Replicas in one process, in the host's memory and in one that the host must not touch; and how ranks meet.
#include "lib/collective/local_communicator.h"

#include <future>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/status_macros.h"
#include "lib/collective/testing/communicator_conformance.h"
#include "lib/kernels/testing/isolated_memory.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::collective {
namespace {

using testing::CommunicatorConformance;
using testing::Implementation;
using testing::TestRank;

class OnHost final : public TestRank {
 public:
  explicit OnHost(std::unique_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}
  Communicator& communicator() override { return *communicator_; }

 private:
  const std::unique_ptr<Communicator> communicator_;
};

class Apart final : public TestRank {
 public:
  Apart(std::unique_ptr<kernels::Backend> backend, std::unique_ptr<Communicator> communicator)
      : backend_(std::move(backend)), communicator_(std::move(communicator)) {}
  Communicator& communicator() override { return *communicator_; }

 private:
  const std::unique_ptr<kernels::Backend> backend_;
  const std::unique_ptr<Communicator> communicator_;
};

absl::StatusOr<std::unique_ptr<TestRank>> JoinOnHost(Rendezvous& rendezvous, const GroupRank& group_rank, const Timeouts& timeout,
                                                     std::stop_token stop) {
  FUSIONLLM_ASSIGN_OR_RETURN(auto joined, JoinInProcess(rendezvous, group_rank, tensor::HostMemory(), timeout, std::move(stop)));
  return std::make_unique<OnHost>(std::move(joined));
}

absl::StatusOr<std::unique_ptr<TestRank>> JoinApart(Rendezvous& rendezvous, const GroupRank& group_rank, const Timeouts& timeout,
                                                    std::stop_token stop) {
  FUSIONLLM_ASSIGN_OR_RETURN(auto backend, kernels::testing::IsolatedMemoryBackend("ref"));
  FUSIONLLM_ASSIGN_OR_RETURN(auto joined, JoinInProcess(rendezvous, group_rank, backend->memory(), timeout, std::move(stop)));
  return std::make_unique<Apart>(std::move(backend), std::move(joined));
}

INSTANTIATE_TEST_SUITE_P(
    Local, CommunicatorConformance,
    ::testing::Values(Implementation{.name = "OnHost", .join = JoinOnHost, .detects_mismatches = true, .propagates_errors = true},
                      Implementation{.name = "Apart", .join = JoinApart, .detects_mismatches = true, .propagates_errors = true}),
    [](const auto& info) { return info.param.name; });

// Two ranks of a group of two that meet as `first` and `second` say.
std::pair<absl::Status, absl::Status> JoinPair(Rendezvous& rendezvous, const GroupRank& first, const GroupRank& second) {
  const Timeouts timeout = {.to_join = absl::Seconds(20)};
  std::promise<absl::Status> answer;
  std::thread other([&] { answer.set_value(JoinInProcess(rendezvous, first, tensor::HostMemory(), timeout).status()); });
  const absl::Status status = JoinInProcess(rendezvous, second, tensor::HostMemory(), timeout).status();
  other.join();
  return {answer.get_future().get(), status};
}

TEST(LocalCommunicatorTest, SumsAreMadeInTheOrderOfRanks) {
  // In bf16, 256 + 1 is 256, so 1s that come first count and those that come later do not.
  for (const auto& [values, want] : {std::pair(std::vector<float>{256, 1, 1}, 256.0f), std::pair(std::vector<float>{1, 1, 256}, 258.0f)}) {
    LocalRendezvous rendezvous;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank, values = values, want = want] {
        const auto c = JoinInProcess(rendezvous, {.group = "g", .epoch = 1, .rank = rank, .size = 3}, tensor::HostMemory());
        ASSERT_TRUE(c.ok()) << c.status();
        uint16_t bits = tensor::RoundToBf16(values[static_cast<size_t>(rank)]);
        const tensor::TensorView view[] = {{{tensor::DType::kBF16, {1}}, &bits}};
        ASSERT_TRUE((*c)->AllReduce(view).ok());
        EXPECT_EQ(tensor::UpcastBf16(bits), want);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(LocalCommunicatorTest, WhoWaitsForARankThatLeavesHearsOfIt) {
  LocalRendezvous rendezvous;
  std::thread leaves(
      [&] { EXPECT_TRUE(JoinInProcess(rendezvous, {.group = "g", .epoch = 1, .rank = 1, .size = 2}, tensor::HostMemory()).ok()); });
  const auto stays = JoinInProcess(rendezvous, {.group = "g", .epoch = 1, .rank = 0, .size = 2}, tensor::HostMemory());
  ASSERT_TRUE(stays.ok()) << stays.status();
  leaves.join();
  EXPECT_TRUE((*stays)->Wait().ok()) << "what is done is no concern of his";
  EXPECT_EQ((*stays)->AllReduce({}), absl::UnavailableError("replica 1 of 2 of group 'g' in plan epoch 1 has left"));
}

TEST(RendezvousTest, RankOfAnEpochThatIsOverIsRefused) {
  LocalRendezvous rendezvous;
  const auto [first, second] =
      JoinPair(rendezvous, {.group = "stage-1", .epoch = 8, .rank = 0, .size = 2}, {.group = "stage-1", .epoch = 8, .rank = 1, .size = 2});
  EXPECT_TRUE(first.ok() && second.ok()) << first << second;
  const auto late = JoinInProcess(rendezvous, {.group = "stage-1", .epoch = 7, .rank = 1, .size = 2}, tensor::HostMemory());
  EXPECT_EQ(late.status(), absl::FailedPreconditionError("group 'stage-1' meets for plan epoch 8, and replica 1 is of epoch 7"));
}

TEST(RendezvousTest, NewerEpochRejectsRanksOfOlderEpoch) {
  LocalRendezvous rendezvous;
  // Whichever comes first: the older is refused, and the newer waits for a rank of its own.
  const auto [newer, older] = [&] {
    std::stop_source stop;
    std::promise<absl::Status> answer;
    std::thread other([&] {
      answer.set_value(
          JoinInProcess(rendezvous, {.group = "g", .epoch = 8, .rank = 0, .size = 2}, tensor::HostMemory(), {}, stop.get_token()).status());
    });
    const absl::Status of_older =
        JoinInProcess(rendezvous, {.group = "g", .epoch = 7, .rank = 1, .size = 2}, tensor::HostMemory()).status();
    stop.request_stop();
    other.join();
    return std::pair(answer.get_future().get(), of_older);
  }();
  EXPECT_EQ(older, absl::FailedPreconditionError("group 'g' meets for plan epoch 8, and replica 1 is of epoch 7"));
  EXPECT_EQ(newer.code(), absl::StatusCode::kCancelled);
}

TEST(RendezvousTest, RanksCountThemselvesAlike) {
  LocalRendezvous rendezvous;
  const auto join = [&](int rank, int size) {
    return JoinInProcess(rendezvous, {.group = "g", .epoch = 1, .rank = rank, .size = size}, tensor::HostMemory(),
                         {.to_join = absl::Milliseconds(50)})
        .status();
  };
  EXPECT_EQ(join(0, 2).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(join(1, 3), absl::InvalidArgumentError("replica 1 of 3 of group 'g' in plan epoch 1: others say that there are 2"));
  EXPECT_EQ(join(2, 2).message(), "there is no replica 2 of 2 of group 'g' in plan epoch 1: they count from 0");
  EXPECT_EQ(join(1, 2).code(), absl::StatusCode::kUnavailable) << "who gave up is not counted on";
}

TEST(RendezvousTest, TwoOnOneDeviceAreRefused) {
  LocalRendezvous rendezvous;
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      statuses[static_cast<size_t>(rank)] =
          ExchangePeerInfo(rendezvous, {.group = "g", .epoch = 1, .rank = rank, .size = 3},
                           {.kind = "nccl", .device = rank == 1 ? "card a" : "card b"}, absl::Seconds(20), {})
              .status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status, absl::FailedPreconditionError(
                          "replicas 0 and 2 of group 'g' are both on card b: each replica of a stage needs a card of its own"));
  }
}

// Bytes from elsewhere.
TEST(RendezvousTest, OtherIntroductionsAreRefused) {
  class Says final : public Rendezvous {
   public:
    explicit Says(std::string bytes) : bytes_(std::move(bytes)) {}
    absl::StatusOr<std::vector<std::string>> Exchange(const GroupRank&, std::string own, absl::Duration, std::stop_token) override {
      return std::vector<std::string>{own, bytes_};
    }

   private:
    const std::string bytes_;
  };
  const auto exchange = [](const std::string& bytes) {
    Says says(bytes);
    return ExchangePeerInfo(says, {.group = "g", .epoch = 7, .rank = 0, .size = 2}, {.kind = "nccl"}, absl::Seconds(1), {}).status();
  };
  EXPECT_TRUE(exchange("7 2 nccl 1\nxsecret").ok());
  for (const char* bytes : {"", "\n", "7 2 nccl\n", "7 2 nccl 2\nx", "7 2 nccl -1\n", "x 2 nccl 0\n", "7 2 nccl 0"}) {
    EXPECT_EQ(exchange(bytes), absl::InvalidArgumentError("replica 1 of group 'g' introduced itself with something else")) << bytes;
  }
  EXPECT_EQ(exchange("6 2 nccl 0\n"),
            absl::FailedPreconditionError("replica 1 of group 'g' is one of 2 in plan epoch 6, and replica 0 is one of 2 in epoch 7"));
  EXPECT_EQ(exchange("7 2 local:5 0\n"),
            absl::FailedPreconditionError("replica 1 of group 'g' communicates by 'local:5', and replica 0 by 'nccl'"));
}

}  // namespace
}  // namespace fusionllm::collective
