// The replicas of a stage in different processes, as far as these are data planes of one: they meet and add up over the network's own road.
#include "services/executor/stage_group.h"

#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/collective/chain_communicator.h"
#include "lib/scheduler/replicas/all_reduce.h"
#include "services/executor/data_plane.h"
#include "services/executor/replica_mail.h"

namespace fusionllm::services {
namespace {

// What plans are made by.
static_assert(scheduler::replicas::kLettersAhead == collective::kLettersAhead);
static_assert(scheduler::replicas::kMostLetterBytes == collective::kLetterBytes);

constexpr uint32_t kEpoch = 2;
constexpr int kStages = 2;  // of each pipeline: the first places of a data plane's peers

class StageGroupTest : public ::testing::Test {
 protected:
  struct Replica {
    std::unique_ptr<DataPlane> data_plane;
    std::shared_ptr<runtime::Inbox> inbox = std::make_shared<runtime::Inbox>();
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<ReplicaMail> mail;
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
      runtime::MessagePort& port = own.data_plane->Attach(kEpoch, peers, own.inbox, nullptr);
      own.mail = std::make_unique<ReplicaMail>(port, *own.inbox, kStages, r, replicas);
    }
  }
  static std::string Name(int replica) { return "replica-" + std::to_string(replica); }

  absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(int r, std::stop_token stop = {}) {
    return JoinGroup({.group = "stage-0", .epoch = kEpoch, .rank = r, .size = static_cast<int>(replicas_.size())}, *replicas_[r].backend,
                     *replicas_[r].mail, {.replicas = {2, 0, 1}}, /*near=*/true, std::move(stop));
  }

  const Credentials credentials_ = *LoadCredentials("", "");
  std::vector<Replica> replicas_;
};

TEST_F(StageGroupTest, AddsUpOverTheNetwork) {
  constexpr size_t kElements = 700'001;  // several letters
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

TEST_F(StageGroupTest, TheEndOfTheEpochEndsTheWaitForTheOthers) {
  auto waits = std::async(std::launch::async, [this] { return Join(0).status(); });
  replicas_[0].inbox->Cancel(absl::CancelledError("the plan epoch is over"));
  EXPECT_EQ(waits.get().message(), "the plan epoch is over");
}

}  // namespace
}  // namespace fusionllm::services
