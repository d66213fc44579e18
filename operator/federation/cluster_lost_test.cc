// Clusters that are away, and clusters that count as lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "operator/federation/testing/cluster_registry_fixture.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;
using testing::ClusterRegistryTest;
using testing::FakeApiServer;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

TEST_F(ClusterRegistryTest, WhileANewConnectionMayComeTheStatusIsLeftAsItIs) {
  for (const bool before : {true, false}) {
    const std::string name = before ? "paris" : "tokyo";
    Make(absl::ZeroDuration(), /*loss_timeout=*/absl::Minutes(10));
    servers_.at("to " + name)->AddFault({.verb = "list", .times = 1000, .kind = kube::testing::Fault::Kind::kHang});
    WriteSecret(name, absl::StrCat("to ", name));
    AddCluster(name, {{"kubeConfig", {{"location", name}}}});
    const json connected = {{"type", "Connected"},
                            {"status", before ? "True" : "False"},
                            {"reason", "Connected"},
                            {"message", "as it was"},
                            {"lastTransitionTime", "2020-01-01T00:00:00Z"}};
    const json patch = {{"status", {{"conditions", {connected}}}}};
    ASSERT_TRUE(hub_->Patch(manifests::kFusionClusters, {"", name}, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}).ok());
    registry_->Start();
    ASSERT_TRUE(Eventually([&] { return registry_->Remote().size() == (before ? 1 : 2); }));
    registry_->Reconcile(name, {});
    if (before) {
      EXPECT_EQ(Condition(name, "Connected"), "True as it was");
    } else {
      EXPECT_TRUE(Eventually([&] { return Condition(name, "Connected") == "False not listed yet"; })) << Condition(name, "Connected");
    }
    EXPECT_FALSE(registry_->Lost(name)) << "since long ago, but this connection has had no chance yet";
    EXPECT_EQ(loss_changes_, 0);
  }
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
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  EXPECT_LT(clock_.Monotonic() - before, MemberCheck::kCallTimeout / 2) << "no question to another was waited for";
  registry_.reset();
}

TEST_F(ClusterRegistryTest, AClusterThatIsAwayForTooLongIsLostUntilItIsBack) {
  // Since long ago, as its status says: an operator that restarts does not count from the beginning.
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  const json away = {{"type", "Connected"},
                     {"status", "False"},
                     {"reason", "NotConnected"},
                     {"message", ""},
                     {"lastTransitionTime", "2020-01-01T00:00:00Z"}};
  const json patch = {{"status", {{"conditions", {away}}}}};
  ASSERT_TRUE(
      hub_->Patch(manifests::kFusionClusters, {"", "paris"}, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}).ok());
  paris_.AddFault({.verb = "list", .times = 4, .kind = kube::testing::Fault::Kind::kBreakBefore});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return !registry_->Remote().empty() && registry_->Remote()[0]->lost(); }));
  EXPECT_TRUE(Eventually([&] { return loss_changes_ == 2; })) << "once then, and once when it is back";
  EXPECT_FALSE(registry_->Remote()[0]->lost());
  const base::MutexLock lock(mutex_);
  EXPECT_THAT(events_, IsSupersetOf({"paris ! ClusterLost: lost, as it has been away for workerLostTimeoutSeconds",
                                     "paris ClusterBack: no more counted as lost"}));
}

TEST_F(ClusterRegistryTest, StandbyTracksLossWithoutWriting) {
  may_write_status_ = false;
  WriteSecret("bad", "something else");
  AddCluster("paris", {{"kubeConfig", {{"location", "bad"}}}});
  const json away = {{"type", "Connected"},
                     {"status", "False"},
                     {"reason", "NotConnected"},
                     {"message", ""},
                     {"lastTransitionTime", "2020-01-01T00:00:00Z"}};
  const json patch = {{"status", {{"conditions", {away}}}}};
  ASSERT_TRUE(
      hub_->Patch(manifests::kFusionClusters, {"", "paris"}, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}).ok());
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return registry_->Lost("paris") && loss_changes_ == 1; }));
  const base::MutexLock lock(mutex_);
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(ClusterRegistryTest, ALostClusterWithNewCredentialsIsLostUntilItAnswers) {
  Make(absl::ZeroDuration(), /*loss_timeout=*/absl::Minutes(10));
  paris_.AddFault({.verb = "list", .times = 1000, .kind = kube::testing::Fault::Kind::kHang});
  WriteSecret("s", "something else");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}, {"workerLostTimeoutSeconds", 1}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return registry_->Lost("paris");
  }));
  WriteSecret("s", "to paris");
  ASSERT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return !registry_->Remote().empty();
  }));
  EXPECT_TRUE(registry_->Remote()[0]->lost());
  EXPECT_EQ(loss_changes_, 1);
}

TEST_F(ClusterRegistryTest, AClusterThatIsAwayForAMomentIsNotLost) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  // For how long it was connected before is no matter.
  const json connected = {
      {"type", "Connected"}, {"status", "True"}, {"reason", "Connected"}, {"message", ""}, {"lastTransitionTime", "2020-01-01T00:00:00Z"}};
  const json patch = {{"status", {{"conditions", {connected}}}}};
  ASSERT_TRUE(
      hub_->Patch(manifests::kFusionClusters, {"", "paris"}, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}).ok());
  paris_.AddFault({.verb = "list", .times = 4, .kind = kube::testing::Fault::Kind::kBreakBefore});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected").rfind("False", 0) == 0; }));
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  EXPECT_EQ(loss_changes_, 0);
}

TEST_F(ClusterRegistryTest, ReportsSilentMemberImmediately) {
  Make(absl::Seconds(10), absl::ZeroDuration(), {.period = absl::Milliseconds(20), .timeout = absl::Milliseconds(50)});
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  const absl::Duration hung_at = clock_.Monotonic();
  for (const char* target : {"/version", "/pods", "/configmaps"}) {
    paris_.AddFault({.target = target, .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  }
  ASSERT_TRUE(Eventually([&] { return Condition("paris", "Connected").rfind("False", 0) == 0; }));
  // The look before was a second ago at most.
  EXPECT_LT(clock_.Monotonic() - hung_at, ClusterRegistry::kResyncPeriod - absl::Seconds(2));
}

TEST_F(ClusterRegistryTest, AClusterWithoutAnyConnectionIsLostAfterItsTimeout) {
  WriteSecret("bad", "something else");
  AddCluster("paris", {{"kubeConfig", {{"location", "bad"}}}, {"workerLostTimeoutSeconds", 1}});
  AddCluster("tokyo", {{"kubeConfig", {{"location", "missing"}}}, {"workerLostTimeoutSeconds", 3600}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return registry_->Lost("paris");
  }));
  EXPECT_FALSE(registry_->Lost("tokyo"));
  EXPECT_FALSE(registry_->Lost("never heard of")) << "not before it could have been registered";
  const int losses_before = loss_changes_;
  WriteSecret("bad", "to paris");
  EXPECT_TRUE(Eventually([&] {
    registry_->ResyncAll();  // as by its timer
    return !registry_->Remote().empty() && registry_->Remote()[0]->reachable() && !registry_->Remote()[0]->lost();
  }));
  EXPECT_GE(loss_changes_, losses_before);
  EXPECT_FALSE(registry_->Lost("paris"));
}

TEST_F(ClusterRegistryTest, AClusterWhoseFusionClusterIsGoneIsLostAfterItsTimeout) {
  for (const char* name : {"paris", "tokyo"}) {
    WriteSecret(name, absl::StrCat("to ", name));
    AddCluster(name, {{"kubeConfig", {{"location", name}}}, {"workerLostTimeoutSeconds", name[0] == 'p' ? 1 : 3600}});
  }
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Names().size() == 2; }));
  for (const char* name : {"paris", "tokyo"}) ASSERT_TRUE(hub_->Delete(manifests::kFusionClusters, {"", name}).ok());
  ASSERT_TRUE(Eventually([&] { return Names().empty(); }));
  EXPECT_TRUE(Eventually([&] { return registry_->Lost("paris") && loss_changes_ == 1; })) << "and every job hears of it";
  EXPECT_FALSE(registry_->Lost("tokyo"));
  AddCluster("paris", {{"kubeConfig", {{"location", "paris"}}}});
  EXPECT_TRUE(Eventually([&] { return !registry_->Lost("paris"); }));
  // Gone once more, it is waited for once more, and as long as it says now.
  registry_->Reconcile("paris", {});
  ASSERT_TRUE(hub_->Delete(manifests::kFusionClusters, {"", "paris"}).ok());
  ASSERT_TRUE(Eventually([&] { return Names().empty(); }));
  registry_->Reconcile("paris", {});
  EXPECT_FALSE(registry_->Lost("paris"));
}

}  // namespace
}  // namespace fusionllm::op::federation
