#include "operator/kueue/kueue_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::op::kueue {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kWorkloadTime = absl::FromUnixSeconds(1'800'000'000);
const manifests::JobIdentity kTrain{.name = "train", .ns = "team", .uid = "u1", .origin = "hub"};
const manifests::Images kQueuedImages{.broker = "b", .scheduler = "s", .executor = "e", .executor_cuda = "", .pull_policy = ""};

job::FusionJob JobWith(std::optional<int64_t> replicas, int64_t spares = 0) {
  job::FusionJob job;
  job.spec.executors.replicas = replicas;
  job.spec.executors.spares = spares;
  job.spec.data.volume.json = R"({"configMap":{"name":"text"}})";
  return job;
}

json Workload(const job::FusionJob& job, const QueuePriority& priority = {}, const manifests::DeviceKind& hardware = {}) {
  const absl::StatusOr<json> made = WorkloadObject(kTrain, job, "night", priority, kQueuedImages, hardware);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : json();
}

json ConditionOf(const char* type, const char* status, const char* reason, const char* message) {
  return {{"type", type}, {"status", status}, {"reason", reason}, {"message", message}, {"lastTransitionTime", "2027-01-15T07:00:00Z"}};
}

// As Kueue admits it: two executors and the broker on nodes of one flavor.
json AdmittedWorkload(const job::FusionJob& job, int64_t executors) {
  json workload = Workload(job);
  workload["metadata"]["resourceVersion"] = "7";
  workload["metadata"]["uid"] = "w1";
  workload["metadata"]["generation"] = 1;
  workload["status"] = {
      {"conditions", {ConditionOf("QuotaReserved", "True", "QuotaReserved", ""), ConditionOf("Admitted", "True", "Admitted", "")}},
      {"admission",
       {{"clusterQueue", "all"},
        {"podSetAssignments",
         {{{"name", "broker"}, {"count", 1}, {"flavors", {{"cpu", "plain"}, {"memory", "plain"}}}},
          {{"name", "executor"}, {"count", executors}, {"flavors", {{"cpu", "spot"}, {"memory", "spot"}}}}}}}}};
  return workload;
}

json ConditionIn(const json& patch, const std::string& type) {
  for (const json& condition : patch["status"]["conditions"]) {
    if (condition["type"] == type) return condition;
  }
  return nullptr;
}

TEST(Workload, CountsTheBrokerAndEachExecutorWithItsSpares) {
  job::FusionJob job = JobWith(3, /*spares=*/1);
  job.spec.executors.pod_template.json =
      R"({"spec":{"nodeSelector":{"zone":"a"},"containers":[{"name":"executor","resources":{"requests":{"cpu":"2"}}}]}})";
  const json workload = Workload(job);
  EXPECT_EQ(workload["apiVersion"], "kueue.x-k8s.io/v1beta2");
  EXPECT_EQ(workload["spec"]["queueName"], "night");
  const json& sets = workload["spec"]["podSets"];
  ASSERT_EQ(sets.size(), 2);
  EXPECT_EQ(sets[0]["name"], "broker");
  EXPECT_EQ(sets[0]["count"], 1);
  EXPECT_EQ(sets[0]["template"]["spec"]["initContainers"][0]["name"], "scheduler") << "which asks for its share beside the broker";
  EXPECT_EQ(sets[1]["name"], "executor");
  EXPECT_EQ(sets[1]["count"], 4);
  EXPECT_EQ(sets[1]["template"]["spec"]["nodeSelector"], json({{"zone", "a"}}));
  EXPECT_EQ(sets[1]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
  EXPECT_FALSE(sets[1]["template"]["spec"]["containers"][0].contains("env")) << "what is no matter to a quota is left out";
}

TEST(Workload, OfferingToBeginWithFewerSaysHowMany) {
  job::FusionJob job = JobWith(4, /*spares=*/1);
  job.spec.executors.min = 2;
  const json executors = Workload(job)["spec"]["podSets"][1];
  EXPECT_EQ(executors["count"], 5);
  const bool may_be_fewer = executors.contains("minCount");
  EXPECT_EQ(may_be_fewer, job.spec.strategy.MinExecutors() < 4);
  const json fewest = may_be_fewer ? executors["minCount"] : json(5);
  EXPECT_EQ(fewest, std::max<int64_t>(2, std::min<int64_t>(4, job.spec.strategy.MinExecutors())) + 1);
}

TEST(Workload, OfAJobThatNamesNoNumberAsksForTheFewest) {
  job::FusionJob job = JobWith(std::nullopt);
  job.spec.executors.min = 3;
  EXPECT_EQ(QueuedExecutors(job), 3);
  job.spec.executors.max = 6;
  EXPECT_EQ(QueuedExecutors(job), 6);
}

TEST(Workload, BelongsToTheVeryJobAndHasAnotherNameForEach) {
  const json workload = Workload(JobWith(2));
  EXPECT_TRUE(WorkloadBelongsTo(workload, kTrain));
  manifests::JobIdentity later = kTrain;
  later.uid = "u2";
  EXPECT_FALSE(WorkloadBelongsTo(workload, later));
  EXPECT_NE(WorkloadName(kTrain), WorkloadName(later));
  EXPECT_LE(WorkloadName({.name = std::string(63, 'x'), .uid = "u"}).size(), 63);
}

TEST(Workload, CountsTheDeviceThatPlacementAsksFor) {
  const manifests::DeviceKind gpu{.label = "gpu", .values = {"a100"}, .resource = "nvidia.com/gpu"};
  const json workload = Workload(JobWith(2), {}, gpu);
  EXPECT_EQ(workload["spec"]["podSets"][1]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "1");
  EXPECT_EQ(workload["metadata"]["annotations"], Workload(JobWith(2))["metadata"]["annotations"])
      << "which cluster has it may change while the job runs";
}

TEST(Workload, HasThePriorityOfItsClass) {
  const json workload = Workload(JobWith(2), {.class_name = "high", .value = 100});
  EXPECT_EQ(workload["spec"]["priority"], 100);
  EXPECT_EQ(WorkloadPriorityClassOf(workload), "high");
  EXPECT_EQ(WorkloadPriorityClassOf(Workload(JobWith(2))), "");
}

TEST(Workload, FitsItsJobUntilNumberTemplateOrQueueChange) {
  job::FusionJob job = JobWith(2);
  const json workload = Workload(job);
  EXPECT_TRUE(WorkloadFits(workload, PodSetsDigest(job), "night"));
  EXPECT_FALSE(WorkloadFits(workload, PodSetsDigest(job), "day"));
  job.spec.training.steps += 1;
  EXPECT_TRUE(WorkloadFits(workload, PodSetsDigest(job), "night"));
  job.spec.executors.replicas = 3;
  EXPECT_FALSE(WorkloadFits(workload, PodSetsDigest(job), "night"));
  job.spec.executors.replicas = 2;
  job.spec.broker.pod_template.json = R"({"spec":{"nodeSelector":{"zone":"a"}}})";
  EXPECT_FALSE(WorkloadFits(workload, PodSetsDigest(job), "night"));
}

TEST(Workload, AdmittedOnFlavorsSendsPodsToTheirNodes) {
  job::FusionJob job = JobWith(3, /*spares=*/1);
  job.spec.executors.min = 1;
  job.spec.executors.pod_template.json = R"({"spec":{"nodeSelector":{"zone":"a"},"tolerations":[{"key":"spot","operator":"Exists"}]}})";
  json workload = AdmittedWorkload(job, /*executors=*/3);
  workload["status"]["admissionChecks"] = {
      {{"name", "provision"},
       {"state", "Ready"},
       {"podSetUpdates", {{{"name", "executor"}, {"annotations", {{"request", "r1"}}}, {"nodeSelector", {{"pool", "p1"}}}}}}}};
  EXPECT_THAT(FlavorsOf(workload), ElementsAre("plain", "spot"));
  const std::map<std::string, json> flavors = {
      {"plain", {{"spec", json::object()}}},
      {"spot",
       {{"spec", {{"nodeLabels", {{"tier", "spot"}}}, {"tolerations", {{{"key", "spot"}, {"operator", "Exists"}}, {{"key", "tier"}}}}}}}}};
  const job::FusionJob admitted = AsAdmitted(job, workload, flavors);
  EXPECT_EQ(admitted.spec.executors.replicas, 2) << "two of three, and the spare";
  const json pods = json::parse(admitted.spec.executors.pod_template.json);
  EXPECT_EQ(pods["spec"]["nodeSelector"], json({{"zone", "a"}, {"tier", "spot"}, {"pool", "p1"}}));
  EXPECT_EQ(pods["spec"]["tolerations"], json({{{"key", "spot"}, {"operator", "Exists"}}, {{"key", "tier"}}}));
  EXPECT_EQ(pods["metadata"]["annotations"], json({{"request", "r1"}}));
  EXPECT_EQ(admitted.spec.broker, job.spec.broker) << "its flavor says nothing of nodes";
}

TEST(Workload, PreemptedGivesItsQuotaBackAndIsQueuedAgain) {
  json workload = AdmittedWorkload(JobWith(2), 2);
  workload["status"]["conditions"].push_back(ConditionOf("Evicted", "True", "Preempted", "for a job of higher priority"));
  workload["status"]["conditions"].push_back(ConditionOf("PodsReady", "True", "Started", ""));
  const json patch = ReleasedStatus(workload, kWorkloadTime);
  EXPECT_EQ(patch["metadata"]["resourceVersion"], "7");
  EXPECT_TRUE(patch["status"].contains("admission") && patch["status"]["admission"].is_null());
  EXPECT_EQ(ConditionIn(patch, "QuotaReserved")["status"], "False");
  EXPECT_EQ(ConditionIn(patch, "QuotaReserved")["reason"], "Pending");
  EXPECT_EQ(ConditionIn(patch, "QuotaReserved")["message"], "for a job of higher priority");
  EXPECT_EQ(ConditionIn(patch, "Admitted")["status"], "False");
  EXPECT_EQ(ConditionIn(patch, "PodsReady")["status"], "False");
  EXPECT_EQ(ConditionIn(patch, "Requeued")["status"], "True");
  EXPECT_EQ(ConditionIn(patch, "Evicted")["status"], "True") << "until it is admitted again, which Kueue says";
  EXPECT_EQ(patch["status"]["accumulatedPastExecutionTimeSeconds"], 3600);
}

TEST(Workload, DeactivatedGivesItsQuotaBackAndIsNotQueuedAgain) {
  json workload = AdmittedWorkload(JobWith(2), 2);
  workload["status"]["conditions"].push_back(ConditionOf("Evicted", "True", "Deactivated", "The workload is deactivated"));
  EXPECT_EQ(ConditionIn(ReleasedStatus(workload, kWorkloadTime), "Requeued")["status"], "False");
}

TEST(Workload, TellsAnEndWithoutTouchingWhatElseIsSaid) {
  const json workload = AdmittedWorkload(JobWith(2), 2);
  const json patch = FinishedStatus(workload, /*complete=*/false, "The job has failed.", kWorkloadTime);
  EXPECT_EQ(ConditionIn(patch, "Finished")["reason"], "Failed");
  EXPECT_EQ(ConditionIn(patch, "Finished")["lastTransitionTime"], "2027-01-15T08:00:00Z");
  EXPECT_EQ(ConditionIn(patch, "Admitted"), workload["status"]["conditions"][1]);
  EXPECT_FALSE(patch["status"].contains("admission"));
}

TEST(Workload, TellsPodsThatWereReadyFromThoseThatNeverWere) {
  json workload = AdmittedWorkload(JobWith(2), 2);
  EXPECT_EQ(ConditionIn(PodsReadyStatus(workload, false, kWorkloadTime), "PodsReady")["reason"], "WaitForStart");
  EXPECT_EQ(ConditionIn(PodsReadyStatus(workload, true, kWorkloadTime), "PodsReady")["reason"], "Started");
  workload["status"]["conditions"].push_back(ConditionOf("PodsReady", "True", "Started", ""));
  EXPECT_EQ(ConditionIn(PodsReadyStatus(workload, false, kWorkloadTime), "PodsReady")["reason"], "WaitForRecovery");
}

TEST(Workload, OfAnotherPrioritySaysNothingOfPodSetsWhileItHasQuota) {
  const json wanted = Workload(JobWith(2), {.class_name = "high", .value = 100});
  const json with_quota = WorkloadUpdate(AdmittedWorkload(JobWith(2), 2), wanted);
  EXPECT_FALSE(with_quota["spec"].contains("podSets") || with_quota["spec"].contains("queueName"));
  EXPECT_EQ(with_quota["spec"]["priority"], 100);
  json waiting = Workload(JobWith(3));
  EXPECT_EQ(WorkloadUpdate(waiting, wanted)["spec"]["podSets"], wanted["spec"]["podSets"]);
  EXPECT_EQ(WorkloadUpdate(waiting, wanted)["metadata"]["annotations"], wanted["metadata"]["annotations"]);
  EXPECT_TRUE(WorkloadUpdate(waiting, Workload(JobWith(2)))["spec"]["priorityClassRef"].is_null());
}

TEST(Workload, OfAWrongTemplateNamesTheField) {
  job::FusionJob job = JobWith(2);
  job.spec.executors.pod_template.json = "[1]";
  const absl::StatusOr<json> made = WorkloadObject(kTrain, job, "night", {}, kQueuedImages, {});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(made.status().message()), ::testing::HasSubstr("executors.template"));
}

TEST(Workload, WrittenBySomebodyElseIsReadWithoutHarm) {
  for (const json& odd : {json(), json::array(), json({{"status", {{"conditions", "x"}, {"admission", {{"podSetAssignments", 7}}}}}}),
                          json({{"metadata", {{"ownerReferences", {1, "x", {{"controller", true}}}}}}})}) {
    EXPECT_FALSE(WorkloadIs(odd, "Admitted"));
    EXPECT_FALSE(WorkloadBelongsTo(odd, kTrain));
    EXPECT_THAT(FlavorsOf(odd), IsEmpty());
    EXPECT_EQ(AsAdmitted(JobWith(2), odd, {}), JobWith(2));
  }
}

}  // namespace
}  // namespace fusionllm::op::kueue
