// Processes that are killed in the middle of a run. Whoever dies, the run goes on from the last checkpoint with the same loss bits.
#include <csignal>

#include "absl/strings/str_cat.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class RecoveryTest : public RunTest {
 protected:
  // Kills the executor of a stage when so many checkpoints have been saved (none: after step 4) and waits for the end of the run.
  std::unique_ptr<FusionctlChild> KillStageAfter(int stage, int checkpoints, const std::vector<std::string>& settings) {
    auto run = Start(settings);
    if (checkpoints == 0) {
      EXPECT_TRUE(run->WaitForStep(4, kStartLimit)) << run->Stderr();
    }
    for (int i = 0; i < checkpoints; ++i) EXPECT_TRUE(run->WaitForEvent("CheckpointSaved", kStartLimit)) << run->Stderr();
    KillProcess(PidOfStage(*run, stage));
    ExpectEnd(*run, 0);
    ExpectSameBits(*run, Undisturbed(), 1, kUndisturbedSteps);
    ExpectRestoredFromTheNewest(*run);
    return run;
  }

  static void ExpectRestoredFromTheNewest(const FusionctlChild& run) {
    json newest = 0;
    for (const json& line : run.lines()) {
      if (line.value("reason", "") == "CheckpointSaved") newest = line["step"];
      if (line.value("reason", "") == "Restored") {
        EXPECT_EQ(line["step"], newest);
      }
    }
  }
};

TEST_F(RecoveryTest, ASpareTakesTheFirstStageFromTheLastCheckpoint) {
  WriteTopology(3, 1);
  const auto run = KillStageAfter(0, 1, {kCheckpoints});
  EXPECT_THAT(Reasons(*run), Contains("ExecutorLost"));
  EXPECT_EQ(Event(*run, "ExecutorLost")["stage"], 0);
  EXPECT_EQ(Event(*run, "SpareActivated")["device"], "spare-0");
  EXPECT_EQ(Event(*run, "SpareActivated")["stage"], 0);
  EXPECT_GE(Event(*run, "Restored")["step"], 10);
  EXPECT_THAT(Reasons(*run), Not(Contains("Replanned")));
  EXPECT_THAT(Summary(*run)["stages"], SizeIs(3));
}

TEST_F(RecoveryTest, ASpareTakesTheLastStage) {
  WriteTopology(3, 1);
  const auto run = KillStageAfter(2, 2, {kCheckpoints});
  EXPECT_EQ(Event(*run, "ExecutorLost")["stage"], 2);
  EXPECT_EQ(Event(*run, "SpareActivated")["stage"], 2);
  EXPECT_GE(Event(*run, "Restored")["step"], 20);
  EXPECT_THAT(Event(*run, "SpareActivated")["message"], Not(HasSubstr("figures"))) << "the spare's own were had";
  std::vector<json> plans;
  for (const json& line : run->lines()) {
    if (line.value("type", "") == "plan") plans.push_back(line);
  }
  ASSERT_THAT(plans, SizeIs(2));
  EXPECT_EQ(plans[1]["stages"][2]["devices"], json({"spare-0"}));
  EXPECT_EQ(plans[1]["stages"][2]["ops"], plans[0]["stages"][2]["ops"]);
  EXPECT_EQ(plans[1]["strategy"], plans[0]["strategy"]);
  for (const json& link : plans[1]["links"]) EXPECT_NE(link["src"], plans[0]["stages"][2]["devices"][0]) << "the device that was lost";
}

TEST_F(RecoveryTest, ASpareThatHasAStageIsPlannedOverWhenAnotherExecutorIsLost) {
  WriteTopology(3, 1);
  auto run = Start({kCheckpoints});
  ASSERT_TRUE(run->WaitForEvent("CheckpointSaved", kStartLimit)) << run->Stderr();
  KillProcess(PidOfStage(*run, 2));
  ASSERT_TRUE(run->WaitForEvent("SpareActivated", kStartLimit)) << run->Stderr();
  ASSERT_TRUE(run->WaitForEvent("CheckpointSaved", kStartLimit)) << run->Stderr();
  KillProcess(PidOfStage(*run, 1));
  ExpectEnd(*run, 0);
  ExpectSameBits(*run, Undisturbed(), 1, kUndisturbedSteps);
  EXPECT_THAT(Event(*run, "Replanned")["message"].get<std::string>(), AllOf(HasSubstr("2 stages"), HasSubstr("spare-0")));
}

TEST_F(RecoveryTest, ReplansOverSurvivorsWithFewerStagesThanAskedFor) {
  const auto run = KillStageAfter(1, 1, {kCheckpoints});
  EXPECT_THAT(Reasons(*run), Contains("Replanned"));
  EXPECT_THAT(Event(*run, "Replanned")["message"].get<std::string>(), HasSubstr("2 stages"));
  EXPECT_GE(Event(*run, "Restored")["step"], 10);
  EXPECT_THAT(Summary(*run)["stages"], SizeIs(2));
}

TEST_F(RecoveryTest, TwoDevicesLostOneAfterTheOtherLeaveOneStage) {
  auto run = Start({kCheckpoints});
  ASSERT_TRUE(run->WaitForStep(11, kStartLimit)) << run->Stderr();
  const std::vector<pid_t> pids = {PidOfStage(*run, 0), PidOfStage(*run, 2)};
  KillProcess(pids[0]);
  ASSERT_TRUE(run->WaitForEvent("Replanned", kRunLimit)) << run->Stderr();
  KillProcess(pids[1]);  // while stages load
  ExpectEnd(*run, 0);
  ExpectSameBits(*run, Undisturbed(), 1, kUndisturbedSteps);
  EXPECT_THAT(Summary(*run)["stages"], SizeIs(1));
}

TEST_F(RecoveryTest, ALossBeforeTheFirstCheckpointStartsAgain) {
  WriteTopology(3, 1);
  const auto run = KillStageAfter(1, 0, {kCheckpoints});
  EXPECT_EQ(Event(*run, "Restored")["step"], 0);
  EXPECT_THAT(Reasons(*run), Contains("SpareActivated"));
}

TEST_F(RecoveryTest, ALossInARunWithoutCheckpointsStartsAgain) {
  const auto run = KillStageAfter(2, 0, {});
  EXPECT_EQ(Event(*run, "Restored")["step"], 0);
}

TEST_F(RecoveryTest, ABrokerThatIsKilledIsReplacedAndNoStepIsMissing) {
  auto run = Start({kCheckpoints});
  for (const int64_t step : {8, 30}) {
    ASSERT_TRUE(run->WaitForStep(step, kStartLimit)) << run->Stderr();
    const std::vector<pid_t> brokers = run->Running("fusion-broker");
    ASSERT_THAT(brokers, SizeIs(1));
    KillProcess(brokers[0]);
  }
  ExpectEnd(*run, 0);
  ExpectSameBits(*run, Undisturbed(), 1, kUndisturbedSteps);
  EXPECT_THAT(Reasons(*run), Not(Contains("Restored"))) << "the executors were well and should have gone on";
  EXPECT_THAT(Reasons(*run), Not(Contains("ExecutorLost")));
  EXPECT_LE(Event(*run, "CheckpointSaved")["step"], 20) << "that of step 10 may be due just while the broker is away";
  EXPECT_EQ(Summary(*run)["steps"], kUndisturbedSteps);
  EXPECT_THAT(Summary(*run)["stages"], SizeIs(3));
  EXPECT_TRUE(std::filesystem::exists(Path("out/checkpoints/step-000060/manifest.json")));
}

// As where it is on a Pod's own disk.
TEST_F(RecoveryTest, ABrokerThatIsKilledWithItsJournalGoesOnFromTheLastCheckpoint) {
  auto run = Start({kCheckpoints});
  ASSERT_TRUE(run->WaitForEvent("CheckpointSaved", kStartLimit)) << run->Stderr();
  const std::vector<pid_t> brokers = run->Running("fusion-broker");
  ASSERT_THAT(brokers, SizeIs(1));
  ASSERT_TRUE(std::filesystem::remove(Path("out/broker.journal")));
  KillProcess(brokers[0]);
  ExpectEnd(*run, 0);
  ExpectSameBits(*run, Undisturbed(), 1, kUndisturbedSteps);
  EXPECT_GE(Event(*run, "Restored").value("step", 0), 10);
  EXPECT_TRUE(std::filesystem::exists(Path("out/checkpoints/step-000060/manifest.json")));
}

TEST_F(RecoveryTest, TheSummaryCountsWhatWasSentBeforeALossAndBeforeTheBrokersDeath) {
  WriteTopology(3, 1);
  auto run = Start({kCheckpoints});
  ASSERT_TRUE(run->WaitForEvent("CheckpointSaved", kStartLimit)) << run->Stderr();
  KillProcess(PidOfStage(*run, 1));
  ASSERT_TRUE(run->WaitForEvent("SpareActivated", kRunLimit)) << run->Stderr();
  // Not step 30 itself: it may have been made, and be in the checkpoint, before the executor was killed.
  ASSERT_TRUE(run->WaitFor([](const json& line) { return line.value("type", "") == "step" && line.value("step", 0) >= 30; }, kRunLimit))
      << run->Stderr();
  const std::vector<pid_t> brokers = run->Running("fusion-broker");
  ASSERT_THAT(brokers, SizeIs(1));
  KillProcess(brokers[0]);
  ExpectEnd(*run, 0);
  json first_plan;
  for (const json& line : run->lines()) {
    if (line.value("type", "") == "plan" && first_plan.is_null()) first_plan = line;
  }
  const std::string lost = first_plan["stages"][1]["devices"][0];
  double planned = 0, counted = 0;  // to the device that was lost, a step and in all
  for (const json& link : first_plan["links"]) planned += link["dst"] == lost ? link["bytes"].get<double>() : 0;
  const json summary = Summary(*run);
  for (const json& link : summary["links"]) counted += link["dst"] == lost ? link["bytes"].get<double>() : 0;
  EXPECT_GT(planned, 0);
  EXPECT_GE(counted, 9 * planned) << "at least ten steps were made with it, the last of which may have been told to nobody";
}

TEST_F(RecoveryTest, BrokerAndExecutorKilledTogetherAreBothReplaced) {
  WriteTopology(3, 1);
  auto run = Start({kCheckpoints});
  ASSERT_TRUE(run->WaitForStep(25, kStartLimit)) << run->Stderr();
  const std::vector<pid_t> brokers = run->Running("fusion-broker");
  ASSERT_THAT(brokers, SizeIs(1));
  KillProcess(brokers[0]);
  KillProcess(PidOfStage(*run, 1));
  ExpectEnd(*run, 0);
  ExpectSameBits(*run, Undisturbed(), 1, kUndisturbedSteps);
  EXPECT_THAT(Reasons(*run), Contains("Restored"));
}

TEST_F(RecoveryTest, ASchedulerThatIsKilledIsReplacedBeforeTheNextPlanIsNeeded) {
  auto run = Start({kCheckpoints});
  ASSERT_TRUE(run->WaitForStep(3, kStartLimit)) << run->Stderr();
  const std::vector<pid_t> schedulers = run->Running("fusion-scheduler");
  ASSERT_THAT(schedulers, SizeIs(1));
  KillProcess(schedulers[0]);
  KillProcess(PidOfStage(*run, 0));
  ExpectEnd(*run, 0);
  ExpectSameBits(*run, Undisturbed(), 1, kUndisturbedSteps);
  EXPECT_THAT(Reasons(*run), Contains("Replanned"));
}

}  // namespace
}  // namespace fusionllm::integration
