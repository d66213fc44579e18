// What a job's Pods mount or read, and that is not there: a Pod would be made all the same, and wait for it without a word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TwoClustersTest;

class MissingReferencesTest : public TwoClustersTest {
 protected:
  static json LoadBalancerJob() {
    json job = testing::JobObject();
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    return job;
  }
  static json WithVolumes(json job, const json& volumes) {
    job["spec"]["executors"]["template"] = {{"spec", {{"volumes", volumes}}}};
    return job;
  }
  static void Make(kube::ApiClient& client, const kube::Resource& kind, const std::string& name, const json& data = nullptr) {
    json object = {{"apiVersion", "v1"}, {"kind", kind.kind}, {"metadata", {{"name", name}}}};
    if (!data.is_null()) object["data"] = data;
    ASSERT_TRUE(client.Create(kind, "default", object.dump()).ok()) << name;
  }
  static void Remove(kube::ApiClient& client, const kube::Resource& kind, const std::string& name) {
    ASSERT_TRUE(client.Delete(kind, {"default", name}).ok()) << name;
  }
  std::string Said() { return ConditionObject("Scheduled")["message"]; }
  // Reads of one object, by name.
  static int Reads(const kube::testing::FakeApiServer& server, const std::string& name) {
    const auto requests = server.requests();
    return static_cast<int>(std::count_if(requests.begin(), requests.end(), [&](const auto& request) {
      return request.verb == "get" && absl::EndsWith(request.target, absl::StrCat("/", name));
    }));
  }
  void ExpectQuiet() {
    server_.ForgetRequests();
    tokyo_server_.ForgetRequests();
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(Reconcile().status.ok());
      EXPECT_TRUE(ReconcileTokyo().status.ok());
    }
    for (const auto* server : {&server_, &tokyo_server_}) {
      EXPECT_EQ(Reads(*server, "text"), 0);
      for (const auto& request : server->requests()) EXPECT_TRUE(request.verb == "get" || request.verb == "list") << request.target;
    }
  }
};

TEST_F(MissingReferencesTest, DataThatAMemberLacksAreNamedWithClusterAndNamespaceUntilTheyAreThere) {
  Remove(*tokyo_client_, manifests::kConfigMaps, "text");
  Submit(LoadBalancerJob());
  SettleBoth();
  EXPECT_EQ(Condition("Scheduled"), "False ObjectMissing");
  EXPECT_EQ(Condition("Ready"), "False ObjectMissing");
  EXPECT_EQ(Said(), "Cluster tokyo: namespace default has no ConfigMap text (volume data of the executor).");
  EXPECT_THAT(PodNames(), IsEmpty()) << "they would hold devices in vain";
  EXPECT_THAT(tokyo_server_.objects(), Not(::testing::Contains(HasSubstr("train"))));
  ExpectQuiet();
  clock_.Advance(absl::Seconds(15));
  const json before = Job();
  tokyo_server_.ForgetRequests();
  for (int i = 0; i < 3; ++i) (void)ReconcileTokyo();
  EXPECT_EQ(Reads(tokyo_server_, "text"), 1) << "looked for once more";
  EXPECT_EQ(Job(), before);
  Make(*tokyo_client_, manifests::kConfigMaps, "text");
  clock_.Advance(absl::Seconds(15));
  SettleBoth();
  EXPECT_EQ(Condition("Scheduled"), "True Scheduled");
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  ExpectQuiet();
}

TEST_F(MissingReferencesTest, WhatTheBrokerAloneNamesIsLookedForOnTheHub) {
  json job = LoadBalancerJob();
  job["spec"]["checkpoint"] = {{"path", "s3://bucket/run"}};
  job["spec"]["objectStore"] = {{"secretName", "keys"}};
  Make(*tokyo_client_, manifests::kSecrets, "keys");
  Submit(job);
  SettleBoth();
  EXPECT_EQ(Said(), "The hub: namespace default has no Secret keys (environment of container broker of the broker).");
  Make(*looking_, manifests::kSecrets, "keys", {{"AWS_ACCESS_KEY_ID", "eA=="}, {"AWS_SECRET_ACCESS_KEY", "eA=="}});
  clock_.Advance(absl::Seconds(15));
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

// The operator may read Secrets by name where jobs are (adr/0037). It keeps and tells the names of keys, never what they hold.
TEST_F(MissingReferencesTest, AKeyThatASecretLacksIsNamedWithThoseThatItHas) {
  members_.remote_.clear();
  json job = testing::JobObject();
  job["spec"]["checkpoint"] = {{"path", "s3://bucket/run"}};
  job["spec"]["objectStore"] = {{"secretName", "keys"}};
  constexpr char kValue[] = "dmFsdWUtdGhhdC1ub2JvZHktbWF5LXNlZQ==";
  Make(*looking_, manifests::kSecrets, "keys", {{"AWS_ACESS_KEY_ID", kValue}, {"AWS_SECRET_ACCESS_KEY", kValue}});
  Submit(job);
  Settle();
  EXPECT_EQ(Condition("Ready"), "False ObjectMissing");
  EXPECT_EQ(
      Said(),
      "The hub: namespace default has no key AWS_ACCESS_KEY_ID in Secret keys (environment of container broker of the broker; its keys: "
      "AWS_ACESS_KEY_ID, AWS_SECRET_ACCESS_KEY).");
  EXPECT_THAT(PodNames(), IsEmpty()) << "they would hold devices in vain";
  EXPECT_THAT(Job().dump(), Not(HasSubstr(kValue)));
  EXPECT_THAT(events_.messages_, ::testing::Each(Not(HasSubstr(kValue))));
  const json mended = {{"data", {{"AWS_ACCESS_KEY_ID", kValue}}}};
  Patch(manifests::kSecrets, "keys", mended);
  clock_.Advance(absl::Seconds(15));
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

TEST_F(MissingReferencesTest, AllThatIsMissingIsNamedUpToALimitAndWhatIsOptionalIsNot) {
  members_.remote_.clear();
  json volumes = json::array();
  for (int i = 0; i < 7; ++i) {
    volumes.push_back({{"name", absl::StrCat("v", i)}, {"secret", {{"secretName", absl::StrCat("s", i)}}}});
  }
  volumes.push_back({{"name", "w"}, {"configMap", {{"name", "unneeded"}, {"optional", true}}}});
  Submit(WithVolumes(testing::JobObject(), volumes));
  Settle();
  EXPECT_THAT(Said(), AllOf(HasSubstr("no Secret s0 (volume v0 of the executor), no Secret s1"), HasSubstr("Secret s4"),
                            HasSubstr(", and 2 more."), Not(HasSubstr("unneeded"))));
}

TEST_F(MissingReferencesTest, OfASecretOfWhichNoKeyIsNamedTheMetadataAloneAreRead) {
  members_.remote_.clear();
  Make(*looking_, manifests::kSecrets, "keys");
  Submit(WithVolumes(testing::JobObject(), {{{"name", "k"}, {"secret", {{"secretName", "keys"}}}}}));
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  int reads = 0;
  for (const auto& request : server_.requests()) {
    if (request.verb != "get" || !absl::EndsWith(request.target, "/secrets/keys")) continue;
    ++reads;
    EXPECT_TRUE(request.metadata_only);
  }
  EXPECT_EQ(reads, 1);
}

TEST_F(MissingReferencesTest, WhatMayNotBeLookedAtCountsAsBeingThere) {
  members_.remote_.clear();
  server_.AddFault({.verb = "get",
                    .target = "/configmaps/text",
                    .times = 1 << 20,
                    .code = 403,
                    .body = R"({"kind":"Status","code":403,"reason":"Forbidden","message":"configmaps \"text\" is forbidden"})"});
  Submit();
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

TEST_F(MissingReferencesTest, ChecksReferencesPerAttempt) {
  members_.remote_.clear();
  Submit();
  Settle();
  ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
  Remove(*looking_, manifests::kConfigMaps, "text");
  clock_.Advance(absl::Minutes(1));
  EndBroker(0, 1, "{}");
  Settle();
  clock_.Advance(absl::Minutes(10));
  Settle();
  EXPECT_EQ(Job()["status"]["attempt"], 1);
  EXPECT_EQ(Condition("Scheduled"), "False ObjectMissing");
  Make(*looking_, manifests::kConfigMaps, "text");
  clock_.Advance(absl::Seconds(15));
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

}  // namespace
}  // namespace fusionllm::op::controller
