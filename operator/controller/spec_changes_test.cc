// Every field of the spec, changed under a running job: refused by the API server, or applied and said to be, or said to wait.
#include "operator/controller/spec_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/job/describer.h"
#include "lib/job/fusion_job_fields.h"
#include "lib/kubeapi/crd.h"
#include "operator/controller/testing/reconcile_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::JobReconcilerTest;
using ::testing::Not;

using SpecChangesTest = JobReconcilerTest;

// The fields of a mapping and those below them, but for what stands in lists.
void ForEachField(const job::FieldSchema& schema, const std::string& path, const std::function<void(const std::string&)>& visit) {
  visit(path);
  if (schema.type != job::FieldType::kObject) return;
  for (const job::FieldSchema& child : schema.children) ForEachField(child, absl::StrCat(path, ".", child.name), visit);
}

const job::FieldSchema& SpecSchema() {
  static const job::FieldSchema root = job::Describer::Root<job::FusionJob>();
  for (const job::FieldSchema& field : root.children) {
    if (field.name == "spec") return field;
  }
  return root;
}

TEST(SpecChangesTableTest, EveryFieldSaysWhenAChangeTakesEffect) {
  size_t fields = 0;
  for (const job::FieldSchema& field : SpecSchema().children) {
    ForEachField(field, absl::StrCat("spec.", field.name), [&](const std::string& path) {
      ++fields;
      // Its fields differ; it has an answer for each.
      EXPECT_EQ(WhenTakesEffect(path).has_value(), path != "spec.executors") << path;
    });
  }
  EXPECT_GT(fields, 80u);
  EXPECT_FALSE(WhenTakesEffect("spec.modelled").has_value());
  EXPECT_FALSE(WhenTakesEffect("spec.executors.minimum").has_value());
  EXPECT_TRUE(WhenTakesEffect("spec.placement.clusters[0].min").has_value());
}

TEST(SpecChangesTableTest, WhatIsRefusedIsWhatTheDefinitionRefuses) {
  std::set<std::string> refused;
  for (const kubeapi::Rule& rule : kubeapi::FusionJobRules()) {
    if (rule.path == "spec" && absl::StartsWith(rule.message, "must not change")) refused.insert(absl::StrCat("spec", rule.field));
  }
  for (const job::FieldSchema& field : SpecSchema().children) {
    const std::string path = absl::StrCat("spec.", field.name);
    EXPECT_EQ(WhenTakesEffect(path) == TakesEffect::kRefused, refused.contains(path)) << path;
  }
  EXPECT_TRUE(refused.contains("spec.training"));
}

TEST_F(SpecChangesTest, EachFieldThatIsTakenSaysWhenItTakesEffect) {
  const json secret = {{"apiVersion", "v1"},
                       {"kind", "Secret"},
                       {"metadata", {{"name", "s3"}}},
                       {"data", {{"AWS_ACCESS_KEY_ID", "eA=="}, {"AWS_SECRET_ACCESS_KEY", "eA=="}}}};
  ASSERT_TRUE(looking_->Create(manifests::kSecrets, "default", secret.dump()).ok());
  Submit();
  Settle();
  ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
  const struct {
    const char* patch;
    const char* change;
    bool at_once;
  } rows[] = {
      {R"({"checkpoint": {"path": "/out"}})", "spec.checkpoint.path none -> /out", false},
      {R"({"checkpoint": {"everySteps": 7}})", "spec.checkpoint.everySteps 100 -> 7", false},
      {R"({"placement": {"spread": "Packed"}})", "spec.placement.spread Auto -> Packed", false},
      {R"({"objectStore": {"secretName": "s3"}})", "spec.objectStore.secretName none -> s3", false},
      {R"({"executors": {"min": 2}})", "spec.executors.min 1 -> 2", false},
      {R"({"executors": {"spares": 1}})", "spec.executors.spares 0 -> 1", false},
      {R"({"executors": {"threads": 2}})", "spec.executors.threads auto -> 2", false},
      {R"({"executors": {"brokerLostTimeoutSeconds": 7200}})", "spec.executors.brokerLostTimeoutSeconds 3600 -> 7200", false},
      {R"({"executors": {"template": {"spec": {"priorityClassName": "low"}}}})",
       "spec.executors.template.spec.priorityClassName none -> low", false},
      {R"({"executors": {"stabilizationSeconds": 60}})", "spec.executors.stabilizationSeconds 300 -> 60", true},
      {R"({"queueName": "night"})", "spec.queueName none -> night", true},
      {R"({"failurePolicy": {"maxRestarts": 7}})", "spec.failurePolicy.maxRestarts 3 -> 7", true},
      {R"({"activeDeadlineSeconds": 90000})", "spec.activeDeadlineSeconds none -> 90000", true},
      {R"({"pendingDeadlineSeconds": 90000})", "spec.pendingDeadlineSeconds none -> 90000", true},
      {R"({"ttlSecondsAfterFinished": 60})", "spec.ttlSecondsAfterFinished none -> 60", true},
      {R"({"cleanPodPolicy": "All"})", "spec.cleanPodPolicy Running -> All", true},
      {R"({"forceDeleteAfterSeconds": 100})", "spec.forceDeleteAfterSeconds 300 -> 100", true},
      {R"({"preserveResourcesOnDeletion": true})", "spec.preserveResourcesOnDeletion false -> true", true},
  };
  std::set<std::string> changed;
  for (const auto& row : rows) {
    events_.reasons_.clear();
    events_.messages_.clear();
    Patch(manifests::kFusionJobs, "train", {{"spec", json::parse(row.patch)}});
    Settle();
    ASSERT_THAT(events_.reasons_, ::testing::ElementsAre("SpecChanged")) << row.patch;
    EXPECT_THAT(events_.messages_[0], HasSubstr(row.change));
    EXPECT_EQ(absl::EndsWith(events_.messages_[0], ": takes effect at once."), row.at_once) << events_.messages_[0];
    EXPECT_EQ(absl::StrContains(events_.messages_[0], ": takes effect with the job's next attempt. "), !row.at_once)
        << events_.messages_[0];
    Settle();
    EXPECT_EQ(events_.reasons_.size(), 1u) << "once: " << row.patch;
    EXPECT_EQ(Job()["status"]["attempt"].get<int>(), 0) << row.patch;
    const std::string path(absl::string_view(row.change).substr(0, absl::string_view(row.change).find(' ')));
    EXPECT_EQ(WhenTakesEffect(path), row.at_once ? TakesEffect::kAtOnce : TakesEffect::kNextAttempt) << path;
    changed.insert(path);
  }
  // No field is without a row.
  for (const job::FieldSchema& field : SpecSchema().children) {
    ForEachField(field, absl::StrCat("spec.", field.name), [&](const std::string& path) {
      const bool of_executors = absl::StartsWith(path, "spec.executors.");
      if (path == "spec.executors" || (!of_executors && path != absl::StrCat("spec.", field.name))) return;
      const TakesEffect when = WhenTakesEffect(path).value_or(TakesEffect::kRefused);
      const bool has_row = std::any_of(changed.begin(), changed.end(), [&](const std::string& row) { return absl::StartsWith(row, path); });
      EXPECT_EQ(has_row, when == TakesEffect::kAtOnce || when == TakesEffect::kNextAttempt) << path;
    });
  }
}

TEST_F(SpecChangesTest, FieldsThatTakeEffectAtDifferentTimesHaveSentencesOfTheirOwn) {
  Submit();
  Settle();
  events_.reasons_.clear();
  events_.messages_.clear();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"ttlSecondsAfterFinished", 60}, {"executors", {{"min", 2}, {"spares", 1}}}}}});
  Settle();
  EXPECT_THAT(events_.messages_,
              ::testing::ElementsAre(
                  "spec.executors.min 1 -> 2, spec.executors.spares 0 -> 1: takes effect with the job's next attempt. What runs goes on as "
                  "it began; to suspend the job and to resume it begins the next attempt. spec.ttlSecondsAfterFinished none -> 60: takes "
                  "effect at once."));
}

TEST_F(SpecChangesTest, ChangesBeforeThereArePodsMakeNoEvent) {
  json job = testing::JobObject();
  job["spec"]["suspend"] = true;
  Submit(job);
  Settle();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"executors", {{"min", 2}}}, {"training", {{"steps", 50}}}}}});
  Settle();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  Settle();
  EXPECT_THAT(events_.reasons_, Not(::testing::Contains("SpecChanged")));
}

TEST_F(SpecChangesTest, ExecutorCountChangesItsConditionAndMakesNoEvent) {
  json job = testing::JobObject();
  job["spec"]["checkpoint"] = {{"path", "run"}, {"volume", {{"persistentVolumeClaim", {{"claimName", "runs"}}}}}};
  const json claim = {{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", {{"name", "runs"}}}};
  ASSERT_TRUE(looking_->Create(manifests::kClaims, "default", claim.dump()).ok());
  Submit(job);
  Settle();
  events_.messages_.clear();
  events_.reasons_.clear();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"executors", {{"replicas", 3}}}}}});
  Settle();
  EXPECT_THAT(events_.reasons_, Not(::testing::Contains("SpecChanged")));
  EXPECT_THAT(events_.reasons_, ::testing::Contains("Resizing"));
  EXPECT_EQ(PodNames().size(), 4u);
}

}  // namespace
}  // namespace fusionllm::op::controller
