#include "lib/kubeapi/objects.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace fusionllm::kubeapi {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json JobObject() {
  return json::parse(R"({
    "apiVersion": "fusionllm.io/v1alpha1", "kind": "FusionJob",
    "metadata": {"name": "t", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 1, "labels": {"a": ""},
                 "creationTimestamp": "2026-01-31T12:00:00Z", "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]},
    "spec": {"model": {"family": "resnet", "preset": 18}, "data": {"kind": "shapes"},
             "training": {"steps": 5, "microBatchSize": "auto", "optimizer": {"learningRate": 1e-05}},
             "executors": {"replicas": 2, "template": {"spec": {"tolerations": [{"operator": "Exists"}]}}},
             "placement": {"minMemory": "2Gi"}},
    "status": {"anything": [1, 2]}})");
}

TEST(FusionJobObjectTest, IsReadAsAFileIs) {
  const absl::StatusOr<job::FusionJob> job = FusionJobFromObject(JobObject());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->metadata.name, "t");
  EXPECT_EQ(job->metadata.name_space, "team");
  EXPECT_EQ(job->metadata.labels.json, R"({"a": ""})");
  EXPECT_EQ(job->spec.model.preset, "18");
  EXPECT_EQ(job->spec.training.micro_batch_size, 0);
  EXPECT_EQ(job->spec.training.optimizer.learning_rate, 1e-5);
  EXPECT_EQ(job->spec.placement.min_memory->bytes, int64_t{2} << 30);
  EXPECT_EQ(json::parse(job->spec.executors.pod_template.json), JobObject()["spec"]["executors"]["template"]);
}

TEST(FusionJobObjectTest, AnElementOfAListNeedsNoKind) {
  json object = JobObject();
  object.erase("apiVersion");
  object.erase("kind");
  EXPECT_EQ(*FusionJobFromObject(object), *FusionJobFromObject(JobObject()));
}

TEST(FusionJobObjectTest, FindingsNameTheField) {
  json object = JobObject();
  object["spec"]["training"]["steps"] = -3;
  object["spec"]["training"]["stepz"] = 1;
  EXPECT_EQ(std::string(FusionJobFromObject(object).status().message()),
            "spec.training.steps: must be at least 0, got -3\n"
            "spec.training.stepz: unknown field; did you mean steps?");
  object = JobObject();
  object["spec"]["suspend"] = "true";
  EXPECT_EQ(std::string(FusionJobFromObject(object).status().message()), "spec.suspend: must be true or false, got \"true\"");
}

TEST(FusionJobObjectTest, WhatIsNoObjectIsAnErrorAndNeverMore) {
  for (const char* text : {"null", "[]", "3", R"("x")", "{}", R"({"metadata": 3, "spec": []})", R"({"metadata": {"name": []}})"}) {
    EXPECT_FALSE(FusionJobFromObject(json::parse(text)).ok()) << text;
    EXPECT_FALSE(FusionClusterFromObject(json::parse(text)).ok()) << text;
  }
  json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = json{{"a", std::move(deep)}};
  json object = JobObject();
  object["spec"]["executors"]["template"] = std::move(deep);
  EXPECT_THAT(std::string(FusionJobFromObject(object).status().message()), HasSubstr("levels"));
}

FusionJobStatus FullStatus() {
  const absl::Time time = absl::FromUnixSeconds(1'800'000'000);
  FusionJobStatus status;
  status.observed_generation = 3;
  status.state = "Running";
  status.conditions = {{.type = "Ready", .status = ConditionStatus::kTrue, .last_transition_time = time, .reason = "AllUp"}};
  status.start_time = time;
  status.replicas = 4;
  status.selector = "fusionllm.io/job=t";
  status.cluster_statuses = {{.name = "paris", .active = 2, .epoch = 5, .endpoint = "192.0.2.1:7000", .last_heartbeat_time = time}};
  status.plan = {.epoch = 2, .stages = 4};
  status.trainer_status = {.step = 10, .estimated_remaining_seconds = 0, .loss = "2.5", .metrics = {{"grad_norm", "1.25"}}};
  status.checkpoint = {.uri = "/checkpoints/step-000010", .step = 10};
  return status;
}

TEST(FusionJobStatusTest, IsReadBackAsItIsWritten) {
  const json written = ToJson(FullStatus());
  const absl::StatusOr<FusionJobStatus> read = FusionJobStatusFromObject({{"status", written}});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, FullStatus());
}

TEST(FusionJobStatusTest, WhatIsAbsentIsLeftOutAndCountsAreNot) {
  const json empty = ToJson(FusionJobStatus{});
  EXPECT_EQ(empty.dump(),
            R"({"attempt":0,"observedGeneration":0,"readyReplicas":0,"replicas":0,"restarts":0,"restartsCountTowardsMax":0})");
  const json full = ToJson(FullStatus());
  EXPECT_EQ(full["startTime"], "2027-01-15T08:00:00Z");
  EXPECT_EQ(full["conditions"][0]["message"], "") << "the API server asks for it";
  EXPECT_FALSE(full.contains("completionTime"));
  EXPECT_FALSE(full["checkpoint"].contains("time"));
  EXPECT_EQ(full["trainerStatus"]["estimatedRemainingSeconds"], 0);
}

TEST(FusionJobStatusTest, FieldsOfANewerOperatorAreLeftAlone) {
  json status = ToJson(FullStatus());
  status["conditions"][0]["severity"] = "low";
  status["somethingNew"] = {{"a", 1}};
  const absl::StatusOr<FusionJobStatus> read = FusionJobStatusFromObject({{"status", status}});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, FullStatus());
  EXPECT_EQ(*FusionJobStatusFromObject(json::object()), FusionJobStatus{});
}

TEST(FusionJobStatusTest, ReadsConditionsOfThePreviousRelease) {
  const auto condition = [](const char* type, const char* reason) {
    return json{{"type", type}, {"status", "True"}, {"lastTransitionTime", "2027-01-15T08:00:00Z"}, {"reason", reason}, {"message", ""}};
  };
  json status = ToJson(FullStatus());
  status["conditions"] = json::array({condition("Dispatched", "FewerDispatched"), condition("Advised", "PlanFound")});
  status["clusterStatuses"][0]["conditions"] = json::array({condition("Left", "ReplaceCluster")});
  const absl::StatusOr<FusionJobStatus> read = FusionJobStatusFromObject({{"status", status}});
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->conditions.size(), 2u);
  EXPECT_EQ(read->conditions[0].type, kScheduled);
  EXPECT_EQ(read->conditions[0].reason, "PartiallyScheduled");
  EXPECT_EQ(read->conditions[1].type, kPlacementHint);
  ASSERT_EQ(read->cluster_statuses[0].conditions.size(), 1u);
  EXPECT_EQ(read->cluster_statuses[0].conditions[0].type, kExcluded);
}

TEST(FusionJobStatusTest, AWrongTypeIsAFindingWithItsPath) {
  json status = ToJson(FullStatus());
  status["conditions"][0]["lastTransitionTime"] = "yesterday";
  status["replicas"] = "four";
  EXPECT_EQ(std::string(FusionJobStatusFromObject({{"status", status}}).status().message()),
            "status.conditions[0].lastTransitionTime: must be a time such as 2026-01-31T12:00:00Z, got \"yesterday\"\n"
            "status.replicas: must be a whole number, got \"four\"");
}

TEST(FusionClusterObjectTest, IsReadWithItsDefaultsAndWrittenBack) {
  const json object = json::parse(R"({
    "apiVersion": "fusionllm.io/v1alpha1", "kind": "FusionCluster", "metadata": {"name": "paris", "uid": "u", "labels": {"region": "eu"}},
    "spec": {"kubeConfig": {"location": "paris-kubeconfig"}, "newField": 1,
             "network": {"address": "203.0.113.10", "links": [{"to": "tokyo", "bandwidth": "20Mbit", "latency": "110ms"}]}},
    "status": {"kubernetesVersion": "v1.36.0", "clusterUID": "x", "resourceSummary": {"nodes": 3, "allocatableMemory": "64Gi"}}})");
  const absl::StatusOr<FusionCluster> cluster = FusionClusterFromObject(object);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->spec.kube_config->key, "kubeconfig");
  EXPECT_EQ(cluster->spec.worker_lost_timeout_seconds, 300);
  EXPECT_EQ(cluster->spec.network.links[0].bandwidth.bits_per_s, 20'000'000);
  EXPECT_EQ(cluster->status.cluster_uid, "x");
  EXPECT_EQ(cluster->status.resource_summary->allocatable_memory->bytes, int64_t{64} << 30);

  const json written = ToJson(*cluster);
  EXPECT_EQ(written["spec"]["kubeConfig"], json::parse(R"({"location": "paris-kubeconfig", "key": "kubeconfig"})"));
  EXPECT_EQ(written["spec"]["network"]["links"][0], object["spec"]["network"]["links"][0]);
  EXPECT_FALSE(written.contains("status"));
  FusionCluster again = *FusionClusterFromObject(written);
  again.status = cluster->status;
  EXPECT_EQ(again, *cluster);
}

TEST(FusionClusterObjectTest, TheLocalClusterIsAnEmptyMapping) {
  FusionCluster cluster;
  cluster.metadata.name = "hub";
  cluster.spec.local.emplace();
  const json written = ToJson(cluster);
  EXPECT_EQ(written["spec"]["local"], json::object());
  EXPECT_EQ(*FusionClusterFromObject(written), cluster);
}

TEST(FusionClusterObjectTest, ABadClusterIsAFindingWithItsPath) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "spec: must have exactly one of kubeConfig, clusterProfileRef and local"},
      {R"({"local": {}, "kubeConfig": {"location": "x"}})", "spec: must have exactly one of kubeConfig, clusterProfileRef and local"},
      {R"({"clusterProfileRef": {"name": "x"}, "kubeConfig": {"location": "x"}})",
       "spec: must have exactly one of kubeConfig, clusterProfileRef and local"},
      {R"({"clusterProfileRef": {"name": "x"}, "kubeConfig": {"location": "x"}, "local": {}})",
       "spec: must have exactly one of kubeConfig, clusterProfileRef and local"},
      {R"({"clusterProfileRef": {"namespace": "fleet"}})", "spec.clusterProfileRef.name: required"},
      {R"({"kubeConfig": {}})", "spec.kubeConfig.location: required"},
      {R"({"local": {}, "qps": 0})", "spec.qps: must be at least 1, got 0"},
      {R"({"local": {}, "qps": 600})", "spec.burst: must be at least spec.qps, which is 600"},
      {R"({"local": {}, "network": {"links": [{"to": "paris", "bandwidth": "1Mbit"}]}})",
       "spec.network.links: must not lead to the cluster itself"},
      {R"({"local": {}, "network": {"links": [{"to": "a", "bandwidth": "1Mbit"}, {"to": "a", "bandwidth": "1Mbit"}]}})",
       "spec.network.links: a is given twice"},
  };
  for (const auto& [spec, error] : cases) {
    const json object = {{"metadata", {{"name", "paris"}}}, {"spec", json::parse(spec)}};
    EXPECT_EQ(std::string(FusionClusterFromObject(object).status().message()), error);
  }
}

}  // namespace
}  // namespace fusionllm::kubeapi
