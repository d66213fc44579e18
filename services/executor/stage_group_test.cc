// The replicas of a stage in different processes, as far as these are data planes of one: they meet and add up over the network's own road.
#include "services/executor/stage_group.h"

#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/collective/chain_communicator.h"
#include "lib/runtime/testing/small_networks.h"
#include "lib/scheduler/replicas/all_reduce.h"
#include "services/executor/data_plane.h"
#include "services/executor/replica_channel.h"

namespace fusionllm::services {
namespace {

// What plans are made by.
static_assert(scheduler::replicas::kChunksAhead == collective::kChunksAhead);
static_assert(scheduler::replicas::kMaxChunkBytes == collective::kChunkBytes);

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr uint32_t kEpoch = 2;
constexpr int kStages = 2;  // of each pipeline: the first places of a data plane's peers

class StageGroupTest : public ::testing::Test {
 protected:
  struct Replica {
    std::unique_ptr<DataPlane> data_plane;
    std::shared_ptr<runtime::Inbox> inbox = std::make_shared<runtime::Inbox>();
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<ReplicaChannel> channel;
  };

  explicit StageGroupTest(int replicas = 3) : replicas_(static_cast<size_t>(replicas)) {
    std::vector<std::string> peers = {"first", "last"};
    for (int r = 0; r < replicas; ++r) peers.push_back(Name(r));
    for (int r = 0; r < replicas; ++r) replicas_[r].data_plane = *DataPlane::Create({.name = Name(r), .incarnation = 1}, credentials_);
    for (int r = 0; r < replicas; ++r) {
      Replica& own = replicas_[r];
      for (int other = 0; other < replicas; ++other) {
        if (other != r) own.data_plane->SetPeer(Name(other), replicas_[other].data_plane->address(), true, 1);
      }
      own.backend = *kernels::CreateBackend("cpu", {.threads = 1});
      runtime::testing::ExpectMessages(training_, /*stage=*/0, kStages, replicas, /*first_step=*/1, *own.inbox);
      runtime::MessagePort& port = own.data_plane->Attach(kEpoch, peers, own.inbox, nullptr);
      own.channel = std::make_unique<ReplicaChannel>(port, *own.inbox, kStages, r, replicas);
    }
  }
  static std::string Name(int replica) { return "replica-" + std::to_string(replica); }

  absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(int r, std::stop_token stop = {}) {
    return JoinGroup({.group = "stage-0", .epoch = kEpoch, .rank = r, .size = static_cast<int>(replicas_.size())}, *replicas_[r].backend,
                     *replicas_[r].channel, {.replicas = {2, 0, 1}}, /*near=*/true, std::move(stop));
  }

  const Credentials credentials_ = *LoadCredentials("", "");
  const autodiff::TrainingGraph training_ = runtime::testing::SmallGpt2(/*tied=*/false);
  std::vector<Replica> replicas_;
};

TEST_F(StageGroupTest, AddsUpOverTheNetwork) {
  constexpr size_t kElements = 700'001;  // several chunks
  std::vector<std::future<std::vector<float>>> sums;
  for (int r = 0; r < 3; ++r) {
    sums.push_back(std::async(std::launch::async, [this, r] {
      std::vector<float> values(kElements);
      std::iota(values.begin(), values.end(), static_cast<float>(r));
      const auto group = Join(r);
      EXPECT_TRUE(group.ok()) << group.status();
      const tensor::TensorView view{{tensor::DType::kF32, {static_cast<int64_t>(kElements)}}, reinterpret_cast<std::byte*>(values.data())};
      for (int call = 0; group.ok() && call < 2; ++call) {
        const absl::Status status = (*group)->AllReduce({&view, 1});
        EXPECT_TRUE(status.ok()) << status;
      }
      return values;
    }));
  }
  const std::vector<float> first = sums[0].get();
  for (int r = 1; r < 3; ++r) EXPECT_EQ(sums[static_cast<size_t>(r)].get(), first);
  for (const size_t i : {size_t{0}, size_t{1}, kElements / 2, kElements - 1}) {
    const float i_f = static_cast<float>(i);
    EXPECT_EQ(first[i], 3 * ((i_f + 2) + i_f + (i_f + 1))) << "in the chain's order, and once more with three times that";
  }
}

// Of a process that is killed when it is about to send a number of chunks of a sum.
class ChannelUntilDeath final : public collective::PointToPointChannel {
 public:
  ChannelUntilDeath(collective::PointToPointChannel& inner, int chunks, std::function<void()> die)
      : inner_(inner), left_(chunks), die_(std::move(die)) {}
  absl::Status Send(int to_rank, const collective::Chunk& chunk, std::vector<std::byte> bytes) override {
    if (chunk.round == 0 && chunk.call >= 0 && left_-- == 0) {
      dead_ = true;
      die_();
    }
    return dead_ ? absl::UnavailableError("dead") : inner_.Send(to_rank, chunk, std::move(bytes));
  }
  absl::StatusOr<std::vector<std::byte>> Receive(int from_rank, const collective::Chunk& chunk, absl::Time deadline) override {
    if (dead_) return absl::UnavailableError("dead");
    return inner_.Receive(from_rank, chunk, deadline);
  }
  void Cancel(absl::Status why) override { inner_.Cancel(std::move(why)); }

 private:
  collective::PointToPointChannel& inner_;
  int left_;
  const std::function<void()> die_;
  bool dead_ = false;
};

// And is started again, which is how the others hear of it without waiting whether it comes back.
TEST_F(StageGroupTest, APeerThatIsLostInTheMiddleOfASumEndsItForTheOthers) {
  constexpr int kVictim = 0;  // in the middle of the chain
  std::unique_ptr<DataPlane> again;
  const auto inbox = std::make_shared<runtime::Inbox>();
  ChannelUntilDeath channel(*replicas_[kVictim].channel, 3, [&] {
    again = *DataPlane::Create({.name = Name(kVictim), .incarnation = 2}, credentials_);
    std::vector<std::string> peers;
    for (int r = 0; r < 3; ++r) {
      peers.push_back(Name(r));
      if (r != kVictim) again->SetPeer(Name(r), replicas_[r].data_plane->address(), true, 1);
    }
    runtime::MessagePort& port = again->Attach(kEpoch + 1, peers, inbox, nullptr);
    for (const int r : {1, 2}) EXPECT_TRUE(port.Send(r, {.kind = runtime::MessageKind::kReport}, runtime::Payload(1)).ok());
  });
  std::vector<std::future<absl::Status>> ends;
  for (int r = 0; r < 3; ++r) {
    ends.push_back(std::async(std::launch::async, [this, r, &channel]() -> absl::Status {
      std::vector<float> values(700'001);
      auto group =
          JoinGroup({.group = "stage-0", .epoch = kEpoch, .rank = r, .size = 3}, *replicas_[r].backend,
                    r == kVictim ? static_cast<collective::PointToPointChannel&>(channel) : *replicas_[r].channel, {.replicas = {2, 0, 1}},
                    /*near=*/true, {});
      if (!group.ok()) return group.status();
      const tensor::TensorView view{{tensor::DType::kF32, {static_cast<int64_t>(values.size())}},
                                    reinterpret_cast<std::byte*>(values.data())};
      const absl::Status status = (*group)->AllReduce({&view, 1});
      EXPECT_EQ((*group)->AllReduce({&view, 1}), status) << "of no more use";
      return status;
    }));
  }
  for (int r = 0; r < 3; ++r) {
    const absl::Status end = ends[static_cast<size_t>(r)].get();
    EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
    if (r == kVictim) continue;
    EXPECT_THAT(std::string(end.message()),
                AllOf(HasSubstr("of 3 of group 'stage-0' in plan epoch 2"),
                      AnyOf(HasSubstr("lost the connection to replica-0"), HasSubstr("cannot reach replica 0"))));
    EXPECT_FALSE(replicas_[r].inbox->status().ok()) << "its pipeline ends, too";
  }
}

TEST_F(StageGroupTest, TheEndOfTheEpochEndsTheWaitForTheOthers) {
  auto waits = std::async(std::launch::async, [this] { return Join(0).status(); });
  replicas_[0].inbox->Cancel(absl::CancelledError("the plan epoch is over"));
  EXPECT_EQ(waits.get().message(), "the plan epoch is over");
}

}  // namespace
}  // namespace fusionllm::services
