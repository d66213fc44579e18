#include "operator/kueue/queue_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "operator/kueue/kueue_workload.h"

namespace fusionllm::op::kueue {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class QueueStatusTest : public ::testing::Test {
 protected:
  QueueStatusTest() {
    job_.spec.executors.replicas = 2;
    queued_ = {.identity = {.name = "train", .ns = "team", .uid = "u1"}, .job = &job_, .queue = "night"};
    workload_ = WorkloadObject(queued_.identity, job_, "night", {}, {.broker = "b", .scheduler = "s", .executor = "e"}, {}).value();
  }
  void Set(const char* type, const char* status, const char* reason = "R", const char* message = "") {
    json& conditions = workload_["status"]["conditions"];
    if (conditions.is_null()) conditions = json::array();
    for (size_t i = conditions.size(); i-- > 0;) {
      if (conditions[i]["type"] == type) conditions.erase(i);
    }
    conditions.push_back({{"type", type}, {"status", status}, {"reason", reason}, {"message", message}});
  }
  void Admit() {
    Set("QuotaReserved", "True");
    Set("Admitted", "True");
    workload_["status"]["admission"]["clusterQueue"] = "all";
  }
  lifecycle::QueueStatus Standing() { return QueueStatusOf(queued_, WorkloadAccess::kListed, &workload_).value(); }
  WorkloadAction Action(const WorkloadInputs& inputs) { return NextAction(queued_, inputs, &workload_); }

  job::FusionJob job_;
  QueuedJob queued_;
  json workload_;
  const WorkloadInputs waits_{.queued = true}, runs_{.queued = true, .has_pods = true};
};

TEST_F(QueueStatusTest, WithoutKueueAJobWaitsAndOneThatRunsGoesOn) {
  for (const WorkloadAccess access : {WorkloadAccess::kMissing, WorkloadAccess::kForbidden}) {
    queued_.started = false;
    lifecycle::QueueStatus standing = QueueStatusOf(queued_, access, nullptr).value();
    EXPECT_TRUE(standing.holds);
    EXPECT_EQ(standing.requeue_after, kKueueDiscoveryPeriod) << "nobody tells that it is there";
    queued_.started = true;
    standing = QueueStatusOf(queued_, access, nullptr).value();
    EXPECT_FALSE(standing.holds);
    EXPECT_FALSE(standing.admitted);
    EXPECT_THAT(standing.message, HasSubstr("what runs goes on"));
  }
  EXPECT_FALSE(QueueStatusOf(queued_, WorkloadAccess::kUnknown, nullptr).has_value());
}

TEST_F(QueueStatusTest, AJobWithoutQuotaSaysInWhichQueueItWaitsAndWhy) {
  EXPECT_EQ(Standing().message, "Queued: waiting for quota in LocalQueue night.");
  Set("QuotaReserved", "False", "Pending", "insufficient unused quota for cpu in flavor default, 2 more needed");
  const lifecycle::QueueStatus standing = Standing();
  EXPECT_TRUE(standing.holds);
  EXPECT_EQ(standing.reason, lifecycle::kQueued);
  EXPECT_EQ(standing.message,
            "Queued: waiting for quota in LocalQueue night: insufficient unused quota for cpu in flavor default, 2 more needed.");
}

TEST_F(QueueStatusTest, AJobWithQuotaWaitsForItsAdmissionChecks) {
  Set("QuotaReserved", "True");
  workload_["status"]["admission"]["clusterQueue"] = "all";
  workload_["status"]["admissionChecks"] = {{{"name", "budget"}, {"state", "Ready"}},
                                            {{"name", "nodes"}, {"state", "Pending"}, {"message", "two of four"}}};
  EXPECT_TRUE(Standing().holds);
  EXPECT_EQ(Standing().message, "Queued: ClusterQueue all has reserved quota; waiting for admission checks: nodes (two of four).");
}

TEST_F(QueueStatusTest, AnAdmittedJobGoes) {
  Admit();
  EXPECT_FALSE(Standing().holds);
  EXPECT_TRUE(Standing().admitted);
  EXPECT_EQ(Standing().message, "Admitted by ClusterQueue all.");
}

TEST_F(QueueStatusTest, AnEvictedJobIsHeldAlthoughItIsAdmittedStill) {
  Admit();
  Set("Evicted", "True", "Preempted", "to accommodate a workload of higher priority");
  EXPECT_TRUE(Standing().holds);
  EXPECT_EQ(Standing().reason, lifecycle::kEvictedByKueue);
  EXPECT_THAT(Standing().message, HasSubstr("(Preempted): to accommodate a workload of higher priority"));
  Set("Evicted", "False", "QuotaReserved");
  EXPECT_FALSE(Standing().holds);
}

TEST_F(QueueStatusTest, AJobWhoseWorkloadIsNotItsOwnOrNotAsItIsNowWaits) {
  Admit();
  job_.spec.executors.replicas = 3;
  EXPECT_TRUE(Standing().holds);
  job_.spec.executors.replicas = 2;
  queued_.queue = "day";
  EXPECT_TRUE(Standing().holds);
  queued_.queue = "night";
  EXPECT_FALSE(Standing().holds);
  queued_.identity.uid = "u2";
  EXPECT_TRUE(Standing().holds);
  queued_.identity.uid = "u1";
  Set("Finished", "True", "OutOfSync");
  EXPECT_TRUE(Standing().holds);
  workload_["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z";
  EXPECT_TRUE(Standing().holds);
  EXPECT_TRUE(QueueStatusOf(queued_, WorkloadAccess::kListed, nullptr)->holds);
}

TEST_F(QueueStatusTest, AWorkloadIsMadeOnceTheJobHasNoPods) {
  EXPECT_EQ(NextAction(queued_, waits_, nullptr), WorkloadAction::kCreate);
  EXPECT_EQ(NextAction(queued_, runs_, nullptr), WorkloadAction::kNone);
  EXPECT_EQ(NextAction(queued_, {.queued = true, .suspended = true}, nullptr), WorkloadAction::kNone);
  EXPECT_EQ(NextAction(queued_, {.queued = true, .over = true}, nullptr), WorkloadAction::kNone);
  EXPECT_EQ(NextAction(queued_, {.queued = false}, nullptr), WorkloadAction::kNone);
  EXPECT_EQ(Action(waits_), WorkloadAction::kNone);
}

TEST_F(QueueStatusTest, QuotaIsGivenBackOnceNoPodIsLeft) {
  Admit();
  Set("PodsReady", "True");
  Set("Evicted", "True", "Preempted");
  EXPECT_EQ(Action(runs_), WorkloadAction::kNone);
  EXPECT_EQ(Action(waits_), WorkloadAction::kRelease);
  Set("QuotaReserved", "False");
  EXPECT_EQ(Action(waits_), WorkloadAction::kNone) << "Kueue has the next word";
}

TEST_F(QueueStatusTest, ASuspendedJobHasNoWorkloadOnceNoPodIsLeft) {
  Admit();
  EXPECT_EQ(Action({.queued = true, .suspended = true, .has_pods = true}), WorkloadAction::kNone);
  EXPECT_EQ(Action({.queued = true, .suspended = true}), WorkloadAction::kDelete);
  EXPECT_EQ(Action({.queued = false, .has_pods = true}), WorkloadAction::kDelete) << "without the label Kueue has nothing to say";
}

TEST_F(QueueStatusTest, AWorkloadThatCountsOtherPodsIsChangedOrReplaced) {
  job_.spec.executors.replicas = 3;
  EXPECT_EQ(Action(waits_), WorkloadAction::kUpdate) << "and keeps its place in the queue";
  Admit();
  EXPECT_EQ(Action(runs_), WorkloadAction::kNone);
  EXPECT_EQ(Action(waits_), WorkloadAction::kDelete);
}

TEST_F(QueueStatusTest, AWorkloadThatSomebodyElseFinishedIsReplaced) {
  Set("Finished", "True", "OutOfSync");
  EXPECT_EQ(Action(runs_), WorkloadAction::kNone);
  EXPECT_EQ(Action(waits_), WorkloadAction::kDelete);
}

TEST_F(QueueStatusTest, FinishesWorkloadOnce) {
  Admit();
  const WorkloadInputs over{.queued = true, .over = true, .has_pods = true};
  EXPECT_EQ(Action(over), WorkloadAction::kFinish);
  Set("Finished", "True", "Succeeded");
  EXPECT_EQ(Action(over), WorkloadAction::kNone);
}

TEST_F(QueueStatusTest, ReportsReadinessChanges) {
  Admit();
  EXPECT_EQ(Action(runs_), WorkloadAction::kUpdatePodsReady) << "nothing is told yet";
  Set("PodsReady", "False");
  EXPECT_EQ(Action(runs_), WorkloadAction::kNone);
  EXPECT_EQ(Action({.queued = true, .has_pods = true, .ready = true}), WorkloadAction::kUpdatePodsReady);
}

TEST_F(QueueStatusTest, APriorityMayChangeWithQuotaAndNeitherComeNorGo) {
  queued_.priority_class = "high";
  EXPECT_EQ(Action(waits_), WorkloadAction::kUpdate);
  Admit();
  Set("PodsReady", "False");
  EXPECT_EQ(Action(runs_), WorkloadAction::kNone);
  workload_["spec"]["priorityClassRef"]["name"] = "low";
  EXPECT_EQ(Action(runs_), WorkloadAction::kUpdate);
}

TEST_F(QueueStatusTest, AWorkloadOfSomebodyElseIsLeftAlone) {
  queued_.identity.uid = "u2";
  for (const WorkloadInputs& inputs : {waits_, runs_, WorkloadInputs{.queued = true, .over = true}, WorkloadInputs{}}) {
    EXPECT_EQ(Action(inputs), WorkloadAction::kNone);
  }
}

}  // namespace
}  // namespace fusionllm::op::kueue
