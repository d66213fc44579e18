// A job's whole life on an API server in memory, with a kubelet that a test plays.
#include "operator/controller/job_reconciler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/testing/reconcile_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobObject;
using testing::JobReconcilerTest;
using ::testing::Not;

TEST_F(JobReconcilerTest, AnAttemptAfterOneThatWasReadyHasAllItsTimeToGetReady) {
  json job = JobObject();
  job["spec"]["pendingDeadlineSeconds"] = 60;
  Submit(job);
  Settle();
  for (const int attempt : {0, 1}) {
    clock_.Advance(absl::Minutes(2));
    EndBroker(attempt, 1, "");
    Settle();
    EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady") << attempt;
    EXPECT_EQ(Condition("Restarting"), "True BrokerFailed") << "no step was made";
  }
}

TEST_F(JobReconcilerTest, ABrokerIsAskedAtAnAddressOfIpv6Too) {
  Submit();
  Settle();
  Patch(manifests::kPods, "train-broker-r0", {{"status", {{"podIP", "2001:db8::7"}}}}, "status");
  Settle();
  EXPECT_EQ(progress_.address_, "[2001:db8::7]:9090");
}

TEST_F(JobReconcilerTest, AJobRunsToItsEnd) {
  Submit();
  Settle();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0", "train-local-0-r0", "train-local-1-r0"));
  EXPECT_EQ(Job()["status"]["state"], "Running");
  EXPECT_EQ(Job()["status"]["executors"], "2/2");
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_EQ(progress_.address_, "10.0.0.1:9090");

  // As a kubelet tells it: the containers of executors have ended, their Pods not yet, and the broker has still to report.
  const json ended = {{"name", "executor"}, {"ready", false}, {"state", {{"terminated", {{"exitCode", 0}, {"reason", "Completed"}}}}}};
  const json not_ready = {{"type", "Ready"}, {"status", "False"}, {"reason", "PodCompleted"}};
  for (const char* name : {"train-local-0-r0", "train-local-1-r0"}) {
    Patch(manifests::kPods, name,
          {{"status", {{"phase", "Running"}, {"conditions", json::array({not_ready})}, {"containerStatuses", json::array({ended})}}}},
          "status");
    Settle();
    EXPECT_THAT(events_.reasons_, ElementsAre("Scheduled", "Ready")) << name;
    EXPECT_EQ(Condition("Degraded"), "False NotDegraded") << name;
  }

  EndBroker(0, 0, R"({"step":100,"steps":100,"loss":2.25,"exit_code":0})");
  Settle();
  EXPECT_EQ(Condition("Complete"), "True Completed");
  EXPECT_EQ(Job()["status"]["trainerStatus"]["loss"], "2.2500");
  EXPECT_EQ(Job()["status"]["trainerStatus"]["progressPercentage"], 100);
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0")) << "executors that still ran are gone";
  EXPECT_THAT(events_.reasons_, ElementsAre("Scheduled", "Ready", "Completed"));
}

TEST_F(JobReconcilerTest, AtRestNothingIsWritten) {
  Submit();
  Settle();
  server_.ForgetRequests();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Reconcile().status.ok());
  for (const auto& request : server_.requests()) EXPECT_THAT(request.verb, ::testing::AnyOf("get", "list")) << request.target;
}

TEST_F(JobReconcilerTest, WritesProgressAtMostEveryTenSeconds) {
  Submit();
  Settle();
  progress_.newest_ = lifecycle::Progress{.step = 10, .steps = 100, .loss = 3.0};
  Settle();
  EXPECT_EQ(Job()["status"]["trainerStatus"]["step"], 10);
  progress_.newest_->step = 11;
  clock_.Advance(absl::Seconds(9));
  Settle();
  EXPECT_EQ(Job()["status"]["trainerStatus"]["step"], 10);
  clock_.Advance(absl::Seconds(1));
  Settle();
  EXPECT_EQ(Job()["status"]["trainerStatus"]["step"], 11);
}

TEST_F(JobReconcilerTest, DeletingAJobLeavesNothingBehind) {
  const std::vector<std::string> before = server_.objects();
  Submit();
  Settle();
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  Settle();
  EXPECT_EQ(server_.objects(), before);
}

TEST_F(JobReconcilerTest, OwnerConfigMapControlsAllObjectsOfTheJob) {
  Submit();
  Settle();
  const json owner_config_map = json::parse(looking_->Get(manifests::kConfigMaps, {"default", "train-anchor"}).value());
  const json owner = {{"apiVersion", "v1"},     {"kind", "ConfigMap"},
                      {"name", "train-anchor"}, {"uid", owner_config_map["metadata"]["uid"]},
                      {"controller", true},     {"blockOwnerDeletion", true}};
  int owned = 0;
  for (const kube::Resource* resource : {&manifests::kPods, &manifests::kSecrets, &manifests::kServices, &manifests::kConfigMaps}) {
    const json objects = json::parse(looking_->List(*resource, "default").value());
    for (const json& object : objects["items"]) {
      const std::string name = object["metadata"]["name"];
      if (name == "train-anchor" || name == "text") continue;  // itself; the job's data, which is somebody else's
      ++owned;
      EXPECT_EQ(object["metadata"]["ownerReferences"], json::array({owner})) << object["metadata"];
    }
  }
  EXPECT_EQ(owned, 3 + 3 + 1 + 1);
  EXPECT_FALSE(owner_config_map["metadata"].contains("ownerReferences")) << "a job of another cluster would be one that is gone";
}

TEST_F(JobReconcilerTest, ASuspendedJobHasNoPodsAndGoesOnWhenItIsResumed) {
  json job = JobObject();
  job["spec"]["suspend"] = true;
  Submit(job);
  Settle();
  EXPECT_THAT(PodNames(), IsEmpty());
  EXPECT_EQ(Condition("Suspended"), "True Suspended");
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  Settle();
  EXPECT_EQ(PodNames().size(), 3);
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  Settle();
  EXPECT_THAT(PodNames(), IsEmpty());
  EXPECT_EQ(Job()["status"]["state"], "Suspended");
}

// A suspended run ends with a checkpoint and its report, often within ten seconds of the status before.
TEST_F(JobReconcilerTest, ResumedRunNeverReportsEarlierStep) {
  json job = JobObject();
  job["spec"]["checkpoint"] = {{"path", "run"}, {"volume", {{"persistentVolumeClaim", {{"claimName", "runs"}}}}}};
  const json claim = {{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", {{"name", "runs"}}}};
  ASSERT_TRUE(looking_->Create(manifests::kClaims, "default", claim.dump()).ok());
  Submit(job);
  Settle();
  Patch(manifests::kPods, "train-broker-r0", {{"spec", {{"nodeName", "n"}}}});  // where a kubelet ends it, in its own time
  progress_.newest_ = lifecycle::Progress{.step = 30, .steps = 100, .loss = 3.0, .checkpoint_step = 20};
  Settle();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  EXPECT_TRUE(Reconcile().status.ok());  // the broker is asked to end
  EndBroker(0, 0, R"({"step":33,"steps":100,"loss":2.5,"checkpoint_step":33,"exit_code":0})");
  progress_.newest_.reset();
  Settle();
  EXPECT_EQ(Job()["status"]["state"], "Suspended");
  EXPECT_EQ(Job()["status"]["checkpoint"]["step"], 33);
  EXPECT_EQ(Job()["status"]["trainerStatus"]["step"], 33);
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  progress_.newest_ = lifecycle::Progress{.step = 0, .steps = 100};
  clock_.Advance(absl::Minutes(1));
  Settle();
  EXPECT_EQ(Job()["status"]["state"], "Running");
  EXPECT_EQ(Job()["status"]["trainerStatus"]["step"], 33);
  progress_.newest_->step = 34;
  Settle();
  EXPECT_EQ(Job()["status"]["trainerStatus"]["step"], 34);
}

TEST_F(JobReconcilerTest, ARunThatWasPlannedWithFewerExecutorsIsDegradedUntilItIsWhole) {
  Submit();
  Settle();
  ASSERT_EQ(Condition("Degraded"), "False NotDegraded");
  progress_.newest_ = lifecycle::Progress{.step = 30, .steps = 100, .plan_executors = 1, .wanted_executors = 2};
  Settle();
  EXPECT_EQ(Condition("Degraded"), "True PlannedWithFewer");
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  progress_.newest_->plan_executors = 2;
  Settle();
  EXPECT_EQ(Condition("Degraded"), "False NotDegraded");
}

TEST_F(JobReconcilerTest, AFailedAttemptIsFollowedByANewOne) {
  Submit();
  Settle();
  EndBroker(0, 1, R"({"error":"stage 1 on local-1: out of memory"})");
  Settle();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r1", "train-local-0-r1", "train-local-1-r1"));
  EXPECT_EQ(Job()["status"]["restarts"], 1);
  EXPECT_EQ(Condition("Degraded"), "False NotDegraded");
  EXPECT_EQ(Condition("Restarting"), "True BrokerFailed");
  EXPECT_THAT(events_.reasons_, Contains("Restarting"));
}

TEST_F(JobReconcilerTest, AnExecutorThatRestartsTheJobCountsOnce) {
  json job = JobObject();
  job["spec"]["failurePolicy"]["rules"] = {{{"name", "evicted"}, {"action", "RestartJob"}, {"onReasons", {"Evicted"}}}};
  Submit(job);
  Settle();
  Patch(manifests::kPods, "train-local-0-r0", {{"status", {{"phase", "Failed"}, {"reason", "Evicted"}}}}, "status");
  Settle();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r1", "train-local-0-r1", "train-local-1-r1"));
  EXPECT_EQ(Job()["status"]["restartsCountTowardsMax"], 1);
}

// As a hub that was away for long finds them.
TEST_F(JobReconcilerTest, AnExecutorThatGaveUpWaitingForItsBrokerIsReplacedOnce) {
  Submit();
  Settle();
  const auto uid = [this](const std::string& name) {
    const json pods = Pods();
    for (const json& pod : pods) {
      if (pod["metadata"]["name"] == name) return pod["metadata"]["uid"].get<std::string>();
    }
    return std::string("none");
  };
  clock_.Advance(absl::Hours(1));
  const std::string gave_up = uid("train-local-0-r0"), stays = uid("train-local-1-r0");
  const json ended = {{"exitCode", 0}, {"reason", "Completed"}, {"message", "BrokerLost: no contact with the broker for 3600 s"}};
  Patch(manifests::kPods, "train-local-0-r0",
        {{"status", {{"phase", "Succeeded"}, {"containerStatuses", {{{"name", "executor"}, {"state", {{"terminated", ended}}}}}}}}},
        "status");
  Settle();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0", "train-local-0-r0", "train-local-1-r0")) << "in the running attempt";
  const std::string replacement = uid("train-local-0-r0");
  EXPECT_NE(replacement, gave_up);
  EXPECT_EQ(uid("train-local-1-r0"), stays);
  EXPECT_THAT(events_.reasons_, ElementsAre("Scheduled", "Ready", "DegradedExecutorsNotReady", "Recovered")) << "its end is told once";
  Settle();
  EXPECT_EQ(uid("train-local-0-r0"), replacement);
  EXPECT_EQ(Condition("Complete"), "none");
}

TEST_F(JobReconcilerTest, AJobThatIsOverTellsWhatRan) {
  Submit();
  Settle();
  EndBroker(0, 0, R"({"step":100,"steps":100})");
  Settle();
  EXPECT_EQ(Job()["status"]["executors"], "2/2");
  EXPECT_EQ(Job()["status"]["clusters"], "1/1");
  EXPECT_EQ(Job()["status"]["readyReplicas"], 0) << "of which none is ready any more";
}

TEST_F(JobReconcilerTest, AWrongSpecIsSaidInTheJobAndNothingIsMade) {
  json job = JobObject();
  job["spec"]["training"]["stepz"] = 3;
  Submit(job);
  const kube::ReconcileResult result = Reconcile();
  EXPECT_TRUE(result.terminal);
  EXPECT_EQ(Condition("Accepted"), "False InvalidSpec");
  EXPECT_THAT(Job()["status"]["conditions"].dump(), HasSubstr("spec.training.stepz"));
  EXPECT_THAT(PodNames(), IsEmpty());
}

TEST_F(JobReconcilerTest, JobsOfAnotherManagerAreLeftAlone) {
  json job = JobObject();
  job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue";
  Submit(job);
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_FALSE(Job().contains("status"));
}

TEST_F(JobReconcilerTest, JobsThatNameThisManagerAreItsOwn) {
  json job = JobObject();
  job["spec"]["managedBy"] = "fusionllm.io/fusion-operator";
  Submit(job);
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

TEST_F(JobReconcilerTest, ASecretOfSomebodyElseIsNotOverwritten) {
  const json secret = {{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", {{"name", "train-authority"}}}, {"data", {{"x", "eA=="}}}};
  ASSERT_TRUE(looking_->Create(manifests::kSecrets, "default", secret.dump()).ok());
  Submit();
  Settle();
  EXPECT_EQ(Condition("Ready"), "False Conflict");
  EXPECT_EQ(Condition("Scheduled"), "False Conflict");
  EXPECT_THAT(ConditionObject("Scheduled")["message"],
              HasSubstr("Secret train-authority in namespace default exists already and is not owned by this job"));
  EXPECT_THAT(PodNames(), IsEmpty());
  EXPECT_EQ(json::parse(looking_->Get(manifests::kSecrets, {"default", "train-authority"}).value())["data"], secret["data"]);
}

TEST_F(JobReconcilerTest, AConfigMapOfSomebodyElseIsNotOverwritten) {
  const json theirs = {
      {"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", "train-job"}, {"namespace", "default"}}}, {"data", {{"x", "y"}}}};
  ASSERT_TRUE(looking_->Create(manifests::kConfigMaps, "default", theirs.dump()).ok());
  Submit();
  Settle();
  EXPECT_EQ(Condition("Scheduled"), "False Conflict");
  EXPECT_THAT(ConditionObject("Scheduled")["message"], HasSubstr("ConfigMap train-job in namespace default exists already"));
  EXPECT_THAT(PodNames(), IsEmpty());
  const json there = json::parse(looking_->Get(manifests::kConfigMaps, {"default", "train-job"}).value());
  EXPECT_EQ(there["data"], theirs["data"]);
  EXPECT_FALSE(there["metadata"].contains("ownerReferences")) << "or it would go with the job";
}

TEST_F(JobReconcilerTest, OnlyExecutorsOfItsClusterAreInItsSecretAndTheirKeysStay) {
  Submit();
  Settle();
  const json before = json::parse(looking_->Get(manifests::kSecrets, {"default", "train-executors"}).value())["data"];
  EXPECT_TRUE(before.contains("local-0.key") && before.contains("local-1.key"));
  EXPECT_FALSE(before.contains("ca.key"));
  Restart();
  Settle();
  EXPECT_EQ(json::parse(looking_->Get(manifests::kSecrets, {"default", "train-executors"}).value())["data"], before);
}

// The operator dies at each of its requests in turn, before or after the server has carried it out. Every time it ends the same.
TEST_F(JobReconcilerTest, WhereverItDiesTheJobEndsTheSame) {
  std::vector<std::string> first_end;
  for (const bool carried_out : {false, true}) {
    int deaths = 0;
    for (int request = 0; deaths == request; ++request) {
      ASSERT_LT(request, 200);
      transport_->DieAt(request, carried_out);
      const auto settle = [&] {
        Settle();
        if (deaths == request && Deaths() > 0) ++deaths;
      };
      Submit();
      settle();
      EndBroker(0, 0, R"({"step":100,"steps":100,"loss":2.0})");
      settle();
      EXPECT_EQ(Condition("Complete"), "True Completed") << "request " << request;
      EXPECT_EQ(Job()["status"]["restarts"], 0) << "request " << request;
      const std::vector<std::string> end = server_.objects();
      if (first_end.empty()) first_end = end;
      EXPECT_EQ(end, first_end) << "request " << request;
      ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
      settle();
      EXPECT_THAT(server_.objects(), Not(Contains(HasSubstr("train")))) << "request " << request;
      deaths_ = 0;
    }
    EXPECT_GT(deaths, 20) << "requests in the life of a job";
  }
}

}  // namespace
}  // namespace fusionllm::op::controller
