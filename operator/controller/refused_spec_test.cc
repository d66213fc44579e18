// A job that has made steps, and whose spec was changed into one that its broker refuses: it is kept, says what to do, and goes on by
// another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TwoClustersTest;

constexpr char kOtherModel[] =
    "OtherModel: the checkpoint s3://models/run/step-000030 is of another model than the job's: spec.model.config.nLayer 4 -> 2; restore "
    "what differs, or start over with another spec.checkpoint.path";

class RefusedSpecTest : public TwoClustersTest {
 protected:
  static json OfTwoClusters() {
    json job = testing::JobObject();
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    job["spec"]["model"]["config"] = {{"nLayer", 4}};
    job["spec"]["checkpoint"] = {{"path", "s3://models/run"}};
    return job;
  }
  void TrainTo30(const json& job = OfTwoClusters()) {
    Submit(job);
    SettleBoth();
    ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
    progress_.newest_ = lifecycle::Progress{.step = 30, .steps = 100, .loss = 3.0, .checkpoint_step = 30};
    SettleBoth();
    ASSERT_EQ(Job()["status"]["checkpoint"]["step"], 30);
  }
  void Edit(const json& spec) {
    Patch(manifests::kFusionJobs, "train", {{"spec", spec}});
    SettleBoth();
  }
  void Suspend() {
    progress_.newest_.reset();
    Edit({{"suspend", true}});
    ASSERT_EQ(Job()["status"]["state"], "Suspended");
    events_.reasons_.clear();
  }
  int64_t Attempt() { return Job()["status"]["attempt"]; }
  // As a broker ends that finds something wrong before it listens.
  void RefuseByBroker(const std::string& why, int exit_code = 2) {
    EndBroker(Attempt(), exit_code, why);
    SettleBoth();
  }
  void ExpectKept(const std::string& reason) {
    const json status = Job()["status"];
    EXPECT_EQ(status["state"], "Pending") << status.dump(1);
    EXPECT_EQ(status["reason"], reason);
    EXPECT_EQ(Condition("Accepted"), "False " + reason);
    EXPECT_EQ(Condition("Ready"), "False " + reason);
    EXPECT_EQ(ConditionObject("Ready")["message"], ConditionObject("Accepted")["message"]);
    EXPECT_EQ(Condition("Failed"), "none");
    EXPECT_EQ(status["restarts"], 0);
    EXPECT_THAT(RunningPods(), IsEmpty());
  }
  std::vector<std::string> RunningPods() {
    std::vector<std::string> names;
    for (kube::ApiClient* client : {looking_.get(), tokyo_client_.get()}) {
      const json pods = json::parse(client->List(manifests::kPods, "default").value());
      for (const json& pod : pods["items"]) {
        if (pod["status"].value("phase", "") != "Failed") names.push_back(pod["metadata"]["name"]);
      }
    }
    return names;
  }
  void ExpectTrains() {
    EXPECT_EQ(Job()["status"]["state"], "Running") << Job()["status"].dump(1);
    EXPECT_EQ(Condition("Accepted"), "True Valid");
    EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
    EXPECT_EQ(Condition("Failed"), "none");
    EXPECT_EQ(RunningPods().size(), 3);
  }
};

TEST_F(RefusedSpecTest, ModelChangeWhileSuspendedIsReportedOnce) {
  TrainTo30();
  Suspend();
  Edit({{"model", {{"config", {{"nLayer", 2}}}}}});
  EXPECT_EQ(Job()["status"]["state"], "Suspended");
  EXPECT_EQ(Condition("Failed"), "none");
  Edit({{"suspend", false}});
  RefuseByBroker(kOtherModel);
  ExpectKept("InvalidInput");
  const std::string message = ConditionObject("Ready")["message"];
  EXPECT_THAT(message, HasSubstr("spec.model.config.nLayer 4 -> 2; restore what differs, or start over with another spec.checkpoint.path"));
  EXPECT_THAT(message, EndsWith("The job is kept: set spec.suspend, mend its spec and resume it."));
  EXPECT_THAT(events_.reasons_, ElementsAre("Resumed", "Ready", "InvalidInput"));
  const json reported = Job()["status"];
  Restart();
  clock_.Advance(absl::Hours(30));
  SettleBoth();
  EXPECT_EQ(Job()["status"], reported) << "nothing is tried again, by another operator neither, and no time ends it";
  EXPECT_EQ(events_.reasons_.size(), 3);
}

TEST_F(RefusedSpecTest, ChangedBackItGoesOn) {
  TrainTo30();
  Suspend();
  Edit({{"model", {{"config", {{"nLayer", 2}}}}}, {"suspend", false}});
  RefuseByBroker(kOtherModel);
  ExpectKept("InvalidInput");
  Edit({{"suspend", true}});
  EXPECT_EQ(Job()["status"]["state"], "Suspended");
  EXPECT_EQ(Condition("Suspended"), "True Suspended");
  EXPECT_THAT(PodNames(), IsEmpty());
  Edit({{"model", {{"config", {{"nLayer", 4}}}}}, {"suspend", false}});
  ExpectTrains();
  EXPECT_EQ(Job()["status"]["restarts"], 0) << "that is none";
  EXPECT_EQ(Job()["status"]["checkpoint"]["step"], 30);
}

TEST_F(RefusedSpecTest, AFieldThatMayChangeAtAnyTimeNeedsNoSuspension) {
  TrainTo30();
  Suspend();
  Edit({{"model", {{"config", {{"nLayer", 2}}}}}, {"suspend", false}});
  RefuseByBroker(kOtherModel);
  Edit({{"checkpoint", {{"path", "s3://models/other"}}}});
  ExpectTrains();
}

TEST_F(RefusedSpecTest, ResumedAsItIsItIsAskedAgain) {
  TrainTo30();
  Suspend();
  Edit({{"model", {{"config", {{"nLayer", 2}}}}}, {"suspend", false}});
  RefuseByBroker(kOtherModel);
  Edit({{"suspend", true}});
  Edit({{"suspend", false}});  // somebody has moved the checkpoints away
  ExpectTrains();
  Edit({{"suspend", true}});
  Edit({{"suspend", false}});
  RefuseByBroker(kOtherModel);
  ExpectKept("InvalidInput");
}

TEST_F(RefusedSpecTest, SoDoesAPlanThatIsRefused) {
  TrainTo30();
  Suspend();
  Edit({{"strategy", {{"stages", 2}}}, {"suspend", false}});
  RefuseByBroker(R"({"reason":"MemoryTooSmall","error":"stage 0 needs 3.1 GB"})", 3);
  ExpectKept("PlacementFailed");
  EXPECT_THAT(ConditionObject("Ready")["message"], HasSubstr("MemoryTooSmall: stage 0 needs 3.1 GB"));
  Edit({{"suspend", true}});
  Edit({{"suspend", false}});
  ExpectTrains();
}

TEST_F(RefusedSpecTest, SoDoDataThatHaveNoPlaceAnyMore) {
  TrainTo30();
  Suspend();
  Edit({{"data", {{"volume", nullptr}}}, {"suspend", false}});
  ExpectKept("InvalidInput");
  EXPECT_THAT(ConditionObject("Ready")["message"], HasSubstr("corpus.txt"));
  EXPECT_THAT(RunningPods(), IsEmpty());
  Edit({{"suspend", true}});
  Edit({{"data", {{"volume", {{"configMap", {{"name", "text"}}}}}}}, {"suspend", false}});
  ExpectTrains();
}

TEST_F(RefusedSpecTest, WhatToDoIsNotCutOffForWhatIsWrong) {
  TrainTo30();
  Suspend();
  Edit({{"suspend", false}});
  RefuseByBroker(std::string(1000, 'x'));
  const std::string message = ConditionObject("Ready")["message"];
  EXPECT_THAT(message, EndsWith("The job is kept: set spec.suspend, mend its spec and resume it."));
  EXPECT_LE(message.size(), 1024u);
}

TEST_F(RefusedSpecTest, AJobThatHasMadeNoStepHasFailed) {
  json job = OfTwoClusters();
  job["spec"]["suspend"] = true;
  Submit(job);
  SettleBoth();
  Edit({{"suspend", false}});
  RefuseByBroker(kOtherModel);
  EXPECT_EQ(Condition("Failed"), "True InvalidInput") << "nothing is lost that another job could not have";
}

TEST_F(RefusedSpecTest, SoHasOneByARuleOfItsOwn) {
  json job = OfTwoClusters();
  job["spec"]["failurePolicy"] = {{"rules", {{{"name", "input"}, {"action", "FailJob"}, {"onExitCodes", {2}}}}}};
  TrainTo30(job);
  Suspend();
  Edit({{"suspend", false}});
  RefuseByBroker(kOtherModel);
  EXPECT_EQ(Condition("Failed"), "True FailurePolicy");
}

TEST_F(RefusedSpecTest, AndOneThatIsNotMendedWithinItsPendingDeadline) {
  json job = OfTwoClusters();
  job["spec"]["pendingDeadlineSeconds"] = 600;
  TrainTo30(job);
  Suspend();
  Edit({{"suspend", false}});
  clock_.Advance(absl::Hours(2));
  SettleBoth();
  RefuseByBroker(kOtherModel);
  ExpectKept("InvalidInput");
  clock_.Advance(absl::Seconds(599));
  SettleBoth();
  ExpectKept("InvalidInput");
  clock_.Advance(absl::Seconds(2));
  SettleBoth();
  EXPECT_EQ(Condition("Failed"), "True PendingDeadlineExceeded");
  EXPECT_THAT(ConditionObject("Failed")["message"], HasSubstr("nLayer 4 -> 2"));
}

TEST_F(RefusedSpecTest, ItIsDeletedLikeAnyOther) {
  TrainTo30();
  Suspend();
  Edit({{"suspend", false}});
  RefuseByBroker(kOtherModel);
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
  EXPECT_THAT(server_.objects(), Not(Contains(HasSubstr("train"))));
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train"))));
}

}  // namespace
}  // namespace fusionllm::op::controller
