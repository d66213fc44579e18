// Caches of a cluster on an API server in memory.
#include "operator/cache/cluster_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::cache {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

const absl::Time kAwaySince = absl::FromUnixSeconds(1'700'000'000);

class ClusterCacheTest : public ::testing::Test {
 protected:
  ClusterCacheTest() {
    cache_.Start();
    EXPECT_TRUE(cache_.WaitForSync(absl::Minutes(1)));
  }
  ~ClusterCacheTest() override { cache_.Stop(); }

  static manifests::JobIdentity Job(const std::string& name) {
    return {.name = name, .ns = "default", .uid = name + "-uid", .origin = "hub"};
  }
  // As the job's owner ConfigMap owns what is made beside it.
  json OwnedByConfigMapOf(const std::string& job) {
    if (!owner_config_map_uids_.contains(job)) CreateOwnerConfigMap(job);
    return json::array({{{"apiVersion", "v1"},
                         {"kind", "ConfigMap"},
                         {"name", job + "-anchor"},
                         {"uid", owner_config_map_uids_[job]},
                         {"controller", true}}});
  }
  std::string CreateOwnerConfigMap(const std::string& job) {
    const json object = {{"apiVersion", "v1"},
                         {"kind", "ConfigMap"},
                         {"metadata",
                          {{"name", job + "-anchor"},
                           {"labels",
                            {{manifests::kOriginLabel, "hub"},
                             {manifests::kRoleLabel, manifests::kOwnerConfigMapRole},
                             {manifests::kJobLabel, job},
                             {manifests::kJobUidLabel, job + "-uid"}}}}}};
    std::string made = client_.Create(manifests::kConfigMaps, "default", object.dump(), {}, {}).value();
    owner_config_map_uids_[job] = json::parse(made)["metadata"]["uid"];
    return made;
  }
  void CreateBroker(const std::string& job, int attempt = 3) {
    const json pod = {{"apiVersion", "v1"},
                      {"kind", "Pod"},
                      {"metadata",
                       {{"name", absl::StrCat(job, "-broker-r", attempt)},
                        {"ownerReferences", OwnedByConfigMapOf(job)},
                        {"labels",
                         {{manifests::kOriginLabel, "hub"},
                          {manifests::kRoleLabel, manifests::kBrokerRole},
                          {manifests::kJobLabel, job},
                          {manifests::kJobUidLabel, job + "-uid"},
                          {manifests::kAttemptLabel, std::to_string(attempt)}}}}}};
    EXPECT_TRUE(client_.Create(manifests::kPods, "default", pod.dump(), {}, {}).ok());
  }
  // It ends, and is gone at once: one who looks at the pods only now and then has never seen it as it ended.
  void EndBroker(const std::string& job, int attempt = 3) {
    const kube::ObjectKey key{"default", absl::StrCat(job, "-broker-r", attempt)};
    const json ended = {{"exitCode", 4}, {"message", R"({"step":72,"steps":99,"checkpoint_step":72})"}};
    json status = {{"phase", "Failed"}, {"containerStatuses", {{{"name", "broker"}, {"state", {{"terminated", ended}}}}}}};
    status["conditions"] = json::array({{{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "EvictionByEvictionAPI"}}});
    const json patch = {{"status", status}};
    const auto patched = client_.Patch(manifests::kPods, key, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}, {});
    ASSERT_TRUE(patched.ok()) << patched.status();
    ASSERT_TRUE(client_.Delete(manifests::kPods, key, {.grace_period_seconds = 0}, {}).ok());
  }
  // A node, and an executor of the job "a" that runs there.
  void CreateExecutorOnANode() {
    const json node = {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", "n1"}}}};
    ASSERT_TRUE(client_.Create(manifests::kNodes, "", node.dump(), {}, {}).ok());
    const json pod = {{"apiVersion", "v1"},
                      {"kind", "Pod"},
                      {"metadata",
                       {{"name", "a-paris-0-r0"},
                        {"ownerReferences", OwnedByConfigMapOf("a")},
                        {"labels",
                         {{manifests::kOriginLabel, "hub"},
                          {manifests::kRoleLabel, manifests::kExecutorRole},
                          {manifests::kJobLabel, "a"},
                          {manifests::kJobUidLabel, "a-uid"},
                          {manifests::kClusterLabel, "paris"},
                          {manifests::kIndexLabel, "0"},
                          {manifests::kAttemptLabel, "0"}}}}},
                      {"spec", {{"nodeName", "n1"}}}};
    ASSERT_TRUE(client_.Create(manifests::kPods, "default", pod.dump(), {}, {}).ok());
  }
  bool NodeBecomes(const char* ready) {
    const json condition = {
        {"type", "Ready"}, {"status", ready}, {"lastTransitionTime", absl::FormatTime(kAwaySince, absl::UTCTimeZone())}};
    const json patch = {{"status", {{"conditions", {condition}}}}};
    return client_.Patch(manifests::kNodes, {"", "n1"}, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}, {}).ok();
  }
  bool AwaySinceBecomes(std::optional<absl::Time> since) {
    return Eventually([&] {
      const std::vector<lifecycle::PodView> pods = cache_.PodsOf(Job("a"));
      return pods.size() == 1 && pods[0].node_away_since == since;
    });
  }
  // Until the cache has heard of all that has happened to pods so far; not of what comes and goes meanwhile.
  void AwaitPods() {
    const std::string job = absl::StrCat("other-", ++others_);
    CreateOwnerConfigMap(job);
    AwaitWordOf(job);  // that of the owner ConfigMap says nothing of pods
    CreateBroker(job);
    AwaitWordOf(job);
  }
  void AwaitWordOf(const std::string& job) {
    ASSERT_TRUE(Eventually([&] {
      const std::lock_guard lock(mutex_);
      return changed_jobs_.contains(job);
    }));
    const std::lock_guard lock(mutex_);
    changed_jobs_.erase(job);
  }
  bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 60'000 && !holds(); ++i) clock_.WaitFor(absl::Milliseconds(1), {});
    return holds();
  }

  int others_ = 0;
  std::map<std::string, std::string> owner_config_map_uids_;  // by job
  std::mutex mutex_;
  std::set<std::string> changed_jobs_;  // jobs; guarded by mutex_
  kube::Clock& clock_ = kube::RealClock();
  kube::testing::FakeApiServer server_{clock_};
  kube::RestClient client_{{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"}, {}, clock_};
  kube::HeartbeatClient reads_{client_, clock_};
  ClusterCache cache_{"paris", "hub", reads_, client_, clock_, nullptr, [this](const kube::ObjectKey& job, bool) {
                        const std::lock_guard lock(mutex_);
                        changed_jobs_.insert(job.name);
                      }};
};

TEST_F(ClusterCacheTest, HowLongAConnectionHasBeenLostIsNoNews) {
  kube::testing::FakeClock clock;
  kube::HeartbeatClient reads(client_, clock);
  ClusterCache cache("paris", "hub", reads, client_, clock, nullptr, [](const kube::ObjectKey&, bool) {});
  cache.Start();
  ASSERT_TRUE(cache.WaitForSync(absl::Minutes(1)));
  for (const char* verb : {"watch", "list"}) {
    server_.AddFault({.verb = verb, .times = 1'000'000, .code = 503, .body = R"({"kind":"Status","code":503,"message":"gone fishing"})"});
  }
  server_.BreakWatches();
  EXPECT_TRUE(Eventually([&] {
    const absl::Status before = cache.Connection();
    clock.Advance(absl::Hours(1));
    // That the watch broke, which is reported first, is followed by what the server says of the next.
    return absl::StrContains(before.message(), "gone fishing") && cache.Connection() == before;
  }));
  cache.Stop();
}

TEST_F(ClusterCacheTest, AClusterThatCanBeListedAndNotWatchedIsNotConnected) {
  ASSERT_TRUE(Eventually([&] { return cache_.Connection().ok(); }));
  server_.AddFault({.verb = "watch", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  kube::HeartbeatClient reads(client_, clock_);
  ClusterCache cache("paris", "hub", reads, client_, clock_, nullptr, [](const kube::ObjectKey&, bool) {});
  cache.Start();
  ASSERT_TRUE(cache.WaitForSync(absl::Minutes(1)));
  EXPECT_TRUE(absl::IsUnavailable(cache.Connection())) << cache.Connection();
  EXPECT_EQ(cache.Connection().message(), "no watch yet");
  EXPECT_TRUE(cache.Listed());
  EXPECT_FALSE(cache.Watched());
  cache.Stop();
  EXPECT_TRUE(cache_.Connection().ok()) << "whose watches were opened before";
  EXPECT_TRUE(cache_.Watched());
}

TEST_F(ClusterCacheTest, AWatchThatEndsIsWaitedForWhereItWasOpenOnce) {
  kube::testing::FakeClock clock;
  kube::HeartbeatClient reads(client_, clock);
  ClusterCache cache("paris", "hub", reads, client_, clock, nullptr, [](const kube::ObjectKey&, bool) {});
  cache.Start();
  ASSERT_TRUE(cache.WaitForSync(absl::Minutes(1)));
  ASSERT_TRUE(Eventually([&] { return cache.Connection().ok(); }));
  server_.AddFault({.verb = "watch", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  server_.BreakWatches();
  ASSERT_TRUE(Eventually([&] { return server_.open_watches() == 0; }));
  EXPECT_TRUE(cache.Connection().ok());
  cache.Stop();
}

TEST_F(ClusterCacheTest, APodSaysSinceWhenItsNodeIsAway) {
  CreateExecutorOnANode();
  EXPECT_TRUE(NodeBecomes("Unknown"));
  EXPECT_TRUE(AwaySinceBecomes(kAwaySince));
  EXPECT_EQ(cache_.PodsOf(Job("a"))[0].node, "n1");
  EXPECT_TRUE(NodeBecomes("True"));
  EXPECT_TRUE(AwaySinceBecomes(std::nullopt));
}

TEST_F(ClusterCacheTest, APodThatFindsNoNodeNamesThoseThatTakeNone) {
  CreateExecutorOnANode();
  ASSERT_TRUE(NodeBecomes("Unknown"));
  const json cordoned = {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", "n2"}}}, {"spec", {{"unschedulable", true}}}};
  ASSERT_TRUE(client_.Create(manifests::kNodes, "", cordoned.dump(), {}, {}).ok());
  const json node_status = {{"status", {{"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
  ASSERT_TRUE(
      client_.Patch(manifests::kNodes, {"", "n2"}, kube::PatchType::kMerge, node_status.dump(), {.subresource = "status"}, {}).ok());
  const json status = {{"phase", "Pending"},
                       {"conditions",
                        {{{"type", "PodScheduled"},
                          {"status", "False"},
                          {"reason", "Unschedulable"},
                          {"message", "0/2 nodes are available: 2 node(s) were unschedulable"}}}}};
  const json patch = {{"status", status}};
  const auto patched =
      client_.Patch(manifests::kPods, {"default", "a-paris-0-r0"}, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}, {});
  ASSERT_TRUE(patched.ok()) << patched.status();
  std::string message;
  EXPECT_TRUE(Eventually([&] {
    const std::vector<lifecycle::PodView> pods = cache_.PodsOf(Job("a"));
    message = pods.empty() ? "" : pods[0].message;
    return message == "0/2 nodes are available: 2 node(s) were unschedulable (not ready: n1; cordoned: n2)";
  })) << message;
}

TEST_F(ClusterCacheTest, NodeStateIsUnknownWithoutWatch) {
  CreateExecutorOnANode();
  ASSERT_TRUE(NodeBecomes("Unknown"));
  ASSERT_TRUE(AwaySinceBecomes(kAwaySince));
  server_.AddFault({.verb = "watch", .target = "/nodes", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  server_.BreakWatches();
  EXPECT_TRUE(AwaySinceBecomes(std::nullopt)) << "it may be back";
}

TEST_F(ClusterCacheTest, ItSaysWhetherItShowsWhatWasWritten) {
  EXPECT_TRUE(cache_.SeenWrites("a-uid"));
  json later = json::parse(CreateOwnerConfigMap("a"));
  const std::string name = later["metadata"]["name"];
  later["metadata"]["resourceVersion"] = absl::StrCat(later["metadata"]["resourceVersion"].get<std::string>(), "0");  // as if much later
  cache_.Wrote("a-uid", manifests::kConfigMaps, later.dump());
  EXPECT_FALSE(cache_.SeenWrites("a-uid"));
  EXPECT_TRUE(cache_.SeenWrites("b-uid")) << "of another job nothing was written";
  const std::string written = CreateOwnerConfigMap("c");
  cache_.Wrote("c-uid", manifests::kConfigMaps, written);
  EXPECT_TRUE(Eventually([&] { return cache_.SeenWrites("c-uid"); }));
  EXPECT_TRUE(cache_.OwnerConfigMapOf(Job("c")).has_value()) << "seen is seen";
}

TEST_F(ClusterCacheTest, LastReportStaysAsLongAsTheOwnerConfigMap) {
  CreateOwnerConfigMap("a");
  CreateBroker("a");
  ASSERT_TRUE(Eventually([&] { return cache_.PodsOf(Job("a")).size() == 1 && cache_.OwnerConfigMapOf(Job("a")).has_value(); }));
  EXPECT_FALSE(cache_.LastReportOf(Job("a")).has_value());
  AwaitPods();
  EndBroker("a");
  ASSERT_TRUE(Eventually([&] { return cache_.LastReportOf(Job("a")).has_value(); }));
  EXPECT_TRUE(cache_.PodsOf(Job("a")).empty());
  EXPECT_EQ(cache_.LastReportOf(Job("a"))->attempt, 3);
  EXPECT_EQ(cache_.LastReportOf(Job("a"))->progress.checkpoint_step, 72);
  EXPECT_EQ(cache_.LastReportOf(Job("a"))->disruption, "EvictionByEvictionAPI");
  EXPECT_FALSE(cache_.LastReportOf(Job("b")).has_value());
  ASSERT_TRUE(client_.Delete(manifests::kConfigMaps, {"default", "a-anchor"}, {}, {}).ok());
  EXPECT_TRUE(Eventually([&] { return !cache_.LastReportOf(Job("a")).has_value(); })) << "the job is gone";
}

// One who may make pods in some namespace reads a job's uid off its objects, if he may see them.
TEST_F(ClusterCacheTest, WhatLooksLikeAJobsIsNotTheJobs) {
  const json ns = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", "other"}}}};
  ASSERT_TRUE(client_.Create(manifests::kNamespaces, "", ns.dump(), {}, {}).ok());
  CreateOwnerConfigMap("a");
  CreateBroker("a", 1);
  AwaitPods();
  ASSERT_TRUE(Eventually([&] { return cache_.PodsOf(Job("a")).size() == 1; }));
  const json broker = json::parse(client_.Get(manifests::kPods, {"default", "a-broker-r1"}, {}).value());
  const json owner_config_map = json::parse(client_.Get(manifests::kConfigMaps, {"default", "a-anchor"}, {}).value());
  const auto imitate = [&](const kube::Resource& resource, const json& original, const std::string& where, const json& change) {
    json copy = {{"apiVersion", "v1"},
                 {"kind", resource.kind},
                 {"metadata", {{"name", original["metadata"]["name"]}, {"labels", original["metadata"]["labels"]}}}};
    if (original["metadata"].contains("ownerReferences")) copy["metadata"]["ownerReferences"] = original["metadata"]["ownerReferences"];
    copy["metadata"].merge_patch(change);
    const auto made = client_.Create(resource, where, copy.dump(), {}, {});
    EXPECT_TRUE(made.ok()) << made.status();
  };
  json foreign = broker["metadata"]["ownerReferences"];
  foreign[0]["uid"] = json::parse(CreateOwnerConfigMap("b"))["metadata"]["uid"];
  const json second = {{"labels", {{manifests::kAttemptLabel, "2"}}}, {"name", "a-broker-r2"}};
  json without = second, with_foreign = second;
  without["ownerReferences"] = nullptr;
  with_foreign["name"] = "a-broker-r3";
  with_foreign["labels"][manifests::kAttemptLabel] = "3";
  with_foreign["ownerReferences"] = foreign;
  imitate(manifests::kPods, broker, "other", json::object());
  imitate(manifests::kPods, broker, "default", {{"name", "innocent"}});
  imitate(manifests::kPods, broker, "default", without);
  imitate(manifests::kPods, broker, "default", with_foreign);
  imitate(manifests::kConfigMaps, owner_config_map, "other", json::object());
  imitate(manifests::kConfigMaps, owner_config_map, "default", {{"name", "innocent"}});
  EndBroker("a", 3);  // the last word of none
  AwaitPods();
  CreateOwnerConfigMap("last");
  ASSERT_TRUE(Eventually([&] { return cache_.OwnerConfigMapOf(Job("last")).has_value(); }));
  const std::vector<lifecycle::PodView> pods = cache_.PodsOf(Job("a"));
  ASSERT_EQ(pods.size(), 1);
  EXPECT_EQ(pods[0].uid, broker["metadata"]["uid"]);
  EXPECT_EQ(cache_.OwnerConfigMapOf(Job("a"))->uid, owner_config_map["metadata"]["uid"]);
  EXPECT_FALSE(cache_.LastReportOf(Job("a")).has_value());
  for (const OwnerConfigMapView& one : cache_.OwnerConfigMaps()) EXPECT_NE(one.name, "innocent");
  EXPECT_TRUE(cache_.PodsOf({.name = "a", .ns = "other", .uid = "a-uid", .origin = "hub"}).empty()) << "its owner is not there";
}

TEST_F(ClusterCacheTest, OfSeveralBrokersTheNewestHasTheLastWord) {
  CreateOwnerConfigMap("a");
  ASSERT_TRUE(Eventually([&] { return cache_.OwnerConfigMapOf(Job("a")).has_value(); }));
  for (const auto& [attempt, newest] : {std::pair(3, 3), std::pair(5, 5), std::pair(4, 5)}) {
    CreateBroker("a", attempt);
    AwaitPods();
    EndBroker("a", attempt);
    AwaitPods();
    ASSERT_TRUE(cache_.LastReportOf(Job("a")).has_value());
    EXPECT_EQ(cache_.LastReportOf(Job("a"))->attempt, newest);
  }
}

TEST_F(ClusterCacheTest, KeepsNoReportOnceTheOwnerConfigMapIsGone) {
  CreateBroker("a");
  AwaitPods();
  // So that the garbage collector does not take it away at once.
  const json held = {{"metadata", {{"finalizers", {"example.org/hold"}}}}}, let_go = {{"metadata", {{"finalizers", nullptr}}}};
  const kube::ObjectKey broker{"default", "a-broker-r3"};
  ASSERT_TRUE(client_.Patch(manifests::kPods, broker, kube::PatchType::kMerge, held.dump(), {}, {}).ok());
  ASSERT_TRUE(Eventually([&] { return cache_.PodsOf(Job("a")).size() == 1; }));
  ASSERT_TRUE(client_.Delete(manifests::kConfigMaps, {"default", "a-anchor"}, {}, {}).ok());
  ASSERT_TRUE(Eventually([&] { return !cache_.OwnerConfigMapOf(Job("a")).has_value(); }));
  EXPECT_EQ(cache_.PodsOf(Job("a")).size(), 1) << "nothing else is to be at work beside it";
  EndBroker("a");
  ASSERT_TRUE(client_.Patch(manifests::kPods, broker, kube::PatchType::kMerge, let_go.dump(), {}, {}).ok());
  AwaitPods();
  EXPECT_FALSE(cache_.LastReportOf(Job("a")).has_value());
}

// A tenant's objects do not matter but for what their pods take from the nodes.
TEST_F(ClusterCacheTest, OnlyObjectsOfThisOriginAreAskedFor) {
  ASSERT_TRUE(Eventually([&] { return server_.open_watches() == 4; }));
  std::set<std::string> asked;
  for (const auto& request : server_.requests()) {
    if (request.verb != "list" && request.verb != "watch") continue;
    const size_t at = request.target.find("labelSelector=");
    const std::string path = request.target.substr(0, request.target.find('?'));
    const std::string selector = at == std::string::npos ? "all" : request.target.substr(at, request.target.find('&', at) - at);
    asked.insert(absl::StrCat(request.verb, " ", path, " ", selector));
  }
  std::set<std::string> wanted;
  for (const char* verb : {"list", "watch"}) {
    for (const char* what : {"/api/v1/pods labelSelector=fusionllm.io%2Forigin%3Dhub",
                             "/api/v1/configmaps labelSelector=fusionllm.io%2Forigin%3Dhub%2Cfusionllm.io%2Frole%3Danchor",
                             "/api/v1/pods labelSelector=fusionllm.io%2Forigin%21%3Dhub", "/api/v1/nodes all"}) {
      wanted.insert(absl::StrCat(verb, " ", what));
    }
  }
  EXPECT_EQ(asked, wanted);
}

TEST_F(ClusterCacheTest, OnlyWhatHasJustChangedIsUrgent) {
  CreateOwnerConfigMap("before");
  CreateBroker("before");
  kube::testing::FakeClock clock;
  kube::HeartbeatClient reads(client_, clock_);
  std::vector<std::string> changed;
  const auto await = [&](size_t most) {
    EXPECT_TRUE(Eventually([&] {
      const std::lock_guard lock(mutex_);
      return changed.size() >= most;
    }));
    const std::lock_guard lock(mutex_);
    return std::exchange(changed, {});
  };
  ClusterCache cache("paris", "hub", reads, client_, clock, nullptr, [&](const kube::ObjectKey& job, bool urgent) {
    const std::lock_guard lock(mutex_);
    changed.push_back(absl::StrCat(job.name, urgent ? " now" : ""));
  });
  cache.Start();
  EXPECT_THAT(await(2), ElementsAre("before", "before")) << "its pod and its owner ConfigMap";
  CreateOwnerConfigMap("after");
  EXPECT_THAT(await(1), ElementsAre("after now"));
  CreateBroker("after");
  EXPECT_THAT(await(1), ElementsAre("after now"));
  clock.Advance(absl::Hours(10));
  EXPECT_THAT(await(4), UnorderedElementsAre("before", "before", "after", "after")) << "told again for safety";
  cache.Stop();
}

TEST_F(ClusterCacheTest, ACacheThatIsRightIsLeftAlone) {
  CreateOwnerConfigMap("a");
  ASSERT_TRUE(Eventually([&] { return cache_.OwnerConfigMaps().size() == 1 && server_.open_watches() == 4; }));
  server_.ForgetRequests();
  EXPECT_TRUE(cache_.CompareWithServer({}).ok());
  EXPECT_EQ(cache_.OwnerConfigMaps().size(), 1);
  for (const auto& request : server_.requests()) EXPECT_NE(request.verb, "watch") << request.target;
}

TEST_F(ClusterCacheTest, InconsistentCacheIsRelisted) {
  // A proxy on the way gives the list of a server that lags behind for the newest one: the object is never delivered.
  const std::string text = CreateOwnerConfigMap("a");
  ASSERT_TRUE(Eventually([&] { return cache_.OwnerConfigMaps().size() == 1; }));
  const std::string version = json::parse(text)["metadata"]["resourceVersion"];
  json list = {{"apiVersion", "v1"}, {"kind", "ConfigMapList"}, {"metadata", {{"resourceVersion", version}}}, {"items", json::array()}};
  server_.AddFault({.verb = "list", .target = "configmaps", .code = 200, .body = list.dump()});
  server_.AddFault({.verb = "watch", .target = "configmaps", .code = 410, .body = R"({"kind":"Status","code":410,"reason":"Expired"})"});
  server_.BreakWatches();
  ASSERT_TRUE(Eventually([&] { return cache_.OwnerConfigMaps().empty(); }));
  ASSERT_TRUE(Eventually([&] { return server_.open_watches() == 4; }));
  EXPECT_TRUE(cache_.CompareWithServer({}).ok());
  EXPECT_TRUE(Eventually([&] { return cache_.OwnerConfigMaps().size() == 1; }));
}

}  // namespace
}  // namespace fusionllm::op::cache
