// What jobs that are gone have left in a cluster that two hubs share; each an API server in memory.
#include "operator/controller/orphan_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/testing/reconcile_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using testing::DirectMember;
using ::testing::ElementsAre;
using testing::FakeApiServer;
using testing::FakeClock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class OrphanCollectorTest : public ::testing::Test {
 protected:
  OrphanCollectorTest() { hub_server_.Serve(manifests::kFusionJobs); }

  std::unique_ptr<kube::ApiClient> Client(FakeApiServer& server) {
    return std::make_unique<kube::RestClient>(
        kube::ClusterAccess{.transport = server.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
        kube::RestClientOptions{.max_retries = 0}, hurrying_);
  }
  // The uid of a job that the hub has.
  std::string CreateJob(const std::string& name) {
    json job = testing::JobObject();
    job["metadata"]["name"] = name;
    return json::parse(hub_->Create(manifests::kFusionJobs, "default", job.dump()).value())["metadata"]["uid"];
  }
  void CreateOwnerConfigMap(const std::string& job, const std::string& uid, const std::string& hub = "this-hub") {
    const json owner_config_map =
        manifests::OwnerConfigMapObject({.name = job, .ns = "default", .uid = uid, .origin = "hub", .hub = hub}, "tokyo");
    ASSERT_TRUE(member_client_->Create(manifests::kConfigMaps, "default", owner_config_map.dump()).ok());
  }
  // Of the jobs that have something left.
  std::vector<std::string> Left() const {
    std::vector<std::string> jobs;
    for (const cache::OwnerConfigMapView& owner_config_map : member_.OwnerConfigMaps()) jobs.push_back(owner_config_map.job);
    return jobs;
  }
  kube::ReconcileResult Collect() { return collector_.Collect(member_, {}); }

  FakeClock clock_;
  testing::AutoAdvanceClock hurrying_;  // of the clients: a broken list is tried again after a moment
  FakeApiServer hub_server_{clock_}, member_server_{clock_};
  std::unique_ptr<kube::ApiClient> hub_ = Client(hub_server_), member_client_ = Client(member_server_);
  DirectMember member_{*member_client_, "tokyo"};
  std::set<std::string> cached_jobs_;  // uids
  metrics::Registry registry_{"test", "1"};
  OrphanMetrics metrics_{registry_};
  Tombstones tombstones_{*hub_, "default", "hub", "this-hub"};
  OrphanCollector collector_{*hub_, "this-hub", tombstones_,
                             [this](const kube::ObjectKey&, const std::string& uid) { return cached_jobs_.contains(uid); }, &metrics_};
};

TEST_F(OrphanCollectorTest, WhatHasNoJobGoesAtTheSecondLook) {
  CreateOwnerConfigMap("gone", "uid-of-gone");
  const std::string uid = CreateJob("lives");
  CreateOwnerConfigMap("lives", uid);
  EXPECT_EQ(Collect().after, OrphanCollector::kEvery);
  EXPECT_THAT(Left(), UnorderedElementsAre("gone", "lives"));
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_orphans{cluster=\"tokyo\"} 1\n"));
  Collect();
  EXPECT_THAT(Left(), ElementsAre("lives")) << "the cache knows no job, the hub's server knows this one";
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_gc_deleted_total{cluster=\"tokyo\"} 1\n"));
}

TEST_F(OrphanCollectorTest, ObjectsOfAnotherHubOfTheSameOriginAreLeftAlone) {
  CreateOwnerConfigMap("theirs", "uid-of-theirs", "another-hub");
  CreateOwnerConfigMap("unnamed", "uid-of-unnamed", "");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Collect().status.ok());
  EXPECT_THAT(Left(), UnorderedElementsAre("theirs", "unnamed"));
}

TEST_F(OrphanCollectorTest, RecreatedJobDoesNotKeepOldObjects) {
  CreateOwnerConfigMap("train", "uid-before");
  CreateJob("train");
  Collect();
  Collect();
  EXPECT_THAT(Left(), IsEmpty());
}

TEST_F(OrphanCollectorTest, WithoutAnAnswerFromTheHubNothingIsDeleted) {
  CreateOwnerConfigMap("train", "uid");
  Collect();
  hub_server_.AddFault({.verb = "list", .target = "fusionjobs", .times = 3, .kind = kube::testing::Fault::Kind::kBreakBefore});
  EXPECT_FALSE(Collect().status.ok());
  EXPECT_THAT(Left(), ElementsAre("train"));
}

TEST_F(OrphanCollectorTest, AHubThatServesNoFusionJobsIsNoProofThatTheyAreGone) {
  FakeApiServer bare(clock_);
  const auto client = Client(bare);
  Tombstones none(*client, "default", "hub", "this-hub");
  OrphanCollector collector(
      *client, "this-hub", none, [](const auto&, const auto&) { return false; }, nullptr);
  CreateOwnerConfigMap("train", "uid");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(collector.Collect(member_, {}).status.ok());
  EXPECT_THAT(Left(), ElementsAre("train"));
}

TEST_F(OrphanCollectorTest, AClusterThatIsAwayIsNotAskedAndLookedAtSoon) {
  CreateOwnerConfigMap("train", "uid");
  member_.SetReachable(false);
  member_server_.ForgetRequests();
  EXPECT_EQ(Collect().after, OrphanCollector::kUnreachablePeriod);
  EXPECT_THAT(member_server_.requests(), IsEmpty());
}

// A leader that was stopped in the middle of a round wakes up when another has set the same again.
TEST_F(OrphanCollectorTest, WhatIsOwedAgainIsNotTakenForWhatWasPaid) {
  const manifests::JobIdentity job{.name = "train", .ns = "default", .uid = "uid", .origin = "hub", .hub = "this-hub"};
  const auto owed = [&] { return tombstones_.In("tokyo", {}).value(); };
  ASSERT_TRUE(tombstones_.Set(job, "tokyo", false, clock_.Now(), {}).ok());
  const Tombstone old = owed().at(0);
  ASSERT_TRUE(tombstones_.Remove(old, {}).ok());
  EXPECT_THAT(owed(), IsEmpty());
  ASSERT_TRUE(tombstones_.Set(job, "tokyo", false, clock_.Now(), {}).ok());
  EXPECT_TRUE(tombstones_.Remove(old, {}).ok()) << "it is gone, as was wanted";
  EXPECT_EQ(owed().size(), 1u);
}

TEST_F(OrphanCollectorTest, WhatAClusterOwesIsCountedWhileItIsAwayAndNoMoreOnceItHasLeft) {
  const manifests::JobIdentity job{.name = "train", .ns = "default", .uid = "uid", .origin = "hub", .hub = "this-hub"};
  ASSERT_TRUE(tombstones_.Set(job, "tokyo", false, clock_.Now(), {}).ok());
  member_.SetReachable(false);
  Collect();
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_orphans{cluster=\"tokyo\"} 1\n"));
  hub_server_.ForgetRequests();
  for (int look = 1; look < OrphanCollector::kPassesBetweenCounts; ++look) Collect();
  EXPECT_THAT(hub_server_.requests(), IsEmpty()) << "it does not change by itself";
  Collect();
  EXPECT_THAT(hub_server_.requests(), ::testing::SizeIs(1));
  collector_.Leave("tokyo");
  EXPECT_THAT(registry_.Text(), ::testing::Not(HasSubstr("fusionllm_orphans{")));
}

TEST_F(OrphanCollectorTest, WhatIsPreservedStays) {
  CreateOwnerConfigMap("train", "uid");
  const json patch = {{"metadata", {{"annotations", {{manifests::kPreservedAnnotation, "true"}}}}}};
  ASSERT_TRUE(member_client_->Patch(manifests::kConfigMaps, {"default", "train-anchor"}, kube::PatchType::kMerge, patch.dump()).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Collect().status.ok());
  EXPECT_THAT(Left(), ElementsAre("train"));
}

TEST_F(OrphanCollectorTest, ATombstoneIsCarriedOutAtOnceAndGoesWhenNothingIsLeft) {
  const manifests::JobIdentity job{.name = "train", .ns = "default", .uid = "uid", .origin = "hub", .hub = "this-hub"};
  CreateOwnerConfigMap("train", "uid");
  ASSERT_TRUE(tombstones_.Set(job, "tokyo", false, clock_.Now(), {}).ok());
  ASSERT_TRUE(tombstones_.Set(job, "tokyo", false, clock_.Now(), {}).ok()) << "twice is once";
  ASSERT_TRUE(tombstones_.Set(job, "paris", false, clock_.Now(), {}).ok());
  EXPECT_EQ(tombstones_.In("tokyo", {}).value().size(), 1);
  Tombstones of_another_hub(*hub_, "default", "hub", "another-hub");
  EXPECT_THAT(of_another_hub.In("tokyo", {}).value(), IsEmpty());
  Collect();
  EXPECT_THAT(Left(), IsEmpty());
  Collect();
  EXPECT_THAT(tombstones_.In("tokyo", {}).value(), IsEmpty());
  EXPECT_EQ(tombstones_.In("paris", {}).value().size(), 1) << "another cluster's";
}

}  // namespace
}  // namespace fusionllm::op::controller
