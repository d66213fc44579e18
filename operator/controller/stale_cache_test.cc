// A cache that trails: what is removed or changed by it is what it shows, and not what has the name by now.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/testing/frozen_caches.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using testing::FrozenJobs;
using testing::FrozenMember;
using testing::JobObject;
using ::testing::Not;
using testing::TwoClustersTest;

class StaleCacheTest : public TwoClustersTest {
 protected:
  void Start(const json& more = json::object()) {
    json job = JobObject();
    job["spec"].update(more);
    members_.remote_.clear();
    Submit(job);
    Settle();
  }
  // The job's view as it is now, for an operator that hears of nothing more.
  void Freeze() { frozen_jobs_ = std::make_unique<FrozenJobs>(*jobs_->Find({"default", "train"})); }
  void FreezeCluster() { frozen_hub_ = std::make_unique<FrozenMember>(*member_, *client_, UidOf(Job())); }
  void ReconcileFrozen() {
    JobReconciler reconciler({.images = {"b", "s", "e", ""}}, frozen_jobs_ ? static_cast<cache::JobSource&>(*frozen_jobs_) : *jobs_,
                             frozen_hub_ ? static_cast<cache::Member&>(*frozen_hub_) : *hub_, members_, *tombstones_, progress_, events_,
                             clock_);
    for (int i = 0; i < 3; ++i) (void)reconciler.Reconcile({"", "default", "train"}, {});
  }
  static std::string UidOf(const json& object) { return object["metadata"].value("uid", ""); }
  json Get(const kube::Resource& resource, const std::string& name) const {
    return json::parse(looking_->Get(resource, {"default", name}).value_or("{\"metadata\":{}}"));
  }
  // As somebody else makes it again.
  std::string Recreate(const kube::Resource& resource, const std::string& name) {
    json object = Get(resource, name);
    (void)looking_->Delete(resource, {"default", name}, {.propagation = kube::DeletionPropagation::kOrphan, .grace_period_seconds = 0});
    for (const char* field : {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "ownerReferences"}) {
      object["metadata"].erase(field);
    }
    object.erase("status");
    EXPECT_TRUE(looking_->Create(resource, "default", object.dump()).ok()) << name;
    return UidOf(Get(resource, name));
  }

  std::unique_ptr<FrozenJobs> frozen_jobs_;
  std::unique_ptr<FrozenMember> frozen_hub_;
};

TEST_F(StaleCacheTest, AFinalizerThatSomebodyElseHasAddedStaysWhenOursComes) {
  Submit();
  Freeze();
  Patch(manifests::kFusionJobs, "train", {{"metadata", {{"finalizers", {"example.org/theirs"}}}}});
  ReconcileFrozen();
  EXPECT_THAT(Job()["metadata"]["finalizers"], Contains("example.org/theirs"));
  Settle();
  EXPECT_THAT(Job()["metadata"]["finalizers"], ::testing::UnorderedElementsAre("example.org/theirs", manifests::kFinalizer));
}

TEST_F(StaleCacheTest, AndWhenOursGoes) {
  Start();
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  for (int i = 0; i < 10 && !PodNames().empty(); ++i) {
    (void)Reconcile();
    SimulateCluster();
  }
  Freeze();
  Patch(manifests::kFusionJobs, "train", {{"metadata", {{"finalizers", {manifests::kFinalizer, "example.org/theirs"}}}}});
  ReconcileFrozen();
  EXPECT_THAT(Job()["metadata"]["finalizers"], Contains("example.org/theirs"));
}

TEST_F(StaleCacheTest, RecreatedPodIsKept) {
  Start();
  const std::string name = "train-local-1-r0";
  Patch(manifests::kPods, name, {{"status", {{"phase", "Failed"}}}}, "status");  // for which it is replaced
  FreezeCluster();
  const std::string new_uid = Recreate(manifests::kPods, name);
  ReconcileFrozen();
  EXPECT_EQ(UidOf(Get(manifests::kPods, name)), new_uid);
}

TEST_F(StaleCacheTest, RecreatedOwnerConfigMapIsKept) {
  Start();
  FreezeCluster();
  const std::string new_uid = Recreate(manifests::kConfigMaps, "train-anchor");
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  ReconcileFrozen();
  EXPECT_EQ(UidOf(Get(manifests::kConfigMaps, "train-anchor")), new_uid);
}

TEST_F(StaleCacheTest, RecreatedJobIgnoresTtlOfPredecessor) {
  Start({{"ttlSecondsAfterFinished", 60}});
  EndBroker(0, 0, "");
  Settle();
  ASSERT_EQ(Condition("Complete"), "True Completed");
  Freeze();
  const std::string before = UidOf(Job());
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  Settle();
  Submit();
  clock_.Advance(absl::Minutes(2));
  ReconcileFrozen();
  ASSERT_FALSE(Job().is_null()) << "it was deleted in place of the other";
  EXPECT_NE(UidOf(Job()), before);
  EXPECT_FALSE(Job()["metadata"].contains("deletionTimestamp"));
}

// Level by level: what was not delivered yet is delivered with what follows from it.
TEST_F(StaleCacheTest, AJobWhoseTimeWasMadeLongerStays) {
  Start({{"ttlSecondsAfterFinished", 60}});
  EndBroker(0, 0, R"({"step":100,"steps":100,"exit_code":0})");
  Settle();
  ASSERT_EQ(Condition("Complete"), "True Completed");
  Freeze();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"ttlSecondsAfterFinished", 3'600}}}});
  clock_.Advance(absl::Seconds(61));
  ReconcileFrozen();
  EXPECT_FALSE(Job()["metadata"].contains("deletionTimestamp"));
  frozen_jobs_.reset();
  clock_.Advance(absl::Hours(1));
  ReconcileFrozen();
  EXPECT_TRUE(Job().is_null());
}

TEST_F(StaleCacheTest, TheStatusSaysOfWhichSpecItIs) {
  Start();
  const auto observed = [&] { return Job()["status"]["observedGeneration"]; };
  ASSERT_EQ(observed(), Job()["metadata"]["generation"]);
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  ASSERT_NE(observed(), Job()["metadata"]["generation"]);
  Settle();
  EXPECT_EQ(observed(), Job()["metadata"]["generation"]);
  EXPECT_EQ(ConditionObject("Suspended")["observedGeneration"], Job()["metadata"]["generation"]);
}

// A member that hangs must hold up no job: the hub's part asks none, whatever becomes of the job.
TEST_F(StaleCacheTest, TheHubsPartAsksNoMember) {
  Submit2();
  SettleBoth();
  tokyo_transport_->DieAt(0, false);
  const auto look = [&] {
    for (int i = 0; i < 3; ++i) {
      (void)Reconcile();
      SimulateCluster();
    }
    return !tokyo_transport_->died();
  };
  EXPECT_TRUE(look()) << "running";
  EndBroker(0, 1, "");
  EXPECT_TRUE(look()) << "starting again";
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  EXPECT_TRUE(look()) << "suspended";
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  EXPECT_TRUE(look()) << "deleted";
  (void)ReconcileTokyo();
  EXPECT_FALSE(!tokyo_transport_->died()) << "the member's own part does";
}

}  // namespace
}  // namespace fusionllm::op::controller
