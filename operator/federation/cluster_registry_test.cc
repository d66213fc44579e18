// Members that come, are connected, and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/federation/testing/cluster_registry_fixture.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;
using testing::ClusterRegistryTest;
using ::testing::IsEmpty;

TEST_F(ClusterRegistryTest, WithoutAnyClusterTheHubLendsItsDevices) {
  registry_->Start();
  ASSERT_TRUE(registry_->WaitForSync(absl::Minutes(1)));
  EXPECT_EQ(registry_->LocalName(), "local");
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(ClusterRegistryTest, AMemberIsBeingConnectedUntilItIsKnownWhatItHas) {
  constexpr char kForbidden[] = R"({"kind":"Status","code":403,"reason":"Forbidden","message":"may not list nodes"})";
  tokyo_.AddFault({.verb = "list", .target = "/configmaps", .times = 1000, .kind = kube::testing::Fault::Kind::kHang});
  lima_.AddFault({.verb = "list", .target = "/nodes", .times = 1'000'000, .code = 403, .body = kForbidden});
  for (const char* name : {"paris", "tokyo", "lima"}) {
    WriteSecret(name, absl::StrCat("to ", name));
    AddCluster(name, {{"kubeConfig", {{"location", name}}}});
  }
  AddCluster("nowhere", {{"kubeConfig", {{"location", "no such Secret"}}}});
  AddCluster("home", {{"local", json::object()}});
  registry_->Start();
  ASSERT_TRUE(registry_->WaitForSync(absl::Minutes(1)));
  const auto connecting = [&] {
    std::set<std::string> names;
    for (const auto& [name, since] : registry_->Connecting()) names.insert(name);
    return names;
  };
  EXPECT_TRUE(connecting().contains("tokyo")) << "from the start on";
  // Before it has a link, too: the others may be done sooner.
  EXPECT_TRUE(Eventually([&] { return connecting() == std::set<std::string>{"tokyo"} && Names().size() == 3; }));
  EXPECT_THAT(Names(), ::testing::UnorderedElementsAre("paris", "tokyo", "lima"));
}

TEST_F(ClusterRegistryTest, MembersAreAskedWhoTheyAreAndListedOnceTheyMayBe) {
  may_list_ = false;
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  const auto asked = [this](const std::string& verb, const std::string& what) {
    const std::vector<kube::testing::RecordedRequest> requests = paris_.requests();
    return std::any_of(requests.begin(), requests.end(),
                       [&](const auto& request) { return request.verb == verb && absl::StrContains(request.target, what); });
  };
  // The last question of all, and a look at the cluster after it.
  ASSERT_TRUE(Eventually([&] { return asked("path", "/apis") && Condition("paris", "Connected") == "False not listed yet"; }));
  EXPECT_FALSE(asked("list", ""));
  EXPECT_TRUE(registry_->Connecting().contains("paris")) << "what is there is not known yet";
  may_list_ = true;
  registry_->ResyncAll();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  EXPECT_TRUE(asked("list", "/pods"));
}

TEST_F(ClusterRegistryTest, WithClustersTheHubLendsOnlyWhereOneSaysSo) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Names() == std::vector<std::string>{"paris"}; }));
  EXPECT_EQ(registry_->LocalName(), std::nullopt);
  AddCluster("home", {{"local", json::object()}});
  EXPECT_TRUE(Eventually([&] { return registry_->LocalName() == "home"; }));
}

TEST_F(ClusterRegistryTest, AClusterIsConnectedAndSaysSo) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "Connected"); })) << Condition("paris", "Connected");
  EXPECT_TRUE(Holds("paris", "CredentialsValid"));
  registry_->Enqueue("paris", {"default", "train"}, /*urgent=*/true);
  EXPECT_TRUE(Eventually([&] {
    const base::MutexLock lock(mutex_);
    return looked_at_.contains("paris:default/train");
  }));
}

TEST_F(ClusterRegistryTest, AClusterWhoseClockDiffersSaysSoAndIsUsedAllTheSame) {
  const auto ahead = [](absl::Duration by) { return absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now() + by, absl::UTCTimeZone()); };
  paris_.AddFault(
      {.verb = "path", .target = "/readyz", .times = 1'000'000, .code = 200, .body = "ok", .headers = {{"Date", ahead(absl::Hours(3))}}});
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] {
    return Condition("paris", "ClockSynced") == "False its API server's clock is more than an hour ahead of the operator's";
  })) << Condition("paris", "ClockSynced");
  EXPECT_TRUE(Eventually([&] {
    const base::MutexLock lock(mutex_);
    return std::count(events_.begin(), events_.end(),
                      "paris ! Skewed: its API server's clock is more than an hour ahead of the operator's") == 1;
  }));
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
}

TEST_F(ClusterRegistryTest, RecreatedClusterInheritsNothing) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  const std::string first = json::parse(*hub_->Get(manifests::kFusionClusters, {"", "paris"}))["metadata"]["uid"];
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected") && paris_.open_watches() == 4; }));
  // A watch that is only being opened would not be broken below, and what was written and is not seen yet would be waited for.
  ASSERT_TRUE(Eventually([&] {
    const int written = statuses_written_;
    return hub_server_.open_watches() == 2 && registry_->Reconcile("paris", {}).after == ClusterRegistry::kResyncPeriod &&
           statuses_written_ == written;
  }));
  hub_server_.ForgetRequests();
  // What this operator has yet to learn: the cache stays behind.
  hub_server_.AddFault({.verb = "watch", .target = "fusionclusters", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  hub_server_.AddFault({.verb = "list", .target = "fusionclusters", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  hub_server_.BreakWatches();
  ASSERT_TRUE(hub_->Delete(manifests::kFusionClusters, {"", "paris"}).ok());
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  ASSERT_NE(json::parse(*hub_->Get(manifests::kFusionClusters, {"", "paris"}))["metadata"]["uid"], first);
  {
    const base::MutexLock lock(mutex_);
    conflicts_["paris"] = "something to tell of";
  }
  const auto tried = [this] {
    const std::vector<kube::testing::RecordedRequest> requests = hub_server_.requests();
    return std::any_of(requests.begin(), requests.end(), [](const auto& request) { return request.verb == "apply"; });
  };
  ASSERT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return tried();
  }));
  EXPECT_EQ(Condition("paris", "Connected"), "none");
  EXPECT_FALSE(json::parse(*hub_->Get(manifests::kFusionClusters, {"", "paris"})).contains("/status/clusterUID"_json_pointer));
}

TEST_F(ClusterRegistryTest, ItTellsOfEveryClusterWhetherItIsConnected) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  AddCluster("tokyo", {{"kubeConfig", {{"location", "missing"}}}});
  AddCluster("home", {{"local", json::object()}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] {
    std::map<std::string, cache::ConnectionState> now = registry_->Connections();
    return now.size() == 3 && now["home"].connected && now["paris"].connected && !now["tokyo"].connected;
  }));
  // From the status: another operator tells the same.
  EXPECT_TRUE(Eventually([&] { return registry_->Connections()["tokyo"].disconnected_for > absl::ZeroDuration(); }));
  EXPECT_EQ(registry_->Connections()["paris"].disconnected_for, absl::ZeroDuration());
  ASSERT_TRUE(hub_->Delete(manifests::kFusionClusters, {"", "tokyo"}).ok());
  EXPECT_TRUE(Eventually([&] { return !registry_->Connections().contains("tokyo"); }));
}

TEST_F(ClusterRegistryTest, OtherLimitsMakeAnotherConnection) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  const json patch = {{"spec", {{"maxConcurrentRequests", 3}}}};
  ASSERT_TRUE(hub_->Patch(manifests::kFusionClusters, {"", "paris"}, kube::PatchType::kMerge, patch.dump()).ok());
  EXPECT_TRUE(Eventually([&] {
    const base::MutexLock lock(mutex_);
    return limits_ == std::vector<int64_t>{32, 3};
  }));
}

TEST_F(ClusterRegistryTest, EmitsClusterEventsOnce) {
  const auto events = [&] {
    const base::MutexLock lock(mutex_);
    return events_;
  };
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  Make(absl::Minutes(10));
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  EXPECT_TRUE(Eventually([&] { return events() == std::vector<std::string>{"paris Connected: Its API server is watched."}; }));
  WriteSecret("s", "something else");
  EXPECT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return events().size() == 2;
  }));
  EXPECT_EQ(events().back(), "paris ! KubeconfigRefused: TokenFileNotAllowed: a token file of ours");
  const json object = json::parse(hub_->Get(manifests::kFusionClusters, {"", "paris"}).value());
  EXPECT_EQ(object["status"]["observedGeneration"], object["metadata"]["generation"]);
  EXPECT_EQ(object["status"]["conditions"][0]["observedGeneration"], object["metadata"]["generation"]);
}

// Between its lists and its watches it is not connected yet, which is no news.
TEST_F(ClusterRegistryTest, UnwatchedClusterIsNotReportedAway) {
  paris_.AddFault({.verb = "watch", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  Make(absl::Minutes(10));
  registry_->Start();
  const auto lists = [&] {
    const auto requests = paris_.requests();
    return std::count_if(requests.begin(), requests.end(), [](const auto& request) { return request.verb == "list"; });
  };
  ASSERT_TRUE(Eventually([&] { return lists() >= 4; }));
  for (int i = 0; i < 50; ++i) {
    registry_->Reconcile("paris", {});
    clock_.WaitFor(absl::Milliseconds(1), {});
  }
  ASSERT_EQ(registry_->Remote().size(), 1);
  EXPECT_FALSE(registry_->Remote()[0]->listed());
  EXPECT_EQ(Condition("paris", "Connected"), "none");
  const base::MutexLock lock(mutex_);
  EXPECT_TRUE(events_.empty()) << events_.front();
}

TEST_F(ClusterRegistryTest, AStandbyConnectsAndSaysNothing) {
  may_write_status_ = false;
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return paris_.open_watches() == 4; }));
  registry_->Reconcile("paris", {});
  EXPECT_EQ(Condition("paris", "Connected"), "none");
  may_write_status_ = true;
  registry_->ResyncAll();
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
}

TEST_F(ClusterRegistryTest, AClusterThatIsRemovedIsLeft) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  // Reported at least once: a status may come after the watches.
  ASSERT_TRUE(Eventually([&] { return paris_.open_watches() == 4 && statuses_written_ > 0; }));
  ASSERT_TRUE(hub_->Delete(manifests::kFusionClusters, {"", "paris"}).ok());
  EXPECT_TRUE(Eventually([&] { return Names().empty() && paris_.open_watches() == 0; }));
  EXPECT_TRUE(Eventually([&] { return paris_left_ == 1; }));
  EXPECT_EQ(others_left_, 0);
}

TEST_F(ClusterRegistryTest, AClusterTellsWhatItHasButNotAllTheTime) {
  const std::unique_ptr<kube::ApiClient> paris = Client(paris_);
  const auto add_node = [&](const std::string& name) {
    const json node = {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", name}}}};
    ASSERT_TRUE(paris->Create(manifests::kNodes, "", node.dump()).ok());
    const json status = {{"allocatable", {{"cpu", "4"}, {"memory", "8Gi"}, {"pods", "110"}}},
                         {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}};
    ASSERT_TRUE(
        paris->Patch(manifests::kNodes, {"", name}, kube::PatchType::kMerge, json{{"status", status}}.dump(), {.subresource = "status"})
            .ok());
  };
  const auto status = [&] {
    const auto answer = hub_->Get(manifests::kFusionClusters, {"", "paris"});
    return answer.ok() ? json::parse(*answer).value("status", json::object()) : json::object();
  };
  add_node("n1");
  paris_.AddFault({.target = "/version", .times = 1'000'000, .code = 200, .body = R"({"gitVersion":"v1.31.2"})"});
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  // A cluster is looked at by one worker at a time: after its first look the test is that one, until the timer's next.
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  ASSERT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return status().contains("resourceSummary");
  }));
  EXPECT_EQ(status()["resourceSummary"]["readyNodes"], 1);
  EXPECT_EQ(status()["resourceSummary"]["allocatableMillicpus"], 4000);
  EXPECT_EQ(status()["resourceSummary"]["allocatableMemory"], "8Gi");
  EXPECT_EQ(status()["kubernetesVersion"], "v1.31.2");
  add_node("n2");
  ASSERT_TRUE(Eventually([&] {
    const auto capacity = registry_->Remote().at(0)->Capacity();
    return capacity != nullptr && capacity->nodes.size() == 2 && capacity->nodes[1].ready;
  }));
  for (int i = 0; i < 3; ++i) registry_->Reconcile("paris", {});
  EXPECT_EQ(status()["resourceSummary"]["readyNodes"], 1) << "it is told once a minute";

  // A job's by its owner; its labels alone would not do.
  const json owner_config_map = {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", "a-anchor"}}}};
  const auto made = paris->Create(manifests::kConfigMaps, "default", owner_config_map.dump());
  ASSERT_TRUE(made.ok()) << made.status();
  const json owner = {{"apiVersion", "v1"},
                      {"kind", "ConfigMap"},
                      {"name", "a-anchor"},
                      {"uid", json::parse(*made)["metadata"]["uid"]},
                      {"controller", true}};
  const json labels = {{manifests::kOriginLabel, "hub"},   {manifests::kJobLabel, "a"},
                       {manifests::kJobUidLabel, "a-uid"}, {manifests::kRoleLabel, manifests::kExecutorRole},
                       {manifests::kIndexLabel, "0"},      {manifests::kClusterLabel, "paris"},
                       {manifests::kAttemptLabel, "0"}};
  const json executor = {{"apiVersion", "v1"},
                         {"kind", "Pod"},
                         {"metadata", {{"name", "a-paris-0-r0"}, {"ownerReferences", json::array({owner})}, {"labels", labels}}},
                         {"spec", {{"nodeName", "n1"}}}};
  ASSERT_TRUE(paris->Create(manifests::kPods, "default", executor.dump()).ok());
  ASSERT_TRUE(Eventually([&] {
    const auto capacity = registry_->Remote().at(0)->Capacity();
    return capacity != nullptr && capacity->executors == 1;
  }));
  ASSERT_TRUE(Eventually([&] {
    registry_->Reconcile("paris", {});  // as by its timer
    return status()["executors"] == 1;
  })) << "at the next look, whenever the summary was told";
  EXPECT_EQ(status()["resourceSummary"]["readyNodes"], 1);
}

}  // namespace
}  // namespace fusionllm::op::federation
