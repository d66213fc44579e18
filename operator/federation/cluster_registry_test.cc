// A hub and members on API servers in memory.
#include "operator/federation/cluster_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/testing/fake_api_server.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op {
namespace {

using kube::testing::FakeApiServer;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kNamespace[] = "default";

class ClusterRegistryTest : public ::testing::Test {
 protected:
  ClusterRegistryTest() {
    hub_server_.Serve(kFusionClusters);
    hub_ = Client(hub_server_);
    Make(absl::ZeroDuration());  // the first look comes before the connection
  }
  void Make(absl::Duration connect_patience, absl::Duration loss_patience = absl::ZeroDuration(), kube::PulseTimes pulse = {}) {
    MemberContext context{.origin = "hub", .clock = &clock_};
    context.pulse = pulse;
    context.reconcile = [this](const kube::WorkKey& key, std::stop_token) {
      const std::lock_guard lock(mutex_);
      looked_at_.insert(key.ToString());
      return kube::ReconcileResult::Done();
    };
    context.changed = [](const kube::ObjectKey&, bool) {};
    context.namespaces = [](const std::string&) { return std::set<std::string>{"team"}; };
    registry_ = std::make_unique<ClusterRegistry>(
        RegistryOptions{.ns = kNamespace,
                        .hub_uid = UidOf(hub_server_),
                        .connect = [this](const std::string& kubeconfig,
                                          const kubeapi::FusionClusterSpec& spec) -> absl::StatusOr<std::unique_ptr<kube::ApiClient>> {
                          {
                            const std::lock_guard lock(mutex_);
                            limits_.push_back(spec.max_concurrent_requests);
                          }
                          const auto server = servers_.find(kubeconfig);
                          if (server == servers_.end()) return absl::InvalidArgumentError("TokenFileNotAllowed: a token file of ours");
                          return Client(*server->second);
                        },
                        .connect_patience = connect_patience,
                        .loss_patience = loss_patience,
                        .conflict = [this](const std::string& cluster) -> std::string {
                          const std::lock_guard lock(mutex_);
                          return conflicts_.contains(cluster) ? conflicts_.at(cluster) : "";
                        },
                        .changed_for_all = [this] { ++losses_told_; },
                        .status_written = [this] { ++statuses_written_; },
                        .left = [this](const std::string& cluster) { ++(cluster == "paris" ? paris_left_ : others_left_); },
                        .may_list = [this] { return may_list_.load(); },
                        .may_tell = [this] { return may_tell_.load(); },
                        .record =
                            [this](const kube::ObjectMeta& cluster, const Note& note) {
                              const std::lock_guard lock(mutex_);
                              EXPECT_FALSE(cluster.uid.empty());
                              events_.push_back(absl::StrCat(cluster.name, note.warning ? " ! " : " ", note.reason, ": ", note.message));
                            }},
        *hub_, std::move(context));
  }

  std::unique_ptr<kube::ApiClient> Client(FakeApiServer& server) {
    return std::make_unique<kube::RestClient>(
        kube::ClusterAccess{.transport = server.NewTransport(), .credentials = kube::FixedCredentials({}), .server = "test"},
        kube::RestClientOptions{}, clock_);
  }

  std::string UidOf(FakeApiServer& server) { return ReadClusterUid(*Client(server)).value_or(""); }
  // As a proxy or another address of the same cluster.
  static void Impersonate(FakeApiServer& server, const std::string& uid) {
    const json object = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", "kube-system"}, {"uid", uid}}}};
    server.AddFault({.verb = "get", .target = "/namespaces/kube-system", .times = 1'000'000, .code = 200, .body = object.dump()});
  }
  void AddCluster(const std::string& name, const json& spec) {
    const json object = {
        {"apiVersion", "fusionllm.io/v1alpha1"}, {"kind", "FusionCluster"}, {"metadata", {{"name", name}}}, {"spec", spec}};
    ASSERT_TRUE(hub_->Create(kFusionClusters, "", object.dump()).ok());
  }
  void WriteSecret(const std::string& name, const std::string& kubeconfig) {
    const json secret = {{"apiVersion", "v1"},
                         {"kind", "Secret"},
                         {"metadata", {{"name", name}, {"namespace", kNamespace}}},
                         {"data", {{"kubeconfig", absl::Base64Escape(kubeconfig)}}}};
    ASSERT_TRUE(hub_->Apply(kSecrets, {kNamespace, name}, secret.dump(), {.field_manager = "test"}).ok());
  }

  // Threads of informers and queues carry things along: a test waits for what must come, at most a minute.
  bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 60'000; ++i) {
      if (holds()) return true;
      clock_.WaitFor(absl::Milliseconds(1), {});
    }
    return false;
  }
  std::string Condition(const std::string& cluster, const std::string& type) {
    const auto answer = hub_->Get(kFusionClusters, {"", cluster});
    const json object = answer.ok() ? json::parse(*answer) : json();
    const json conditions = object.value(json::json_pointer("/status/conditions"), json::array());
    for (const json& condition : conditions) {
      if (condition["type"] == type)
        return absl::StrCat(condition["status"].get<std::string>(), " ", condition["message"].get<std::string>());
    }
    return "none";
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& member : registry_->Remote()) names.push_back(member->name());
    return names;
  }

  kube::Clock& clock_ = kube::RealClock();
  FakeApiServer hub_server_{clock_}, paris_{clock_}, tokyo_{clock_}, lima_{clock_};
  std::map<std::string, FakeApiServer*> servers_ = {{"to paris", &paris_}, {"to tokyo", &tokyo_}, {"to lima", &lima_}};
  std::unique_ptr<kube::ApiClient> hub_;
  std::mutex mutex_;
  std::set<std::string> looked_at_;
  std::vector<std::string> events_;
  std::vector<int64_t> limits_;  // of the connections made
  std::map<std::string, std::string> conflicts_;
  std::atomic<int> losses_told_ = 0, statuses_written_ = 0, paris_left_ = 0, others_left_ = 0;
  std::atomic<bool> may_list_ = true, may_tell_ = true;
  std::unique_ptr<ClusterRegistry> registry_;  // last: its threads call the rest
};

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

TEST_F(ClusterRegistryTest, WhileANewConnectionMayComeTheStatusIsLeftAsItIs) {
  for (const bool before : {true, false}) {
    const std::string name = before ? "paris" : "tokyo";
    Make(absl::ZeroDuration(), /*loss_patience=*/absl::Minutes(10));
    servers_.at("to " + name)->AddFault({.verb = "list", .times = 1000, .kind = kube::testing::Fault::Kind::kHang});
    WriteSecret(name, absl::StrCat("to ", name));
    AddCluster(name, {{"kubeConfig", {{"location", name}}}});
    const json connected = {{"type", "Connected"},
                            {"status", before ? "True" : "False"},
                            {"reason", "Connected"},
                            {"message", "as it was"},
                            {"lastTransitionTime", "2020-01-01T00:00:00Z"}};
    const json patch = {{"status", {{"conditions", {connected}}}}};
    ASSERT_TRUE(hub_->Patch(kFusionClusters, {"", name}, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}).ok());
    registry_->Start();
    ASSERT_TRUE(Eventually([&] { return registry_->Remote().size() == (before ? 1 : 2); }));
    registry_->Reconcile(name, {});
    if (before) {
      EXPECT_EQ(Condition(name, "Connected"), "True as it was");
    } else {
      EXPECT_TRUE(Eventually([&] { return Condition(name, "Connected") == "False not listed yet"; })) << Condition(name, "Connected");
    }
  }
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
  registry_->TouchAll();
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
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
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; })) << Condition("paris", "Connected");
  EXPECT_EQ(Condition("paris", "CredentialsValid"), "True ");
  registry_->Poke("paris", {"default", "train"});
  EXPECT_TRUE(Eventually([&] {
    const std::lock_guard lock(mutex_);
    return looked_at_.contains("paris:default/train");
  }));
}

TEST_F(ClusterRegistryTest, WhatIsWrongWithCredentialsIsSaid) {
  AddCluster("paris", {{"kubeConfig", {{"location", "missing"}}}});
  WriteSecret("bad", "something else");
  AddCluster("tokyo", {{"kubeConfig", {{"location", "bad"}}}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "CredentialsValid").find("missing") != std::string::npos; }));
  EXPECT_TRUE(Eventually([&] { return Condition("tokyo", "CredentialsValid") == "False TokenFileNotAllowed: a token file of ours"; }));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(ClusterRegistryTest, CredentialsThatTheMemberRefusesAreSaidAndHealed) {
  constexpr char kRefusal[] = R"({"kind":"Status","code":401,"reason":"Unauthorized","message":"the token is expired"})";
  constexpr char kForbidden[] = R"({"kind":"Status","code":403,"reason":"Forbidden","message":"may not list configmaps"})";
  paris_.AddFault({.target = "/pods", .times = 1000, .code = 401, .body = kRefusal});
  tokyo_.AddFault({.verb = "list", .target = "/configmaps", .times = 1000, .code = 403, .body = kForbidden});
  for (FakeApiServer* server : {&paris_, &tokyo_, &lima_}) Impersonate(*server, "one and the same");
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  const auto says = [&](const char* type, const char* text) {
    registry_->Reconcile("paris", {});  // as by its timer
    const std::string condition = Condition("paris", type);
    return condition.starts_with("False") && condition.find(text) != std::string::npos;
  };
  EXPECT_TRUE(Eventually([&] { return says("CredentialsValid", "the token is expired"); })) << Condition("paris", "CredentialsValid");
  EXPECT_TRUE(Eventually([&] { return says("Connected", "the token is expired"); }));
  WriteSecret("s", "to tokyo");
  EXPECT_TRUE(Eventually([&] { return says("CredentialsValid", "may not list configmaps"); })) << Condition("paris", "CredentialsValid");
  WriteSecret("s", "to lima");
  EXPECT_TRUE(Eventually([&] {
    registry_->Reconcile("paris", {});
    return Condition("paris", "CredentialsValid") == "True " && Condition("paris", "Connected") == "True ";
  }));
}

TEST_F(ClusterRegistryTest, ItTellsOfEveryClusterWhetherItIsConnected) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  AddCluster("tokyo", {{"kubeConfig", {{"location", "missing"}}}});
  AddCluster("home", {{"local", json::object()}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] {
    std::map<std::string, Presence> now = registry_->Connections();
    return now.size() == 3 && now["home"].connected && now["paris"].connected && !now["tokyo"].connected;
  }));
  // From the status: another operator tells the same.
  EXPECT_TRUE(Eventually([&] { return registry_->Connections()["tokyo"].away_for > absl::ZeroDuration(); }));
  EXPECT_EQ(registry_->Connections()["paris"].away_for, absl::ZeroDuration());
  ASSERT_TRUE(hub_->Delete(kFusionClusters, {"", "tokyo"}).ok());
  EXPECT_TRUE(Eventually([&] { return !registry_->Connections().contains("tokyo"); }));
}

TEST_F(ClusterRegistryTest, RotatedCredentialsAreTakenUp) {
  Impersonate(tokyo_, UidOf(paris_));
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  // Of FusionClusters and the Secret; and the looks that come of connecting are over.
  ASSERT_TRUE(Eventually([&] { return paris_.open_watches() == 4 && hub_server_.open_watches() == 2; }));
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True " && Condition("paris", "Ready") == "True "; }));
  WriteSecret("s", "to tokyo");
  EXPECT_TRUE(Eventually([&] { return tokyo_.open_watches() == 4 && paris_.open_watches() == 0; }));
}

TEST_F(ClusterRegistryTest, AnotherClusterBehindTheSameNameIsNotUsedUntilItIsRegisteredAnew) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
  EXPECT_EQ(Condition("paris", "Conflict"), "False ");
  WriteSecret("s", "to tokyo");
  EXPECT_TRUE(Eventually([&] {
    registry_->Reconcile("paris", {});  // as by its timer
    return Condition("paris", "Conflict").starts_with("True");
  }));
  EXPECT_THAT(Condition("paris", "Conflict"), HasSubstr(UidOf(tokyo_)));
  EXPECT_THAT(Condition("paris", "Connected"), HasSubstr("another cluster"));
  EXPECT_FALSE(registry_->Remote().at(0)->reachable());
  const auto requests = tokyo_.requests();
  EXPECT_TRUE(std::none_of(requests.begin(), requests.end(), [](const auto& request) {
    return request.verb != "get" && request.verb != "path";
  })) << "nothing is listed there, let alone written";
  ASSERT_TRUE(hub_->Delete(kFusionClusters, {"", "paris"}).ok());
  ASSERT_TRUE(Eventually([&] { return Names().empty(); }));
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; })) << Condition("paris", "Connected");
}

// As when a name of the network leads elsewhere from one moment to the next: neither Secret nor connection have changed.
TEST_F(ClusterRegistryTest, AClusterThatIsReplacedUnderAConnectionIsLeft) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
  ASSERT_TRUE(Eventually([&] { return paris_.open_watches() == 4; }));
  Impersonate(paris_, "another");
  const auto link = std::static_pointer_cast<MemberLink>(registry_->Remote().at(0));
  link->ProbeSoon();
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "Conflict").starts_with("True"); }));
  EXPECT_TRUE(Eventually([&] { return paris_.open_watches() == 0; }));
  EXPECT_TRUE(Eventually([&] { return Names().size() == 1; })) << "it is asked again";
  EXPECT_FALSE(registry_->Remote().at(0)->reachable());
}

TEST_F(ClusterRegistryTest, AClusterThatIsRegisteredTwiceIsUsedOnce) {
  WriteSecret("s", "to paris");
  WriteSecret("hub", "to the hub");
  servers_["to the hub"] = &hub_server_;
  AddCluster("alias", {{"kubeConfig", {{"location", "s"}}}});
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  AddCluster("hub", {{"kubeConfig", {{"location", "hub"}}}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "Conflict") == "True it is registered already, as FusionCluster alias"; }))
      << Condition("paris", "Conflict");
  EXPECT_TRUE(Eventually([&] { return Condition("alias", "Connected") == "True "; }));
  EXPECT_TRUE(Eventually([&] { return Condition("hub", "Conflict").starts_with("True it is the hub itself"); }));
  for (const auto& member : registry_->Remote()) EXPECT_EQ(member->reachable(), member->name() == "alias") << member->name();
  ASSERT_TRUE(hub_->Delete(kFusionClusters, {"", "alias"}).ok());
  EXPECT_TRUE(Eventually([&] {
    registry_->Reconcile("paris", {});  // as by its timer
    return Condition("paris", "Connected") == "True ";
  })) << Condition("paris", "Connected");
}

TEST_F(ClusterRegistryTest, MembersThatAnswerNothingHoldUpNoOther) {
  std::map<std::string, std::unique_ptr<FakeApiServer>> hung;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    hung[name] = std::make_unique<FakeApiServer>(clock_);
    hung[name]->AddFault({.times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
    servers_[absl::StrCat("to ", name)] = hung[name].get();
    WriteSecret(name, absl::StrCat("to ", name));
    AddCluster(name, {{"kubeConfig", {{"location", name}}}});
  }
  // Of these one more than there are workers hang in each kind of question that a connected member is asked.
  for (const char* name : {"g", "h", "i", "j", "k"}) {
    hung[name] = std::make_unique<FakeApiServer>(clock_);
    hung[name]->AddFault({.verb = "get", .target = "/version", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
    servers_[absl::StrCat("to ", name)] = hung[name].get();
    WriteSecret(name, absl::StrCat("to ", name));
    AddCluster(name, {{"kubeConfig", {{"location", name}}}});
  }
  Make(absl::Seconds(1));
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Names().size() == hung.size(); }));
  WriteSecret("s", "to paris");
  const absl::Duration before = clock_.Monotonic();
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
  EXPECT_LT(clock_.Monotonic() - before, MemberProbe::kCallTimeout / 2) << "no question to another was waited for";
  registry_.reset();
}

TEST_F(ClusterRegistryTest, OtherLimitsMakeAnotherConnection) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
  const json patch = {{"spec", {{"maxConcurrentRequests", 3}}}};
  ASSERT_TRUE(hub_->Patch(kFusionClusters, {"", "paris"}, kube::PatchType::kMerge, patch.dump()).ok());
  EXPECT_TRUE(Eventually([&] {
    const std::lock_guard lock(mutex_);
    return limits_ == std::vector<int64_t>{32, 3};
  }));
}

TEST_F(ClusterRegistryTest, AClusterThatIsAwayForTooLongIsLostUntilItIsBack) {
  // Since long ago, as its status says: an operator that begins anew does not count from the beginning.
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  const json away = {{"type", "Connected"},
                     {"status", "False"},
                     {"reason", "NotConnected"},
                     {"message", ""},
                     {"lastTransitionTime", "2020-01-01T00:00:00Z"}};
  const json patch = {{"status", {{"conditions", {away}}}}};
  ASSERT_TRUE(hub_->Patch(kFusionClusters, {"", "paris"}, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}).ok());
  paris_.AddFault({.verb = "list", .times = 4, .kind = kube::testing::Fault::Kind::kBreakBefore});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return !registry_->Remote().empty() && registry_->Remote()[0]->lost(); }));
  EXPECT_TRUE(Eventually([&] { return losses_told_ == 2; })) << "once then, and once when it is back";
  EXPECT_FALSE(registry_->Remote()[0]->lost());
}

TEST_F(ClusterRegistryTest, AClusterThatIsAwayForAMomentIsNotLost) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  paris_.AddFault({.verb = "list", .times = 4, .kind = kube::testing::Fault::Kind::kBreakBefore});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected").rfind("False", 0) == 0; }));
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
  EXPECT_EQ(losses_told_, 0);
}

TEST_F(ClusterRegistryTest, ASilentMemberIsToldAtOnceAndNotAtTheNextLook) {
  Make(absl::Seconds(10), absl::ZeroDuration(), {.period = absl::Milliseconds(20), .timeout = absl::Milliseconds(50)});
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
  const absl::Duration hung_at = clock_.Monotonic();
  for (const char* target : {"/version", "/pods", "/configmaps"}) {
    paris_.AddFault({.target = target, .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  }
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected").rfind("False", 0) == 0; }));
  // The look before was a second ago at most.
  EXPECT_LT(clock_.Monotonic() - hung_at, ClusterRegistry::kLookEvery - absl::Seconds(2));
}

TEST_F(ClusterRegistryTest, WhatIsSomebodyElsesIsSaidWhileItIsInTheWay) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
  EXPECT_EQ(Condition("paris", "Conflict"), "False ");
  const auto set = [&](const std::string& what) {
    const std::lock_guard lock(mutex_);
    conflicts_["paris"] = what;
  };
  set("ConfigMap x belongs to somebody else");
  // The cache must have the status that it is to change.
  const auto comes_to_be = [&](const std::string& condition) {
    return Eventually([&] {
      (void)registry_->Reconcile("paris", {});
      return Condition("paris", "Conflict") == condition;
    });
  };
  EXPECT_TRUE(comes_to_be("True ConfigMap x belongs to somebody else"));
  set("");
  EXPECT_TRUE(comes_to_be("False "));
}

TEST_F(ClusterRegistryTest, AKubeconfigThatIsRefusedLeavesTheConnectionThatThereIs) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
  WriteSecret("s", "something else");
  EXPECT_TRUE(Eventually([&] {
    registry_->Reconcile("paris", {});  // as by its timer
    return Condition("paris", "CredentialsValid") == "False TokenFileNotAllowed: a token file of ours";
  }));
  EXPECT_EQ(Condition("paris", "Connected"), "True ");
  EXPECT_THAT(Names(), ElementsAre("paris"));
  EXPECT_TRUE(registry_->Remote().at(0)->reachable());
}

TEST_F(ClusterRegistryTest, AClusterWithoutAnyConnectionIsLostAfterItsTimeout) {
  WriteSecret("bad", "something else");
  AddCluster("paris", {{"kubeConfig", {{"location", "bad"}}}, {"workerLostTimeoutSeconds", 1}});
  AddCluster("tokyo", {{"kubeConfig", {{"location", "missing"}}}, {"workerLostTimeoutSeconds", 3600}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] {
    registry_->Reconcile("paris", {});  // as by its timer
    return registry_->Lost("paris");
  }));
  EXPECT_FALSE(registry_->Lost("tokyo"));
  EXPECT_FALSE(registry_->Lost("never heard of")) << "not before it could have been registered";
  const int told = losses_told_;
  WriteSecret("bad", "to paris");
  EXPECT_TRUE(Eventually([&] {
    registry_->Reconcile("paris", {});
    return !registry_->Remote().empty() && registry_->Remote()[0]->reachable() && !registry_->Remote()[0]->lost();
  }));
  EXPECT_GE(losses_told_, told);
  EXPECT_FALSE(registry_->Lost("paris"));
}

TEST_F(ClusterRegistryTest, AClusterWhoseFusionClusterIsGoneIsLostAfterItsTimeout) {
  for (const char* name : {"paris", "tokyo"}) {
    WriteSecret(name, absl::StrCat("to ", name));
    AddCluster(name, {{"kubeConfig", {{"location", name}}}, {"workerLostTimeoutSeconds", name[0] == 'p' ? 1 : 3600}});
  }
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Names().size() == 2; }));
  for (const char* name : {"paris", "tokyo"}) ASSERT_TRUE(hub_->Delete(kFusionClusters, {"", name}).ok());
  ASSERT_TRUE(Eventually([&] { return Names().empty(); }));
  EXPECT_TRUE(Eventually([&] { return registry_->Lost("paris") && losses_told_ == 1; })) << "and every job hears of it";
  EXPECT_FALSE(registry_->Lost("tokyo"));
  AddCluster("paris", {{"kubeConfig", {{"location", "paris"}}}});
  EXPECT_TRUE(Eventually([&] { return !registry_->Lost("paris"); }));
}

TEST_F(ClusterRegistryTest, WhatHappensToAClusterIsToldInEventsOnce) {
  const auto events = [&] {
    const std::lock_guard lock(mutex_);
    return events_;
  };
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  Make(absl::Minutes(10));
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
  EXPECT_TRUE(Eventually([&] { return events() == std::vector<std::string>{"paris Connected: Connected is True now."}; }));
  WriteSecret("s", "something else");
  EXPECT_TRUE(Eventually([&] {
    registry_->TouchAll();  // as by its timer
    return events().size() == 2;
  }));
  EXPECT_EQ(events().back(), "paris ! KubeconfigRefused: TokenFileNotAllowed: a token file of ours");
  const json object = json::parse(hub_->Get(kFusionClusters, {"", "paris"}).value());
  EXPECT_EQ(object["status"]["observedGeneration"], object["metadata"]["generation"]);
  EXPECT_EQ(object["status"]["conditions"][0]["observedGeneration"], object["metadata"]["generation"]);
}

TEST_F(ClusterRegistryTest, AStandbyConnectsAndSaysNothing) {
  may_tell_ = false;
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return paris_.open_watches() == 4; }));
  registry_->Reconcile("paris", {});
  EXPECT_EQ(Condition("paris", "Connected"), "none");
  may_tell_ = true;
  registry_->TouchAll();
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
}

TEST_F(ClusterRegistryTest, RightsThatAreMissingAreSaidThoughItIsConnected) {
  paris_.AddFault(
      {.verb = "create", .target = "selfsubjectaccessreviews", .times = 1'000'000, .code = 201, .body = R"({"status":{"allowed":false}})"});
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "CredentialsValid").starts_with("False may not create pods in namespace team"); }))
      << Condition("paris", "CredentialsValid");
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
}

TEST_F(ClusterRegistryTest, AClusterThatIsRemovedIsLeft) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return paris_.open_watches() == 4; }));
  ASSERT_TRUE(hub_->Delete(kFusionClusters, {"", "paris"}).ok());
  EXPECT_TRUE(Eventually([&] { return Names().empty() && paris_.open_watches() == 0; }));
  EXPECT_TRUE(Eventually([&] { return paris_left_ == 1; }));
  EXPECT_EQ(others_left_, 0);
  EXPECT_GT(statuses_written_, 0);
}

TEST_F(ClusterRegistryTest, AClusterTellsWhatItHasButNotAllTheTime) {
  const std::unique_ptr<kube::ApiClient> paris = Client(paris_);
  const auto add_node = [&](const std::string& name) {
    const json node = {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", name}}}};
    ASSERT_TRUE(paris->Create(kNodes, "", node.dump()).ok());
    const json status = {{"allocatable", {{"cpu", "4"}, {"memory", "8Gi"}, {"pods", "110"}}},
                         {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}};
    ASSERT_TRUE(paris->Patch(kNodes, {"", name}, kube::PatchType::kMerge, json{{"status", status}}.dump(), {.subresource = "status"}).ok());
  };
  const auto status = [&] {
    const auto answer = hub_->Get(kFusionClusters, {"", "paris"});
    return answer.ok() ? json::parse(*answer).value("status", json::object()) : json::object();
  };
  add_node("n1");
  paris_.AddFault({.target = "/version", .times = 1'000'000, .code = 200, .body = R"({"gitVersion":"v1.31.2"})"});
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  // A cluster is looked at by one worker at a time: after its first look the test is that one, until the timer's next.
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected") == "True "; }));
  ASSERT_TRUE(Eventually([&] {
    registry_->Reconcile("paris", {});  // as by its timer
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
}

}  // namespace
}  // namespace fusionllm::op
