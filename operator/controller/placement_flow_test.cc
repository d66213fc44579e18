// Jobs on clusters whose nodes are known: what there is room for decides who goes where, and how many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "lib/plan/plan.h"
#include "lib/wire/plan_json.h"
#include "operator/controller/testing/two_clusters_fixture.h"
#include "operator/placement/hint_cache.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using testing::DirectMember;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobObject;
using testing::JobReconcilerTest;
using ::testing::Not;

// One node of so many processors, and room for a broker if it is the hub's.
std::shared_ptr<const cache::ClusterCapacity> Cpus(int64_t cpus, bool hub = false) {
  auto capacity = std::make_shared<cache::ClusterCapacity>();
  cache::NodeCapacity& node = capacity->nodes.emplace_back();
  node.name = "n0";
  node.ready = true;
  node.allocatable = {{"cpu", cpus * 1000 + (hub ? 50 : 0)}, {"memory", int64_t{1} << 30}, {"pods", 110}};
  return capacity;
}

// Executors that ask for a processor each.
json ElasticJob(int replicas, int min, bool checkpoint) {
  json job = JobObject();
  job["spec"]["executors"] = {
      {"replicas", replicas},
      {"min", min},
      {"template", {{"spec", {{"containers", {{{"name", "executor"}, {"resources", {{"requests", {{"cpu", "1"}}}}}}}}}}}}};
  if (checkpoint) job["spec"]["checkpoint"] = {{"path", "s3://models/ckpt"}};
  return job;
}

std::vector<std::string> WithoutBroker(std::vector<std::string> names) {
  std::erase_if(names, [](const std::string& name) { return name.find("broker") != std::string::npos; });
  return names;
}

class PlacementFlowTest : public JobReconcilerTest {
 protected:
  void Have(int64_t cpus) { member_->SetCapacity(Cpus(cpus, /*hub=*/true)); }
  std::vector<std::string> Executors() { return WithoutBroker(PodNames()); }
  std::string Message(const std::string& type) {
    const json job = Job();
    for (const json& condition : job["status"]["conditions"]) {
      if (condition["type"] == type) return condition["message"];
    }
    return "none";
  }
};

TEST_F(PlacementFlowTest, AJobThatFindsNoRoomSaysWhatIsShortAndIsMadeOnceThereIsSome) {
  Have(1);
  Submit(ElasticJob(2, 2, false));
  Settle();
  EXPECT_THAT(PodNames(), IsEmpty());
  EXPECT_EQ(Condition("Scheduled"), "False PlacementFailed");
  EXPECT_EQ(Message("Scheduled"),
            "1 of the 2 executors that must train find room. local: room for 1; each asks for 1 cpu; 1 node: 1 with too little cpu (most "
            "free: 0 cpu)");
  Have(2);
  Settle();
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r0", "train-local-1-r0"));
  EXPECT_EQ(Condition("Scheduled"), "True Scheduled");
}

TEST_F(PlacementFlowTest, AStatusNamesNoMoreClustersThanItMay) {
  testing::FakeApiServer elsewhere(clock_);
  const std::unique_ptr<kube::ApiClient> client = NewClient(elsewhere.NewTransport());
  for (int i = 0; i < 70; ++i) {
    auto member = std::make_shared<DirectMember>(*client, absl::StrCat("m", i));
    member->SetCapacity(Cpus(1));
    members_.remote_.push_back(std::move(member));
  }
  Have(1);
  Submit(ElasticJob(71, 1, false));
  Settle();
  EXPECT_THAT(Message("Scheduled"), HasSubstr("64 of 71 executors find room. A job has parts in 64 clusters at most"));
  clock_.Advance(lifecycle::kCapacityWait);
  (void)Reconcile();
  (void)Reconcile();
  EXPECT_EQ(Job()["status"]["clusterStatuses"].size(), 64);
  EXPECT_THAT(Message("Scheduled"), HasSubstr("begins with 64 of 71 executors as soon as its broker can be reached"));
}

TEST_F(PlacementFlowTest, SparesCountAmongTheExecutorsThatAreWanted) {
  Have(2);
  json job = ElasticJob(2, 2, true);
  job["spec"]["executors"]["spares"] = 1;
  Submit(job);
  Settle();
  EXPECT_EQ(Job()["status"]["executors"], "2/3") << "there is no room for the spare";
  Have(3);
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  Settle();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  Settle();
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r1", "train-local-1-r1", "train-local-2-r1"));
  EXPECT_EQ(Job()["status"]["executors"], "3/3");
}

TEST_F(PlacementFlowTest, WhileAJobWaitsNothingIsWrittenThoughRoomComesAndGoes) {
  Have(1);
  Submit(ElasticJob(4, 4, false));
  Settle();
  server_.ForgetRequests();
  for (const int cpus : {2, 0, 3}) {
    Have(cpus);
    EXPECT_TRUE(Reconcile().status.ok());
  }
  for (const auto& request : server_.requests()) EXPECT_THAT(request.verb, ::testing::AnyOf("get", "list")) << request.target;
  clock_.Advance(placement::Placer::kMessageRefresh);
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_THAT(Message("Scheduled"), HasSubstr("3 of the 4"));
}

TEST_F(PlacementFlowTest, AnElasticJobBeginsWithFewerAndGrowsWhenThereIsRoom) {
  Have(2);
  Submit(ElasticJob(4, 2, true));
  Settle();
  EXPECT_EQ(Condition("Scheduled"), "False InsufficientCapacity");
  EXPECT_THAT(PodNames(), IsEmpty());
  clock_.Advance(lifecycle::kCapacityWait);
  Settle();
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r0", "train-local-1-r0"));
  EXPECT_EQ(Condition("Scheduled"), "True PartiallyScheduled");
  EXPECT_EQ(Job()["status"]["executors"], "2/4");
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");

  Have(4);
  Settle();
  EXPECT_EQ(Condition("Resizing"), "True CapacityAvailable");
  clock_.Advance(absl::Seconds(299));
  Settle();
  EXPECT_EQ(Executors().size(), 2);
  clock_.Advance(absl::Seconds(1));
  Settle();
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r1", "train-local-1-r1", "train-local-2-r1", "train-local-3-r1"));
  EXPECT_EQ(Condition("Resizing"), "False Resized");
  EXPECT_EQ(Job()["status"]["restartsCountTowardsMax"], 0);
  EXPECT_THAT(events_.reasons_, Contains("Resizing"));
}

TEST_F(PlacementFlowTest, KubectlScaleTakesEffect) {
  Have(8);
  Submit(ElasticJob(2, 1, true));
  Settle();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"executors", {{"replicas", 4}}}}}});
  Settle();
  EXPECT_EQ(Executors().size(), 4);
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"executors", {{"replicas", 1}}}}}});
  Settle();
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r2"));
  EXPECT_EQ(Job()["status"]["executors"], "1/1");
  server_.ForgetRequests();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Reconcile().status.ok());
  for (const auto& request : server_.requests()) EXPECT_THAT(request.verb, ::testing::AnyOf("get", "list")) << request.target;
}

TEST_F(PlacementFlowTest, AnOperatorThatDiesWhileItResizesGoesOn) {
  for (const bool carried_out : {false, true}) {
    for (int request = 0, deaths = 0; deaths == request; ++request) {
      ASSERT_LT(request, 200);
      Have(8);
      Submit(ElasticJob(2, 1, true));
      Settle();
      Patch(manifests::kFusionJobs, "train", {{"spec", {{"executors", {{"replicas", 3}}}}}});
      const int before = Deaths();
      transport_->DieAt(request, carried_out);
      Settle();
      if (Deaths() > before) ++deaths;
      EXPECT_THAT(Executors(), ElementsAre("train-local-0-r1", "train-local-1-r1", "train-local-2-r1")) << "request " << request;
      transport_->DieAt(-1, false);
      ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
      Settle();
    }
  }
}

// Tokyo beside the hub.
class TwoPlacesTest : public testing::TwoClustersTest {
 protected:
  void Have(int64_t cpus) { member_->SetCapacity(Cpus(cpus, /*hub=*/true)); }
  std::vector<std::string> Executors() { return WithoutBroker(PodNames()); }
  std::vector<json> TokyoPods() {
    return json::parse(tokyo_client_->List(manifests::kPods, "default").value())["items"].get<std::vector<json>>();
  }
  std::vector<std::string> TokyoNames() {
    std::vector<std::string> names;
    for (const json& pod : TokyoPods()) names.push_back(pod["metadata"]["name"]);
    return names;
  }
  // Other clusters find the broker at a load balancer.
  void SubmitReachable(json job) {
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    Submit(job);
    Begin();
  }
  void Begin() {
    for (int i = 0; i < 3 && !looking_->Get(manifests::kServices, {"default", "train-broker"}).ok(); ++i) (void)Reconcile();
    SimulateCluster();
    SettleBoth();
  }
};

TEST_F(TwoPlacesTest, ExecutorsGoWhereThereIsRoom) {
  Have(1);
  tokyo_->SetCapacity(Cpus(3));
  SubmitReachable(ElasticJob(3, 3, false));
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r0"));
  EXPECT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0", "train-tokyo-1-r0"));
}

TEST_F(TwoPlacesTest, WhereTheDataIsNotItIsNotMountedAndOneFeedsTheOthers) {
  json job = ElasticJob(2, 2, false);
  job["spec"]["data"]["clusters"] = {"tokyo"};
  SubmitReachable(job);
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r0"));
  EXPECT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0"));
  const json pods = Pods();
  for (const json& pod : pods) EXPECT_THAT(pod["spec"]["volumes"].dump(), Not(HasSubstr("\"data\""))) << pod["metadata"]["name"];
  EXPECT_THAT(TokyoPods()[0]["spec"]["volumes"].dump(), HasSubstr("\"data\""));
  const json broker = json::parse(looking_->Get(manifests::kPods, {"default", "train-broker-r0"}).value());
  const std::vector<std::string> command = broker["spec"]["containers"][0]["command"];
  const auto flag = std::find(command.begin(), command.end(), "--data-device");
  ASSERT_NE(flag, command.end());
  EXPECT_EQ(*(flag + 1), "tokyo-0");
}

TEST_F(TwoPlacesTest, AJobLeavesAClusterThatItsRuleSaysToLeave) {
  json job = ElasticJob(2, 2, false);
  job["spec"]["failurePolicy"] = {{"rules", {{{"name", "spot"}, {"action", "ReplaceCluster"}, {"onReasons", {"Evicted"}}}}}};
  SubmitReachable(job);
  ASSERT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0"));
  const json status = {{"phase", "Failed"}, {"reason", "Evicted"}};
  (void)tokyo_client_->Patch(manifests::kPods, {"default", "train-tokyo-0-r0"}, kube::PatchType::kMerge, json{{"status", status}}.dump(),
                             {.subresource = "status"});
  SettleBoth();
  EXPECT_THAT(TokyoNames(), IsEmpty());
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r1", "train-local-1-r1"));
  const json clusters = Job()["status"]["clusterStatuses"];
  EXPECT_THAT(clusters.dump(), HasSubstr("was left, by rule spot"));
}

TEST_F(TwoPlacesTest, AResumedJobIsPlacedWhereThereIsRoomThen) {
  SubmitReachable(ElasticJob(2, 2, true));
  ASSERT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0"));
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  SettleBoth();
  ASSERT_EQ(Condition("Suspended"), "True Suspended");
  tokyo_->SetCapacity(Cpus(0));
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  SettleBoth();
  EXPECT_THAT(TokyoNames(), IsEmpty());
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r1", "train-local-1-r1"));
}

// The planner refuses a pin to a device that there is not, for good.
TEST_F(TwoPlacesTest, AnAttemptWithoutADeviceIsPlannedWithoutThePinsToIt) {
  const auto document = [&] {
    const std::string name = manifests::JobDocumentName({.name = "train", .ns = "default"});
    return json::parse(looking_->Get(manifests::kConfigMaps, {"default", name}).value_or("{}"))["data"].dump();
  };
  json job = ElasticJob(2, 2, true);
  job["spec"]["strategy"]["pins"] = {{{"ops", "loss"}, {"device", "local-0"}}, {{"ops", "fc.*"}, {"device", "tokyo-0"}}};
  SubmitReachable(job);
  ASSERT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0"));
  EXPECT_THAT(document(), AllOf(HasSubstr("tokyo-0"), HasSubstr("local-0")));
  EXPECT_EQ(Condition("Scheduled"), "True Scheduled");
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  SettleBoth();
  tokyo_->SetCapacity(Cpus(0));
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  SettleBoth();
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r1", "train-local-1-r1"));
  EXPECT_THAT(document(), AllOf(Not(HasSubstr("tokyo-0")), HasSubstr("local-0")));
  EXPECT_EQ(Condition("Scheduled"), "True StrategyAdapted");
  EXPECT_THAT(std::string(ConditionObject("Scheduled")["message"]), HasSubstr("pinned to tokyo-0 goes where"));
  EXPECT_EQ(std::count(events_.reasons_.begin(), events_.reasons_.end(), "StrategyAdapted"), 1);
}

TEST_F(TwoPlacesTest, WhoBeginsWithFewerSaysSoOnceItIsPlaced) {
  Have(1);
  tokyo_->SetCapacity(Cpus(1));
  balances_ = false;  // the broker has no address yet, and until then no placement is written down
  json job = ElasticJob(3, 2, true);
  job["spec"]["network"] = {{"mode", "LoadBalancer"}};
  Submit(job);
  (void)Reconcile();
  EXPECT_EQ(Condition("Scheduled"), "False InsufficientCapacity");
  clock_.Advance(lifecycle::kCapacityWait);
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(Reconcile().status.ok());
    SimulateCluster();
    EXPECT_EQ(Condition("Scheduled"), "False InsufficientCapacity");
    EXPECT_TRUE(looking_->Get(manifests::kServices, {"default", "train-broker"}).ok()) << "its wait for room is over";
    clock_.Advance(absl::Seconds(2));
  }
  balances_ = true;
  SimulateCluster();
  SettleBoth();
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r0"));
  EXPECT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0"));
  EXPECT_EQ(Condition("Scheduled"), "True PartiallyScheduled");
  EXPECT_EQ(std::count(events_.reasons_.begin(), events_.reasons_.end(), "InsufficientCapacity"), 1);
  EXPECT_EQ(std::count(events_.reasons_.begin(), events_.reasons_.end(), "PartiallyScheduled"), 1);
}

// With a scheduler that answers what the test says.
class AdvisedTest : public TwoPlacesTest {
 protected:
  AdvisedTest() {
    hints_ = &asking_;
    Restart();
    Have(4);
    tokyo_->SetCapacity(Cpus(4));
  }
  ~AdvisedTest() override { reconciler_.reset(); }

  static std::string PlanOn(const std::vector<std::string>& devices) {
    plan::Plan plan{.strategy = "op-fence", .predicted_step_seconds = 0.25, .graph_hash = "0123456789abcdef"};
    for (const std::string& device : devices) {
      plan.stages.push_back({.index = static_cast<int>(plan.stages.size()), .devices = {device}, .ops = {device}});
    }
    return wire::PrintPlan(plan);
  }
  // At a new job, which the scheduler is asked about.
  void Look() {
    json job = ElasticJob(2, 2, false);
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    Submit(job);
    EXPECT_EQ(Reconcile().after, absl::Seconds(1)) << "it waits, and its worker does not";
    EXPECT_THAT(PodNames(), IsEmpty());
    answered_.wait();
    Begin();
  }

  absl::StatusOr<std::string> answer_;
  std::atomic<int> asked_ = 0;
  std::string profiles_, document_;  // of the last query; once it is answered
  std::latch answered_{1};
  placement::HintCache asking_{[this](const placement::PlacementQuery& query, absl::Duration, const std::stop_token&) {
                                 ++asked_;
                                 profiles_ = query.profiles_document;
                                 document_ = query.job_document;
                                 return answer_;
                               },
                               [this](const manifests::JobIdentity&) { answered_.count_down(); }, clock_};
};

TEST_F(AdvisedTest, ExecutorsGoWhereTheSchedulerExpectsTheFastestSteps) {
  answer_ = PlanOn({"tokyo-0", "tokyo-1"});
  Look();
  EXPECT_THAT(Executors(), IsEmpty());
  EXPECT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0", "train-tokyo-1-r0"));
  EXPECT_EQ(Condition("PlacementHint"), "True PlanFound");
  EXPECT_EQ(asked_, 1);
}

TEST_F(AdvisedTest, WhatWasSaidOfAnEarlierAttemptIsTakenBack) {
  answer_ = PlanOn({"tokyo-0", "tokyo-1"});
  Look();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  SettleBoth();
  ASSERT_EQ(Condition("Suspended"), "True Suspended");
  EXPECT_EQ(Condition("PlacementHint"), "True PlanFound");
  tokyo_->SetCapacity(Cpus(0));
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  SettleBoth();
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r1", "train-local-1-r1"));
  EXPECT_EQ(Condition("PlacementHint"), "False NotQueried");
}

TEST_F(AdvisedTest, ALaterAttemptIsAskedAboutWithAStrategyThatFitsIt) {
  answer_ = PlanOn({"tokyo-0", "tokyo-1"});
  tokyo_->SetCapacity(Cpus(0));
  json job = ElasticJob(3, 2, true);
  job["spec"]["strategy"]["stages"] = 3;
  SubmitReachable(job);
  ASSERT_EQ(asked_, 0) << "there is no choice";
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  SettleBoth();
  tokyo_->SetCapacity(Cpus(4));
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}, {"executors", {{"replicas", 2}}}}}});
  (void)Reconcile();
  answered_.wait();
  EXPECT_THAT(document_, HasSubstr("stages: 2"));
  SettleBoth();
  EXPECT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r1", "train-tokyo-1-r1"));
}

TEST_F(AdvisedTest, WithoutAnAnswerRoomAndPreferenceDecide) {
  answer_ = absl::UnavailableError("connection refused");
  Look();
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r0"));
  EXPECT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0"));
  EXPECT_EQ(Condition("PlacementHint"), "False SchedulerUnavailable");
  EXPECT_EQ(asked_, 1);
}

TEST_F(AdvisedTest, SendsMeasuredLinksToTheScheduler) {
  placement::MeasuredLinks ways;
  job::FusionJob routed;
  routed.spec.network.mode = job::NetworkMode::kDirect;
  ways.Learn(R"({"links":[{"src":"local-0","dst":"tokyo-0","bandwidth_bytes_per_second":7654321,"rtt_seconds":0.2}]})", routed,
             {"local", "tokyo"}, members_.Clusters(), clock_.Now());
  measured_ = &ways;
  Restart();
  answer_ = PlanOn({"local-0", "tokyo-0"});
  Look();
  EXPECT_THAT(profiles_, HasSubstr("7654321"));
  reconciler_.reset();
}

// Its API server has been out of reach for too long.
TEST_F(TwoPlacesTest, ARunThatHasLostAClusterMovesIfMoreWouldTrainElsewhere) {
  SubmitReachable(ElasticJob(2, 1, true));
  ASSERT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0"));
  progress_.newest_ = lifecycle::Progress{.step = 10, .steps = 100, .executors = 2};
  tokyo_->SetReachable(false);
  tokyo_->SetLost(true);
  for (int i = 0; i < 4; ++i) (void)Reconcile();
  EXPECT_EQ(Job()["status"]["restarts"], 0) << "the broker is in touch with both";
  progress_.newest_->executors = 1;
  for (int i = 0; i < 8; ++i) {
    (void)Reconcile();
    SimulateCluster();
  }
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r1", "train-local-1-r1"));
  EXPECT_EQ(Job()["status"]["restartsCountTowardsMax"], 0);
}

// The next attempt's strategy is fitted to what there is: it needs no three.
TEST_F(TwoPlacesTest, ARunWithStagesMovesToFewerThanThatAfterALoss) {
  Have(1);
  tokyo_->SetCapacity(Cpus(2));
  json job = ElasticJob(3, 1, true);
  job["spec"]["strategy"] = {{"stages", 3}};
  SubmitReachable(job);
  ASSERT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0", "train-tokyo-1-r0"));
  progress_.newest_ = lifecycle::Progress{.step = 10, .steps = 100, .executors = 1};
  tokyo_->SetReachable(false);
  tokyo_->SetLost(true);
  Have(2);
  for (int i = 0; i < 4; ++i) (void)Reconcile();
  clock_.Advance(absl::Seconds(31));  // for room for all
  for (int i = 0; i < 8; ++i) {
    (void)Reconcile();
    SimulateCluster();
  }
  EXPECT_THAT(Executors(), ElementsAre("train-local-0-r1", "train-local-1-r1"));
  EXPECT_EQ(Job()["status"]["restartsCountTowardsMax"], 0);
}

TEST_F(TwoPlacesTest, WithoutRoomElsewhereALossIsLivedWith) {
  Have(1);
  SubmitReachable(ElasticJob(2, 1, true));
  ASSERT_THAT(TokyoNames(), ElementsAre("train-tokyo-0-r0"));
  progress_.newest_ = lifecycle::Progress{.step = 10, .steps = 100, .executors = 1};
  tokyo_->SetReachable(false);
  tokyo_->SetLost(true);
  for (int i = 0; i < 4; ++i) (void)Reconcile();
  EXPECT_EQ(Job()["status"]["restarts"], 0);
  EXPECT_EQ(Condition("Degraded"), "True ClusterLost");
}

}  // namespace
}  // namespace fusionllm::op::controller
