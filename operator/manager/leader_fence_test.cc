#include "operator/manager/leader_fence.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::op::manager {
namespace {

using nlohmann::json;

class LeaderFenceTest : public ::testing::Test {
 protected:
  LeaderFenceTest()
      : client_({.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"}, {}, clock_) {}
  // Another writes the Lease, or the same with another count.
  void Write(const std::string& holder, int64_t transitions) {
    const kube::Resource leases{"coordination.k8s.io", "v1", "leases", "Lease", true};
    const json patch = {{"spec", {{"holderIdentity", holder}, {"leaseTransitions", transitions}}}};
    ASSERT_TRUE(client_.Patch(leases, {"default", "lead"}, kube::PatchType::kMerge, patch.dump(), {}, {}).ok());
  }

  kube::testing::FakeClock clock_;  // stands still: nothing is renewed behind the test's back
  kube::testing::FakeApiServer server_{clock_};
  kube::RestClient client_;
  kube::LeaderElector elector_{client_, clock_, nullptr, {.lease = {"default", "lead"}, .identity = "me"}};
  std::string lost_;
  LeaderFence fence_{elector_, [this](const std::string& why) { lost_ = why; }};
};

TEST_F(LeaderFenceTest, ItMayWriteWhileItLeadsByItsOwnClock) {
  EXPECT_TRUE(absl::IsFailedPrecondition(fence_.MayWrite()));
  ASSERT_TRUE(elector_.Acquire({}).ok());
  EXPECT_TRUE(fence_.MayWrite().ok());
  EXPECT_EQ(fence_.epoch(), 1);
  // It was stopped, and has not renewed: nor does a thread of it before the question.
  server_.AddFault({.target = "/leases/", .times = 1'000'000, .code = 403, .body = R"({"kind":"Status","code":403,"reason":"Forbidden"})"});
  clock_.Advance(absl::Seconds(10));
  EXPECT_TRUE(absl::IsFailedPrecondition(fence_.MayWrite()));
}

TEST_F(LeaderFenceTest, AHigherEpochOfAnotherLeaderEndsIt) {
  ASSERT_TRUE(elector_.Acquire({}).ok());
  Write("other", 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(fence_.OnHigherEpoch(2, {})));
  EXPECT_NE(lost_.find("held by other"), std::string::npos) << lost_;
}

TEST_F(LeaderFenceTest, UnknownLeaderWritesNothingAndKeepsRunning) {
  ASSERT_TRUE(elector_.Acquire({}).ok());
  server_.AddFault({.target = "/leases/", .times = 100, .code = 403, .body = R"({"kind":"Status","code":403,"reason":"Forbidden"})"});
  const absl::Status outranked = fence_.OnHigherEpoch(2, {});
  EXPECT_FALSE(outranked.ok());
  EXPECT_FALSE(absl::IsFailedPrecondition(outranked)) << outranked;
  EXPECT_EQ(fence_.epoch(), 1);
  EXPECT_EQ(lost_, "");
}

TEST_F(LeaderFenceTest, SurpassesEpochAfterReset) {
  ASSERT_TRUE(elector_.Acquire({}).ok());
  EXPECT_TRUE(fence_.OnHigherEpoch(7, {}).ok());
  EXPECT_EQ(fence_.epoch(), 8);
  EXPECT_TRUE(fence_.OnHigherEpoch(3, {}).ok()) << "already surpassed";
  EXPECT_EQ(fence_.epoch(), 8);
  EXPECT_EQ(lost_, "");
}

// An int64 as anybody may write it into an annotation must not overflow the count, which then would fence none.
TEST_F(LeaderFenceTest, AnEpochThatNoLeaderCanHaveCountedIsSurpassedByNoMoreThanTheLimit) {
  ASSERT_TRUE(elector_.Acquire({}).ok());
  for (const int64_t other : {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max() - 1, int64_t{1} << 62}) {
    EXPECT_TRUE(fence_.OnHigherEpoch(other, {}).ok());
    EXPECT_GT(fence_.epoch(), 1);
    EXPECT_LE(fence_.epoch(), 2 + controller::kMaxEpochsAhead);
  }
  EXPECT_TRUE(fence_.OnHigherEpoch(std::numeric_limits<int64_t>::min(), {}).ok());
  EXPECT_GT(fence_.epoch(), 1);
}

}  // namespace
}  // namespace fusionllm::op::manager
