// Pods and owner ConfigMaps that somebody made to look like a job's: they say nothing of the job, and stay as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using testing::DirectMember;
using testing::TwoClustersTest;

struct LookAlike {
  const char* what;
  json change = json::object();  // of a pod that is as the job's own
  const char* ns = "default";
};

class LookAlikeTest : public TwoClustersTest {
 protected:
  // Two executors in Tokyo and none here, all at work.
  void Begin() {
    Submit2();
    SettleBoth();
    ASSERT_EQ(Job()["status"]["executors"], "2/2");
    for (kube::ApiClient* client : {looking_.get(), tokyo_client_.get()}) {
      const json other = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", "other"}}}};
      ASSERT_TRUE(client->Create(manifests::kNamespaces, "", other.dump()).ok());
    }
  }
  // As one who may make pods makes one, with all that can be read off the one it copies, but for `change`.
  kube::ObjectKey Imitate(kube::ApiClient& client, const json& original, const LookAlike& as, const json& status) {
    json pod = {{"apiVersion", "v1"}, {"kind", "Pod"}, {"spec", original["spec"]}};
    for (const char* field : {"name", "labels", "annotations", "ownerReferences"}) {
      if (original["metadata"].contains(field)) pod["metadata"][field] = original["metadata"][field];
    }
    pod["metadata"].merge_patch(as.change);
    const kube::ObjectKey key{as.ns, pod["metadata"]["name"]};
    const auto made = client.Create(manifests::kPods, as.ns, pod.dump());
    EXPECT_TRUE(made.ok()) << as.what << ": " << made.status();
    const json patch = {{"status", status}};
    EXPECT_TRUE(client.Patch(manifests::kPods, key, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}).ok());
    return key;
  }
  // And looks what comes of it, which is nothing.
  void TryWith(kube::ApiClient& client, const json& original, const LookAlike& as, const json& status) {
    SCOPED_TRACE(as.what);
    const kube::ObjectKey key = Imitate(client, original, as, status);
    ExpectNothingComesOfThem();
    EXPECT_TRUE(client.Delete(manifests::kPods, key, {.grace_period_seconds = 0}).ok());
  }
  json Pod(kube::ApiClient& client, const std::string& name) {
    return json::parse(client.Get(manifests::kPods, {"default", name}).value());
  }
  // Of an object that is there, or the garbage collector would take what it owns.
  static std::string SomebodysUid(kube::ApiClient& client) {
    return json::parse(client.Get(manifests::kConfigMaps, {"default", "text"}).value())["metadata"]["uid"];
  }
  // Says that the run has ended so; else what a page would say is made up, too.
  static json Ended(const char* container, int exit_code) {
    const json terminated = {{"exitCode", exit_code}, {"reason", "Completed"}, {"message", R"({"step":99,"phase":"complete"})"}};
    return {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
            {"podIP", "10.6.6.6"},
            {"containerStatuses", {{{"name", container}, {"state", {{"terminated", terminated}}}}}}};
  }
  // Nothing of the job and none of the pods there are another after some looks.
  void ExpectNothingComesOfThem() {
    const json job = Job();
    const auto before = std::make_tuple(server_.objects(), tokyo_server_.objects());
    clock_.Advance(absl::Minutes(1));
    SettleBoth();
    EXPECT_EQ(Job()["status"], job["status"]);
    EXPECT_EQ(std::make_tuple(server_.objects(), tokyo_server_.objects()), before);
    EXPECT_NE(progress_.address_, "10.6.6.6:9090");
  }
};

json OtherOwner(const json& original, const char* field, const json& value) {
  json owners = original["metadata"]["ownerReferences"];
  owners[0][field] = value;
  return {{"ownerReferences", owners}};
}

// Of the attempt that runs, under names that are free, in namespaces where they are, or with owners that are others'.
std::vector<LookAlike> ImitationsOf(const json& original, const std::string& free_name, const std::string& foreign_uid) {
  const auto under = [&](json change) {
    change["name"] = free_name;
    return change;
  };
  return {{"in another namespace", json::object(), "other"},
          {"under another name", under(json::object())},
          {"without an owner, in another namespace", {{"ownerReferences", nullptr}}, "other"},
          {"with a foreign owner", OtherOwner(original, "uid", foreign_uid), "other"}};
}

TEST_F(LookAlikeTest, ABrokerByItsLabelsAloneSaysNothingOfTheRun) {
  Begin();
  const json broker = Pod(*looking_, "train-broker-r0");
  for (const LookAlike& as : ImitationsOf(broker, "innocent", SomebodysUid(*looking_))) {
    for (const int exit_code : {0, 2}) TryWith(*looking_, broker, as, Ended("broker", exit_code));
  }
}

// The next attempt's, which the job has not begun: its name is free.
TEST_F(LookAlikeTest, IgnoresBrokerPodWithoutOwnerReference) {
  Begin();
  const json broker = Pod(*looking_, "train-broker-r0");
  json next = {{"name", "train-broker-r1"}, {"labels", {{manifests::kAttemptLabel, "1"}}}};
  for (const json& owners : {json(nullptr), OtherOwner(broker, "uid", SomebodysUid(*looking_))["ownerReferences"],
                             OtherOwner(broker, "controller", false)["ownerReferences"], OtherOwner(broker, "name", "x")["ownerReferences"],
                             OtherOwner(broker, "kind", "Secret")["ownerReferences"]}) {
    next["ownerReferences"] = owners;
    LookAlike as{"the next attempt's"};
    as.change = next;
    TryWith(*looking_, broker, as, Ended("broker", 0));
  }
}

TEST_F(LookAlikeTest, IgnoresBrokerPodBeforeFirstAttempt) {
  json job = testing::JobObject();
  job["spec"]["suspend"] = true;
  Submit(job);
  Settle();
  const std::string uid = Job()["metadata"]["uid"];
  const json pod = {{"metadata",
                     {{"name", "train-broker-r0"},
                      {"labels",
                       {{manifests::kOriginLabel, testing::kOrigin},
                        {manifests::kJobLabel, "train"},
                        {manifests::kJobUidLabel, uid},
                        {manifests::kRoleLabel, manifests::kBrokerRole},
                        {manifests::kAttemptLabel, "0"}}},
                      {"ownerReferences",
                       {{{"apiVersion", "v1"},
                         {"kind", "ConfigMap"},
                         {"name", "train-anchor"},
                         {"uid", SomebodysUid(*looking_)},
                         {"controller", true}}}}}},
                    {"spec", json::object()}};
  TryWith(*looking_, pod, {"before it"}, Ended("broker", 0));
}

TEST_F(LookAlikeTest, IgnoresBrokerPodInMember) {
  Begin();
  json broker = Pod(*looking_, "train-broker-r0");
  const json executor = Pod(*tokyo_client_, "train-tokyo-0-r0");
  broker["metadata"]["ownerReferences"] = executor["metadata"]["ownerReferences"];  // the member's own owner ConfigMap
  TryWith(*tokyo_client_, broker, {"with all that can be had"}, Ended("broker", 0));
}

TEST_F(LookAlikeTest, AnExecutorByItsLabelsAloneIsNotLost) {
  Begin();
  const json executor = Pod(*tokyo_client_, "train-tokyo-0-r0");
  for (const LookAlike& as : ImitationsOf(executor, "innocent", SomebodysUid(*tokyo_client_)))
    TryWith(*tokyo_client_, executor, as, Ended("executor", 1));
}

TEST_F(LookAlikeTest, OwnerConfigMapOfAnotherNamespaceIsNotTheJobs) {
  Begin();
  json owner_config_map = json::parse(looking_->Get(manifests::kConfigMaps, {"default", "train-anchor"}).value());
  for (const auto& [ns, name] : {std::pair("other", "train-anchor"), std::pair("default", "a-anchor")}) {
    json copy = {{"apiVersion", "v1"},
                 {"kind", "ConfigMap"},
                 {"metadata",
                  {{"name", name},
                   {"labels", owner_config_map["metadata"]["labels"]},
                   {"annotations", owner_config_map["metadata"]["annotations"]}}}};
    copy["metadata"]["annotations"][manifests::kPlacementAnnotation] = "0:local-7";
    copy["metadata"]["annotations"][manifests::kBrokerAnnotation] = "10.6.6.6:7000";
    ASSERT_TRUE(looking_->Create(manifests::kConfigMaps, ns, copy.dump()).ok());
  }
  ExpectNothingComesOfThem();
}

// No other's pod is deleted for having a name that the job would use.
TEST_F(LookAlikeTest, APodInTheWayStaysAndTheJobSaysSo) {
  json job = testing::JobObject();
  job["spec"]["suspend"] = true;
  job["spec"]["placement"] = {{"clusters", {{{"name", "local"}, {"min", 2}}}}};
  Submit(job);
  Settle();
  const json pod = {{"metadata",
                     {{"name", "train-broker-r0"},
                      {"labels",
                       {{manifests::kOriginLabel, testing::kOrigin},
                        {manifests::kJobLabel, "train"},
                        {manifests::kJobUidLabel, Job()["metadata"]["uid"]},
                        {manifests::kRoleLabel, manifests::kBrokerRole},
                        {manifests::kAttemptLabel, "0"}}}}},
                    {"spec", json::object()}};
  Imitate(*looking_, pod, {"in the way"}, json::object());
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  for (int i = 0; i < 10; ++i) {
    (void)Reconcile();
    SimulateCluster();
  }
  EXPECT_TRUE(looking_->Get(manifests::kPods, {"default", "train-broker-r0"}).ok());
  EXPECT_THAT(Job()["status"].dump(), ::testing::HasSubstr("is not owned by this job"));
}

}  // namespace
}  // namespace fusionllm::op::controller
