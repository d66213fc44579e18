// Clusters that are not who they were, and who asks them with what credentials.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/federation/testing/cluster_registry_fixture.h"

namespace fusionllm::op::federation {
namespace {

constexpr char kNoConflict[] = "False No other FusionCluster names this cluster, and no object of others is in the way of jobs there.";

using testing::ClusterRegistryTest;
using ::testing::ElementsAre;
using testing::FakeApiServer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
    registry_->ResyncAll();  // as by its timer
    return Holds("paris", "CredentialsValid") && Holds("paris", "Connected");
  }));
}

TEST_F(ClusterRegistryTest, CredentialsThatFailWhileWatchesGoOnAreSaidAndHealed) {
  constexpr char kSystem[] = R"({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"of-paris"}})";
  constexpr char kRefusal[] = R"({"kind":"Status","code":401,"reason":"Unauthorized","message":"the token is expired"})";
  // Asked who it is once, and again when it is admitted.
  paris_.AddFault({.verb = "get", .target = "/namespaces/kube-system", .times = 1, .code = 200, .body = kSystem});
  paris_.AddFault({.verb = "get", .target = "/namespaces/kube-system", .times = 2, .code = 401, .body = kRefusal});
  paris_.AddFault({.verb = "get", .target = "/namespaces/kube-system", .times = 1'000'000, .code = 200, .body = kSystem});
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return absl::StartsWith(Condition("paris", "CredentialsValid"), "False") && Holds("paris", "Connected"); }))
      << Condition("paris", "CredentialsValid");
  EXPECT_THAT(Condition("paris", "CredentialsValid"), HasSubstr("the token is expired"));
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "CredentialsValid"); }));
  EXPECT_EQ(paris_.open_watches(), 4);
}

TEST_F(ClusterRegistryTest, RotatedCredentialsAreTakenUp) {
  Impersonate(tokyo_, UidOf(paris_));
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  // Of FusionClusters and the Secret; and the looks that come of connecting are over.
  ASSERT_TRUE(Eventually([&] { return paris_.open_watches() == 4 && hub_server_.open_watches() == 2; }));
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected") && Holds("paris", "Ready"); }));
  WriteSecret("s", "to tokyo");
  EXPECT_TRUE(Eventually([&] { return tokyo_.open_watches() == 4 && paris_.open_watches() == 0; }));
}

TEST_F(ClusterRegistryTest, ReplacedClusterNeedsNewRegistration) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  EXPECT_EQ(Condition("paris", "Conflict"), kNoConflict);
  WriteSecret("s", "to tokyo");
  EXPECT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return Condition("paris", "Conflict").starts_with("True");
  }));
  EXPECT_THAT(Condition("paris", "Conflict"), HasSubstr(UidOf(tokyo_)));
  EXPECT_THAT(Condition("paris", "Connected"), HasSubstr("another cluster"));
  EXPECT_FALSE(registry_->Remote().at(0)->reachable());
  const auto requests = tokyo_.requests();
  EXPECT_TRUE(std::none_of(requests.begin(), requests.end(), [](const auto& request) {
    return request.verb != "get" && request.verb != "path";
  })) << "nothing is listed there, let alone written";
  ASSERT_TRUE(hub_->Delete(manifests::kFusionClusters, {"", "paris"}).ok());
  ASSERT_TRUE(Eventually([&] { return Names().empty(); }));
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "Connected"); })) << Condition("paris", "Connected");
}

// As when a name of the network leads elsewhere from one moment to the next: neither Secret nor connection have changed.
TEST_F(ClusterRegistryTest, AClusterThatIsReplacedUnderAConnectionIsLeft) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  ASSERT_TRUE(Eventually([&] { return paris_.open_watches() == 4; }));
  Impersonate(paris_, "another");
  const auto connection = std::static_pointer_cast<MemberConnection>(registry_->Remote().at(0));
  connection->CheckSoon();
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "Conflict").starts_with("True"); }));
  EXPECT_TRUE(Condition("paris", "Conflict").starts_with("True behind its address there is another cluster, with UID another"))
      << Condition("paris", "Conflict");
  EXPECT_TRUE(Eventually([&] { return paris_.open_watches() == 0; }));
  EXPECT_TRUE(Eventually([&] { return Names().size() == 1; })) << "it is asked again";
  EXPECT_FALSE(registry_->Remote().at(0)->reachable());
}

TEST_F(ClusterRegistryTest, AConflictStaysWhileTheClusterDoesNotAnswer) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  WriteSecret("s", "to tokyo");
  ASSERT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return Condition("paris", "Conflict").starts_with("True");
  }));
  lima_.AddFault({.times = 1'000'000, .code = 503, .body = R"({"kind":"Status","code":503,"message":"gone fishing"})"});
  WriteSecret("s", "to lima");
  EXPECT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return Condition("paris", "Connected").find("gone fishing") != std::string::npos;
  })) << Condition("paris", "Connected");
  EXPECT_THAT(Condition("paris", "Conflict"), HasSubstr("True behind its address there is another cluster"));
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
  EXPECT_TRUE(Eventually([&] { return Holds("alias", "Connected"); }));
  EXPECT_TRUE(Eventually([&] { return Condition("hub", "Conflict").starts_with("True it is the hub itself"); }));
  for (const auto& member : registry_->Remote()) EXPECT_EQ(member->reachable(), member->name() == "alias") << member->name();
  ASSERT_TRUE(hub_->Delete(manifests::kFusionClusters, {"", "alias"}).ok());
  EXPECT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return Holds("paris", "Connected");
  })) << Condition("paris", "Connected");
}

TEST_F(ClusterRegistryTest, WhatIsSomebodyElsesIsSaidWhileItIsInTheWay) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  EXPECT_EQ(Condition("paris", "Conflict"), kNoConflict);
  const auto set = [&](const std::string& what) {
    const base::MutexLock lock(mutex_);
    conflicts_["paris"] = what;
  };
  set("ConfigMap x exists already and is not owned by this job");
  // The cache must have the status that it is to change.
  const auto comes_to_be = [&](const std::string& condition) {
    return Eventually([&] {
      registry_->ResyncAll();  // as by its timer
      return Condition("paris", "Conflict") == condition;
    });
  };
  EXPECT_TRUE(comes_to_be("True ConfigMap x exists already and is not owned by this job"));
  set("");
  EXPECT_TRUE(comes_to_be(kNoConflict));
}

TEST_F(ClusterRegistryTest, AKubeconfigThatIsRefusedLeavesTheConnectionThatThereIs) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  WriteSecret("s", "something else");
  EXPECT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return Condition("paris", "CredentialsValid") == "False TokenFileNotAllowed: a token file of ours";
  }));
  EXPECT_TRUE(Holds("paris", "Connected"));
  EXPECT_THAT(Names(), ElementsAre("paris"));
  EXPECT_TRUE(registry_->Remote().at(0)->reachable());
}

TEST_F(ClusterRegistryTest, RightsThatAreMissingAreSaidThoughItIsConnected) {
  paris_.AddFault(
      {.verb = "create", .target = "selfsubjectaccessreviews", .times = 1'000'000, .code = 201, .body = R"({"status":{"allowed":false}})"});
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return Condition("paris", "CredentialsValid").starts_with("False may not create pods in namespace team"); }))
      << Condition("paris", "CredentialsValid");
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
}

}  // namespace
}  // namespace fusionllm::op::federation
