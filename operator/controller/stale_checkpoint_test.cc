#include "operator/controller/stale_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "operator/controller/testing/reconcile_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobObject;
using testing::JobReconcilerTest;
using ::testing::Not;

// A job that is to save a checkpoint every 10 steps: three of them are due after step 30.
class StaleCheckpointTest : public JobReconcilerTest {
 protected:
  void Begin() {
    json job = JobObject();
    job["spec"]["checkpoint"] = {{"path", "s3://models/run"}, {"everySteps", 10}};
    Submit(job);
    Settle();
    Patch(manifests::kPods, "train-broker-r0", {{"spec", {{"nodeName", "n"}}}});
  }
  // What the broker tells; `checkpoint`: 0: none.
  std::string At(int64_t step, int64_t checkpoint = 0) {
    progress_.newest_ = lifecycle::Progress{.step = step, .steps = 1'000, .loss = 2.5};
    if (checkpoint > 0) progress_.newest_->checkpoint_step = checkpoint;
    clock_.Advance(absl::Minutes(1));
    Settle();
    return Condition("CheckpointStale");
  }
};

TEST_F(StaleCheckpointTest, WhenNoneEverCame) {
  Begin();
  EXPECT_EQ(At(1), "none");
  EXPECT_EQ(At(31), "none") << "three are due";
  EXPECT_THAT(events_.reasons_, Not(Contains("CheckpointStale")));
  EXPECT_EQ(At(32), "True CheckpointsMissing");
  EXPECT_THAT(ConditionObject("CheckpointStale")["message"], HasSubstr("More than 30 steps were made, and there is no checkpoint"));
  EXPECT_THAT(events_.reasons_, Contains("CheckpointStale"));
}

TEST_F(StaleCheckpointTest, WhenNoneComesAnyMore) {
  Begin();
  EXPECT_EQ(At(15, 10), "none");
  EXPECT_EQ(At(40, 10), "none");
  EXPECT_EQ(At(41, 10), "True CheckpointsMissing");
  EXPECT_THAT(ConditionObject("CheckpointStale")["message"], HasSubstr("The newest checkpoint is more than 30 steps behind"));
}

TEST_F(StaleCheckpointTest, UntilANewerOneIsThere) {
  Begin();
  EXPECT_EQ(At(1), "none");
  EXPECT_EQ(At(50), "True CheckpointsMissing");
  EXPECT_EQ(At(55, 50), "False CheckpointSaved");
  EXPECT_EQ(At(80, 50), "False CheckpointSaved");
  EXPECT_EQ(At(81, 50), "True CheckpointsMissing");
}

TEST_F(StaleCheckpointTest, ARunThatFallsBackToAnOlderOneHasSavedNone) {
  Begin();
  At(120, 100);
  EXPECT_EQ(At(131, 100), "True CheckpointsMissing");
  EXPECT_EQ(At(92, 90), "True CheckpointsMissing");
  EXPECT_EQ(Job()["status"]["checkpoint"]["step"], 90);
  EXPECT_EQ(At(102, 100), "False CheckpointSaved");
}

// The API server takes no status whose checkpoint lies nowhere.
TEST_F(StaleCheckpointTest, IgnoresJobWithoutCheckpointPath) {
  Submit(JobObject());
  Settle();
  Patch(manifests::kPods, "train-broker-r0", {{"spec", {{"nodeName", "n"}}}});
  At(20, 10);
  EXPECT_EQ(Job()["status"]["trainerStatus"]["step"], 20);
  EXPECT_FALSE(Job()["status"].contains("checkpoint")) << Job()["status"]["checkpoint"];
}

TEST_F(StaleCheckpointTest, ARunThatBeginsWithAnothersCheckpointOwesNoneForThose) {
  Begin();
  EXPECT_EQ(At(500), "none");
  EXPECT_EQ(At(530), "none");
  Restart();  // the next operator knows where it began, too
  EXPECT_EQ(At(531), "True CheckpointsMissing");
}

TEST_F(StaleCheckpointTest, AnAttemptThatBeginsAgainHasSavedNothing) {
  Begin();
  At(1);
  EXPECT_EQ(At(50), "True CheckpointsMissing");
  EndBroker(0, 1, R"({"step":50,"steps":1000,"error":"lost its disk","exit_code":1})");
  Settle();
  Patch(manifests::kPods, "train-broker-r1", {{"spec", {{"nodeName", "n"}}}});
  EXPECT_EQ(At(2), "True CheckpointsMissing");
  EXPECT_EQ(Job()["status"]["trainerStatus"]["step"], 2);
  EXPECT_EQ(At(12, 10), "False CheckpointSaved");
}

TEST_F(StaleCheckpointTest, WhatTheSpecAsksForNoMoreIsNotDue) {
  Begin();
  At(1);
  EXPECT_EQ(At(50), "True CheckpointsMissing");
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"checkpoint", {{"everySteps", 100}}}}}});
  Settle();
  EXPECT_EQ(Condition("CheckpointStale"), "False NoCheckpointDue");
}

TEST_F(StaleCheckpointTest, AJobThatSavesOnlyItsLastStepOwesNone) {
  json job = JobObject();
  job["spec"]["checkpoint"] = {{"path", "s3://models/run"}, {"everySteps", 0}};
  Submit(job);
  Settle();
  EXPECT_EQ(At(1), "none");
  EXPECT_EQ(At(900), "none");
}

}  // namespace
}  // namespace fusionllm::op::controller
