// The FusionCluster of a member that has executors of a job is deleted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::TwoClustersTest;

class RemovedClusterTest : public TwoClustersTest {
 protected:
  // "STATE: MESSAGE" of Tokyo, as the status has them.
  std::string Tokyo() {
    const json clusters = Job()["status"]["clusterStatuses"];
    for (const json& cluster : clusters) {
      if (cluster["name"] == "tokyo") return cluster.value("state", "") + ": " + cluster.value("message", "");
    }
    return "none";
  }
};

TEST_F(RemovedClusterTest, TheStatusSaysSoBeforeAndAfterItCountsAsLost) {
  Submit2();
  SettleBoth();
  ASSERT_EQ(Tokyo(), "Connected: ");
  const auto remote = members_.remote_;
  members_.remote_.clear();
  (void)Reconcile();
  EXPECT_EQ(Tokyo(), "Removed: Its FusionCluster is gone; what runs there goes on for all that is known.");
  EXPECT_THAT(events_.reasons_, Contains("ClusterRemoved"));
  const json before = Job();
  for (int i = 0; i < 5; ++i) (void)Reconcile();
  EXPECT_EQ(Job(), before) << "it is said once";
  members_.lost_.insert("tokyo");
  (void)Reconcile();
  EXPECT_EQ(Tokyo(), "Removed: Its FusionCluster is gone, for so long that what ran there counts as lost.");
  EXPECT_THAT(events_.reasons_, Contains("ClusterLost"));
  members_.lost_.clear();
  members_.remote_ = remote;
  (void)Reconcile();
  EXPECT_EQ(Tokyo(), "Connected: ");
}

TEST_F(RemovedClusterTest, OneThatIsRegisteredAndAwayIsNotRemoved) {
  Submit2();
  SettleBoth();
  tokyo_->SetReachable(false);
  (void)Reconcile();
  EXPECT_EQ(Tokyo(), "Unreachable: ");
  tokyo_->SetLost(true);
  (void)Reconcile();
  EXPECT_THAT(Tokyo(), HasSubstr("Lost: Out of reach"));
}

}  // namespace
}  // namespace fusionllm::op::controller
