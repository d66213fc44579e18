// What somebody deletes of that which a job's Pods need, while they wait for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TwoClustersTest;

class MissingObjectsTest : public TwoClustersTest {
 protected:
  // A job all of whose Pods run, and wait for each other.
  void Start() {
    json job = testing::JobObject();
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    Submit(job);
    SettleBoth();
    ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
    SetReady(false);
    SettleBoth();
    ASSERT_EQ(Condition("Ready"), "False ExecutorsStarting");
    hub_before_ = server_.objects();
    tokyo_before_ = tokyo_server_.objects();
  }
  void SetReady(bool ready) {
    const json status = {{"conditions", {{{"type", "Ready"}, {"status", ready ? "True" : "False"}}}}};
    ASSERT_TRUE(tokyo_client_
                    ->Patch(manifests::kPods, {"default", "train-tokyo-0-r0"}, kube::PatchType::kMerge, json{{"status", status}}.dump(),
                            {.subresource = "status"})
                    .ok());
  }
  static json Get(kube::ApiClient& client, const kube::Resource& resource, const std::string& name) {
    return json::parse(client.Get(resource, {"default", name}).value_or("null"));
  }
  static void Remove(kube::ApiClient& client, const kube::Resource& resource, const std::string& name) {
    ASSERT_TRUE(client.Delete(resource, {"default", name}).ok()) << name;
  }
  void WaitAndSettle() {
    clock_.Advance(lifecycle::kObjectRecheckPeriod);
    SettleBoth();
  }
  static std::vector<std::string> WritesIn(const kube::testing::FakeApiServer& server) {
    std::vector<std::string> writes;
    for (const auto& request : server.requests()) {
      if (request.verb != "get" && request.verb != "list") writes.push_back(absl::StrCat(request.verb, " ", request.target));
    }
    return writes;
  }

  std::vector<std::string> hub_before_, tokyo_before_;
};

TEST_F(MissingObjectsTest, AllOfItIsMadeAgain) {
  Start();
  const json document = Get(*looking_, manifests::kConfigMaps, "train-job")["data"];
  for (const char* secret : {"train-broker", "train-executors", "train-authority"}) Remove(*looking_, manifests::kSecrets, secret);
  Remove(*looking_, manifests::kConfigMaps, "train-job");
  for (const char* service : {"train-broker", "train-local-0"}) Remove(*looking_, manifests::kServices, service);
  Remove(*tokyo_client_, manifests::kSecrets, "train-executors");
  Remove(*tokyo_client_, manifests::kServices, "train-tokyo-0");
  SettleBoth();
  ASSERT_NE(server_.objects(), hub_before_) << "nobody tells of what is gone";
  WaitAndSettle();
  EXPECT_EQ(server_.objects(), hub_before_);
  EXPECT_EQ(tokyo_server_.objects(), tokyo_before_);
  EXPECT_EQ(Get(*looking_, manifests::kConfigMaps, "train-job")["data"], document);
}

TEST_F(MissingObjectsTest, TheNewCertificatesAreOfTheAuthorityThatPodsKnow) {
  Start();
  const json before = Get(*looking_, manifests::kSecrets, "train-authority")["data"];
  // It is read from what the broker has of it: an operator that began just now remembers nothing.
  Restart();
  SettleBoth();
  Remove(*looking_, manifests::kSecrets, "train-authority");
  Remove(*tokyo_client_, manifests::kSecrets, "train-executors");
  WaitAndSettle();
  WaitAndSettle();  // the member's part may have come before the hub's
  EXPECT_EQ(Get(*looking_, manifests::kSecrets, "train-authority")["data"], before);
  EXPECT_EQ(Get(*tokyo_client_, manifests::kSecrets, "train-executors")["data"]["ca.pem"], before["ca.pem"]);
}

TEST_F(MissingObjectsTest, AnAuthorityThatCannotBeReadNowIsNotReplaced) {
  Start();
  const json before = Get(*looking_, manifests::kSecrets, "train-authority")["data"];
  Restart();
  SettleBoth();
  Remove(*looking_, manifests::kSecrets, "train-authority");
  server_.AddFault({.verb = "get",
                    .target = "/secrets/train-broker",
                    .code = 503,
                    .body = R"({"kind":"Status","code":503,"reason":"ServiceUnavailable","message":"not now"})"});
  WaitAndSettle();
  WaitAndSettle();
  EXPECT_EQ(Get(*looking_, manifests::kSecrets, "train-authority")["data"], before);
}

TEST_F(MissingObjectsTest, AServiceKeepsTheAddressThatPodsDial) {
  Start();
  Patch(manifests::kServices, "train-broker", {{"spec", {{"clusterIP", "10.96.0.77"}}}});
  clock_.Advance(lifecycle::kObjectRecheckPeriod);
  SettleBoth();  // the owner ConfigMap has it now
  Remove(*looking_, manifests::kServices, "train-broker");
  WaitAndSettle();
  EXPECT_EQ(Get(*looking_, manifests::kServices, "train-broker")["spec"]["clusterIP"], "10.96.0.77");
}

TEST_F(MissingObjectsTest, WhereNothingIsMissingNothingIsWritten) {
  Start();
  server_.ForgetRequests();
  tokyo_server_.ForgetRequests();
  for (int i = 0; i < 5; ++i) WaitAndSettle();
  EXPECT_THAT(WritesIn(server_), IsEmpty());
  EXPECT_THAT(WritesIn(tokyo_server_), IsEmpty());
}

TEST_F(MissingObjectsTest, AJobThatIsReadyIsNotLookedThrough) {
  Start();
  SetReady(true);
  SettleBoth();
  ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
  server_.ForgetRequests();
  for (int i = 0; i < 5; ++i) WaitAndSettle();
  for (const auto& request : server_.requests()) EXPECT_FALSE(absl::StrContains(request.target, "/secrets/")) << request.target;
}

TEST_F(MissingObjectsTest, ReportsNameConflictAndKeepsForeignObject) {
  Start();
  Remove(*looking_, manifests::kSecrets, "train-executors");
  const json theirs = {{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", {{"name", "train-executors"}}}, {"data", {{"x", "eA=="}}}};
  ASSERT_TRUE(looking_->Create(manifests::kSecrets, "default", theirs.dump()).ok());
  clock_.Advance(lifecycle::kObjectRecheckPeriod);
  for (int i = 0; i < 3; ++i) (void)Reconcile();
  EXPECT_EQ(Get(*looking_, manifests::kSecrets, "train-executors")["data"], theirs["data"]);
  EXPECT_THAT(reconciler_->conflicts().In("local"), HasSubstr("train-executors"));
}

// A Secret holds 1 MiB.
TEST_F(MissingObjectsTest, ManyExecutorsHaveSeveralSecrets) {
  members_.remote_.clear();
  json job = testing::JobObject();
  job["spec"]["executors"]["replicas"] = 2 * manifests::kExecutorsPerSecret + 1;
  Submit(job);
  SettleBoth();
  ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_EQ(Get(*looking_, manifests::kSecrets, "train-executors")["data"].size(), 2u * manifests::kExecutorsPerSecret + 1)
      << "with the authority's certificate";
  EXPECT_TRUE(Get(*looking_, manifests::kSecrets, "train-executors-2")["data"].contains(
      absl::StrCat("local-", 2 * manifests::kExecutorsPerSecret, ".key")));
  EXPECT_THAT(Get(*looking_, manifests::kPods, absl::StrCat("train-local-", manifests::kExecutorsPerSecret, "-r0")).dump(),
              HasSubstr("\"train-executors-1\""));
}

}  // namespace
}  // namespace fusionllm::op::controller
