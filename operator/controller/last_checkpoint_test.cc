// A job's status tells of the last checkpoint of its run, however that ended.
#include <gtest/gtest.h>

#include "operator/controller/testing/reconcile_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using testing::JobObject;
using testing::JobReconcilerTest;

// What every run with checkpoints ends with: its last step, reported already, and then the checkpoint of it.
class LastCheckpointTest : public JobReconcilerTest {
 protected:
  void TrainTo33(int max_restarts = 3) {
    json job = JobObject();
    job["spec"]["failurePolicy"] = {{"maxRestarts", max_restarts}};
    job["spec"]["checkpoint"] = {{"path", "s3://models/run"}};
    job["spec"]["cleanPodPolicy"] = "None";
    Submit(job);
    Settle();
    Patch(manifests::kPods, "train-broker-r0", {{"spec", {{"nodeName", "n"}}}});
    progress_.newest_ = At33(20);
    Settle();
    EXPECT_EQ(ReportedSteps(), "33 20");
  }
  static lifecycle::Progress At33(int64_t checkpoint) { return {.step = 33, .steps = 100, .loss = 2.5, .checkpoint_step = checkpoint}; }
  static std::string Report(int exit_code) {
    return absl::StrCat(R"({"step":33,"steps":100,"loss":2.5,"checkpoint_step":33,"exit_code":)", exit_code, "}");
  }
  void Suspend(bool suspend) { Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", suspend}}}}); }
  // Steps and checkpoint of the status.
  std::string ReportedSteps() {
    const json status = Job()["status"];
    return absl::StrCat(status["trainerStatus"]["step"].get<int64_t>(), " ", status["checkpoint"]["step"].get<int64_t>());
  }
};

TEST_F(LastCheckpointTest, ReportedWithoutOtherChanges) {
  TrainTo33();
  EndBroker(0, 0, Report(0));
  Settle();
  EXPECT_EQ(Condition("Complete"), "True Completed");
  EXPECT_EQ(ReportedSteps(), "33 33");
  EXPECT_FALSE(progress_.newest_.has_value()) << "its address may be another's soon: nobody asks there any more";
}

// Drained between its end and the first look at it.
TEST_F(LastCheckpointTest, ABrokerThatWasDoneAndWentBeforeAnybodyLookedHasDoneTheJob) {
  TrainTo33();
  ASSERT_TRUE(looking_->Delete(manifests::kPods, {"default", "train-broker-r0"}, {.grace_period_seconds = 0}).ok());
  lifecycle::Progress last = At33(33);
  last.exit_code = 0;
  member_->left_ = cache::BrokerReport{.attempt = 0, .progress = last};
  Settle();
  EXPECT_EQ(Condition("Complete"), "True Completed");
  EXPECT_EQ(Job()["status"]["restarts"], 0);
  EXPECT_EQ(ReportedSteps(), "33 33");
}

TEST_F(LastCheckpointTest, ADrainedBrokerThatWentUnseenCostsNoCountedRestart) {
  TrainTo33();
  ASSERT_TRUE(looking_->Delete(manifests::kPods, {"default", "train-broker-r0"}, {.grace_period_seconds = 0}).ok());
  lifecycle::Progress last = At33(33);
  last.exit_code = 130;
  member_->left_ = cache::BrokerReport{.attempt = 0, .progress = last, .disruption = "EvictionByEvictionAPI"};
  Settle();
  const json status = Job()["status"];
  EXPECT_EQ(status["restarts"], 1);
  EXPECT_EQ(status.value("restartsCountTowardsMax", 0), 0);
  EXPECT_EQ(ReportedSteps(), "33 33");
}

TEST_F(LastCheckpointTest, ReportedForSuspendedRun) {
  TrainTo33();
  Suspend(true);
  EXPECT_TRUE(Reconcile().status.ok());
  EndBroker(0, 4, Report(4));
  Settle();
  EXPECT_EQ(Job()["status"]["state"], "Suspended");
  EXPECT_EQ(ReportedSteps(), "33 33");
}

TEST_F(LastCheckpointTest, ReportedForFailedRun) {
  TrainTo33(/*max_restarts=*/0);
  EndBroker(0, 1, R"({"step":33,"steps":100,"loss":2.5,"checkpoint_step":33,"error":"gone","exit_code":1})");
  Settle();
  EXPECT_EQ(Condition("Failed"), "True BackoffLimitExceeded");
  EXPECT_EQ(ReportedSteps(), "33 33");
  EXPECT_FALSE(progress_.newest_.has_value());
}

TEST_F(LastCheckpointTest, ReportedForRunWithRejectedSpec) {
  TrainTo33();
  EndBroker(0, 2, R"({"step":33,"steps":100,"loss":2.5,"checkpoint_step":33,"error":"gone","exit_code":2})");
  Settle();
  EXPECT_EQ(Condition("Failed"), "none");
  EXPECT_EQ(Condition("Accepted"), "False InvalidInput");
  EXPECT_EQ(ReportedSteps(), "33 33");
  EXPECT_FALSE(progress_.newest_.has_value());
}

TEST_F(LastCheckpointTest, ReportedForRestartedRun) {
  TrainTo33();
  EndBroker(0, 1, R"({"step":33,"steps":100,"loss":2.5,"checkpoint_step":33,"error":"lost its disk","exit_code":1})");
  Settle();
  EXPECT_EQ(Condition("Restarting"), "True BrokerFailed");
  EXPECT_EQ(ReportedSteps(), "33 33");
}

TEST_F(LastCheckpointTest, ReportedAtMostPerProgressWrite) {
  TrainTo33();
  progress_.newest_ = At33(33);
  clock_.Advance(absl::Seconds(9));
  Settle();
  EXPECT_EQ(ReportedSteps(), "33 20");
  clock_.Advance(absl::Seconds(1));
  Settle();
  EXPECT_EQ(ReportedSteps(), "33 33");
}

// As a cache sees them whose watch was slow: at once.
TEST_F(LastCheckpointTest, ABrokerThatEndsAndGoesBetweenTwoLooksHasSaidItAllTheSame) {
  TrainTo33();
  Suspend(true);
  EXPECT_TRUE(Reconcile().status.ok());
  ASSERT_TRUE(looking_->Delete(manifests::kPods, {"default", "train-broker-r0"}, {.grace_period_seconds = 0}).ok());
  lifecycle::Progress last = At33(33);
  last.exit_code = 4;
  member_->left_ = cache::BrokerReport{.attempt = 0, .progress = last};
  Settle();
  EXPECT_EQ(Job()["status"]["state"], "Suspended");
  EXPECT_EQ(ReportedSteps(), "33 33");

  // And it is no news for those that follow.
  Suspend(false);
  Settle();
  progress_.newest_ = lifecycle::Progress{.step = 50, .steps = 100, .checkpoint_step = 40};
  clock_.Advance(absl::Minutes(1));
  Settle();
  EXPECT_EQ(ReportedSteps(), "50 40");
  ASSERT_TRUE(looking_->Delete(manifests::kPods, {"default", "train-broker-r1"}, {.grace_period_seconds = 0}).ok());
  progress_.newest_.reset();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(ReportedSteps(), "50 40") << "what the one before the one before has said is old";
}

TEST_F(LastCheckpointTest, AJobThatFailsWithoutAWordDoesNotGoBackToTheAttemptBefore) {
  TrainTo33(/*max_restarts=*/0);
  Suspend(true);
  EXPECT_TRUE(Reconcile().status.ok());
  ASSERT_TRUE(looking_->Delete(manifests::kPods, {"default", "train-broker-r0"}, {.grace_period_seconds = 0}).ok());
  member_->left_ = cache::BrokerReport{.attempt = 0, .progress = At33(33)};
  Settle();
  Suspend(false);
  Settle();
  progress_.newest_ = lifecycle::Progress{.step = 50, .steps = 100, .checkpoint_step = 40};
  clock_.Advance(absl::Minutes(1));
  Settle();
  EXPECT_EQ(ReportedSteps(), "50 40");
  ASSERT_TRUE(looking_->Delete(manifests::kPods, {"default", "train-broker-r1"}, {.grace_period_seconds = 0}).ok());
  progress_.newest_.reset();
  Settle();
  EXPECT_EQ(Condition("Failed"), "True BackoffLimitExceeded");
  EXPECT_EQ(ReportedSteps(), "50 40");
}

TEST_F(LastCheckpointTest, ARunThatIsResumedWhileItEndsHasItsLastWord) {
  TrainTo33();
  Suspend(true);
  EXPECT_TRUE(Reconcile().status.ok());
  Suspend(false);
  EXPECT_TRUE(Reconcile().status.ok());  // the next attempt is counted, and waits
  EXPECT_EQ(Job()["status"]["attempt"], 1);
  EndBroker(0, 4, Report(4));
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(ReportedSteps(), "33 33");
}

// A broker that finds a newer checkpoint than was reported before it has made a step.
TEST_F(LastCheckpointTest, ReportsInitialCheckpointBeforeFirstStep) {
  TrainTo33();
  clock_.Advance(absl::Minutes(1));
  progress_.newest_ = lifecycle::Progress{.step = 0, .steps = 100, .checkpoint_step = 30};
  Settle();
  EXPECT_EQ(ReportedSteps(), "33 30");
}

}  // namespace
}  // namespace fusionllm::op::controller
