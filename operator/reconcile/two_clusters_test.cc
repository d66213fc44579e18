// A job over a hub and a member, each an API server in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "operator/reconcile/testing/reconcile_fixture.h"

namespace fusionllm::op {
namespace {

using nlohmann::json;
using ::testing::Contains;
using testing::DirectMember;
using ::testing::ElementsAre;
using testing::FakeApiServer;
using ::testing::HasSubstr;
using testing::JobObject;
using testing::JobReconcilerTest;
using ::testing::Not;

// The hub, and a member in Tokyo.
class TwoClustersTest : public JobReconcilerTest {
 protected:
  TwoClustersTest() {
    tokyo_client_ = NewClient(tokyo_server_.NewTransport());
    tokyo_ = std::make_shared<DirectMember>(*tokyo_client_, "tokyo");
    members_.remote_ = {tokyo_};
  }
  kube::ReconcileResult ReconcileTokyo() { return reconciler_->Reconcile({"tokyo", "default", "train"}, {}); }
  // Both parts, until nothing changes.
  void SettleBoth() {
    int quiet = 0;  // rounds; what happens to pods is seen in the round after
    for (int i = 0; i < 20; ++i) {
      const auto before = std::make_tuple(server_.objects(), tokyo_server_.objects(), Job());
      (void)Reconcile();
      PlayCluster();
      (void)ReconcileTokyo();
      PlayTokyo();
      quiet = std::make_tuple(server_.objects(), tokyo_server_.objects(), Job()) == before ? quiet + 1 : 0;
      if (quiet == 2) return;
    }
    FAIL() << "it does not settle";
  }
  void PlayTokyo() {
    const json pods = json::parse(tokyo_client_->List(kPods, "default").value());
    for (const json& pod : pods["items"]) {
      const kube::ObjectKey key{"default", pod["metadata"]["name"]};
      if (pod["metadata"].contains("deletionTimestamp")) {
        (void)tokyo_client_->Delete(kPods, key, {.grace_period_seconds = 0});
      } else if (!pod.contains("status") || !pod["status"].contains("podIP")) {
        const json status = {{"phase", "Running"}, {"podIP", "10.9.0.1"}, {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}};
        (void)tokyo_client_->Patch(kPods, key, kube::PatchType::kMerge, json{{"status", status}}.dump(), {.subresource = "status"});
      }
    }
  }
  json TokyoPod(const std::string& name) { return json::parse(tokyo_client_->Get(kPods, {"default", name}).value_or("{}")); }
  void Submit2() {
    json job = JobObject();
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    Submit(job);
    (void)Reconcile();
    PlayCluster();
    Patch(kServices, "train-broker", {{"status", {{"loadBalancer", {{"ingress", {{{"ip", "203.0.113.5"}}}}}}}}}, "status");
  }

  FakeApiServer tokyo_server_{clock_};
  std::unique_ptr<kube::ApiClient> tokyo_client_;
  std::shared_ptr<DirectMember> tokyo_;
};

TEST_F(TwoClustersTest, ExecutorsGoToBothAndDialTheHub) {
  Submit2();
  SettleBoth();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0", "train-local-0-r0"));
  const json pod = TokyoPod("train-tokyo-0-r0");
  ASSERT_TRUE(pod.contains("spec")) << pod;
  const std::vector<std::string> command = pod["spec"]["containers"][0]["command"];
  EXPECT_THAT(command, Contains("203.0.113.5:7000"));
  const json secret = json::parse(tokyo_client_->Get(kSecrets, {"default", "train-executors"}).value());
  EXPECT_TRUE(secret["data"].contains("tokyo-0.key"));
  EXPECT_FALSE(secret["data"].contains("local-0.key")) << "each cluster has the keys of its own executors";
  EXPECT_FALSE(tokyo_client_->Get(kSecrets, {"default", "train-authority"}).ok()) << "the authority stays on the hub";
  EXPECT_EQ(Job()["status"]["executors"], "2/2");
  EXPECT_EQ(Job()["status"]["clusters"], "2/2");
  EXPECT_THAT(poked_, Contains("tokyo"));
}

TEST_F(TwoClustersTest, AMemberDoesNothingThatTheStatusDoesNotSay) {
  Submit2();
  ReconcileTokyo();
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train")))) << "the hub is not prepared";
  SettleBoth();
  EndBroker(0, 1, R"({"error":"x"})");
  ReconcileTokyo();  // before the hub's part has written the new attempt
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").at("metadata").contains("deletionTimestamp"));
  SettleBoth();
  EXPECT_TRUE(TokyoPod("train-tokyo-0-r1").contains("spec"));
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").contains("spec"));
}

TEST_F(TwoClustersTest, AClusterThatComesLaterMovesNobody) {
  members_.remote_.clear();
  Submit();
  Settle();
  members_.remote_ = {tokyo_};
  SettleBoth();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0", "train-local-0-r0", "train-local-1-r0"));
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train"))));
}

TEST_F(TwoClustersTest, DeletionCleansBothAndWaitsForAMemberThatIsAwayNoLongerThanItMust) {
  Submit2();
  SettleBoth();
  tokyo_->SetReachable(false);
  ASSERT_TRUE(looking_->Delete(kFusionJobs, {"default", "train"}).ok());
  SettleBoth();
  ASSERT_FALSE(Job().is_null()) << "something is left in Tokyo";
  EXPECT_EQ(Condition("Deleting"), "True ClusterUnreachable");
  tokyo_->SetReachable(true);
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train"))));
}

}  // namespace
}  // namespace fusionllm::op
