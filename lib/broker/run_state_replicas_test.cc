// A run whose plan has several pipelines side by side.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Of;
using testing::Options;
using testing::Reasons;
using testing::RunStateHarness;

// Two replicas of two stages: a0, b0 and c0, d0; s0 is a spare.
class RunStateReplicasTest : public ::testing::Test {
 protected:
  RunStateReplicasTest() : run_(Options({"a0", "b0", "c0", "d0", "s0"}), {"a0", "b0", "c0", "d0"}) {
    run_.refine_plan = [](const RequestPlan& ask, RunPlan& plan) {
      if (plan.devices.size() == 4) plan.plan.replicas = 2;
      if (plan.stages() > 1) plan.plan.links = {testing::Between(plan, 0, 1, {.bytes = 100})};
      if (plan.plan.replicas == 2) plan.plan.links.push_back(testing::Between(plan, 2, 3, {.bytes = 100}));
      if (ask.figures_only) ADD_FAILURE() << "of replicas the planner has no figures for stages as they are";
    };
    for (const char* name : {"a0", "b0", "c0", "d0"}) run_.Join(name);
    run_.Join("s0", /*spare=*/true);
  }
  std::vector<SendAssign> LastAssigned() const {
    std::vector<SendAssign> assigned = Of<SendAssign>(run_.all);
    std::erase_if(assigned, [this](const SendAssign& assign) { return assign.epoch != run_.state.epoch(); });
    return assigned;
  }

  RunStateHarness run_;
};

TEST_F(RunStateReplicasTest, EveryDeviceIsAssignedItsStageAndReplica) {
  ASSERT_EQ(run_.state.phase(), Phase::kRunning);
  std::vector<std::tuple<std::string, int, int>> events;
  for (const SendAssign& assign : LastAssigned()) events.emplace_back(assign.name, assign.stage, assign.replica);
  using Assignment = std::tuple<std::string, int, int>;
  EXPECT_THAT(events, ElementsAre(Assignment("a0", 0, 0), Assignment("b0", 1, 0), Assignment("c0", 0, 1), Assignment("d0", 1, 1)));
  EXPECT_EQ(Of<SendStart>(run_.all).size(), 4u);
  const std::vector<EmitEvent> joined = run_.EventsNamed("ExecutorJoined");
  ASSERT_EQ(joined.size(), 5u);
  EXPECT_EQ(joined[3].message, "d0 joined and runs stage 1 of replica 1");
  EXPECT_EQ(joined[3].stage, 1);
  EXPECT_EQ(joined[3].replica, 1);
  EXPECT_FALSE(joined[4].replica.has_value()) << "the spare has no stage";
}

TEST_F(RunStateReplicasTest, ReplicaZeroCountsTheStepsAndGetsTheStop) {
  run_.Feed(StepDone{.epoch = 1, .name = "c0", .record = {.step = 1}});
  EXPECT_EQ(run_.state.last_step(), 0) << "the first stage of another replica";
  run_.Step(1);
  EXPECT_EQ(run_.state.last_step(), 1);
  run_.Feed(StopRequested{});
  const std::vector<SendStop> stops = Of<SendStop>(run_.all);
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].name, "a0");
}

TEST_F(RunStateReplicasTest, ACheckpointIsWholeWithTheShardsOfReplicaZero) {
  run_.Step(10);
  ShardWritten of_another = run_.Shard(10, 0);
  of_another.name = "c0";
  EXPECT_FALSE(run_.state.IsCurrent(of_another));
  run_.Feed(of_another);
  run_.Feed(run_.Shard(10, 0));
  EXPECT_TRUE(Of<CommitCheckpoint>(run_.all).empty());
  ShardWritten as_a_third_stage = run_.Shard(10, 1);
  as_a_third_stage.name = "c0";
  as_a_third_stage.stage = 2;
  EXPECT_FALSE(run_.state.IsCurrent(as_a_third_stage));
  run_.Feed(as_a_third_stage);
  run_.Feed(run_.Shard(10, 1));
  ASSERT_EQ(Of<CommitCheckpoint>(run_.all).size(), 1u);
  EXPECT_EQ(Of<CommitCheckpoint>(run_.all)[0].files.size(), 2u);
}

TEST_F(RunStateReplicasTest, TheRunEndsWhenAllReplicasHave) {
  run_.Step(100);
  run_.SaveShards(100);
  for (const char* name : {"a0", "b0", "c0"}) run_.Feed(StageEnded{.epoch = 1, .name = name, .last_step = 100});
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
  run_.Feed(StageEnded{.epoch = 1, .name = "d0", .last_step = 100});
  EXPECT_EQ(run_.state.phase(), Phase::kDone);
}

TEST_F(RunStateReplicasTest, SpareTakesLostRank) {
  run_.Step(10);
  run_.SaveShards(10);
  run_.Step(12);
  run_.Feed(ExecutorLeft{.name = "c0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(run_.EventsNamed("ExecutorLost").back().message, "c0 (stage 0 of replica 1) was lost after step 12: killed");
  const EmitEvent activated = run_.EventsNamed("SpareActivated").back();
  EXPECT_THAT(activated.message, HasSubstr("s0 takes stage 0 of replica 1 from c0"));
  EXPECT_EQ(activated.stage, 0);
  EXPECT_EQ(activated.replica, 1);
  EXPECT_THAT(Reasons(run_.all), Not(Contains("Replanned")));
  std::vector<std::string> ranks;
  for (const SendAssign& assign : LastAssigned()) {
    ranks.push_back(assign.name);
    EXPECT_EQ(assign.first_step, 11);
  }
  EXPECT_THAT(ranks, ElementsAre("a0", "b0", "s0", "d0"));
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
}

TEST(RunStateLossTest, APlanOfFewerStagesThanAskedForSaysSo) {
  RunOptions options = Options({"a0", "b0", "c0"});
  options.stages_asked = 3;
  options.executors_asked = 2;
  RunStateHarness run(options, {"a0", "b0", "c0"});
  for (const char* name : {"a0", "b0", "c0"}) run.Join(name);
  EXPECT_TRUE(run.EventsNamed("Replanned").empty());
  run.Feed(ExecutorLeft{.name = "c0", .incarnation = 1, .why = "killed"});
  EXPECT_THAT(run.EventsNamed("Replanned").back().message,
              ::testing::EndsWith("; fewer stages than spec.strategy.stages, 3, asks for, since executors were lost"));
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_THAT(
      run.EventsNamed("Replanned").back().message,
      ::testing::EndsWith("; fewer stages than spec.strategy.stages, 3, and fewer executors than spec.executors.min, 2, ask for, since "
                          "executors were lost"));
}

TEST_F(RunStateReplicasTest, ReplansOverSurvivorsWithoutASpare) {
  run_.Feed(ExecutorLeft{.name = "s0", .incarnation = 1, .why = "killed"});
  run_.Step(10);
  run_.SaveShards(10);
  run_.Feed(ExecutorLeft{.name = "a0", .incarnation = 1, .why = "killed"});
  EXPECT_THAT(run_.EventsNamed("Replanned").back().message, HasSubstr("3 stages on b0, c0, d0"));
  EXPECT_EQ(run_.state.plan().plan.replicas, 1);
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
  for (const char* lost : {"b0", "c0"}) run_.Feed(ExecutorLeft{.name = lost, .incarnation = 1, .why = "killed"});
  EXPECT_THAT(run_.EventsNamed("Replanned").back().message, HasSubstr("1 stage on d0"));
}

TEST_F(RunStateReplicasTest, AStragglerIsReportedWithItsStageAndReplica) {
  RunStateHarness slow(Options({"a0", "b0", "c0", "d0"}), {"a0", "b0", "c0", "d0"});
  slow.refine_plan = [](const RequestPlan&, RunPlan& plan) {
    plan.plan.replicas = 2;
    testing::SetStages(plan, {0.04, 0.04, 0.04, 0.04});
  };
  for (const char* name : {"a0", "b0", "c0", "d0"}) slow.Join(name);
  for (int64_t step = 1; step <= 8; ++step) {
    for (const std::string& name : slow.stage_devices) {
      slow.Feed(StageMeasured{.epoch = 1, .name = name, .step = step, .busy_s = name == "c0" ? 0.09 : 0.04});
    }
    slow.Step(step);
  }
  const std::vector<EmitEvent> events = slow.EventsNamed("Straggler");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].stage, 0);
  EXPECT_EQ(events[0].replica, 1);
  EXPECT_THAT(events[0].message, HasSubstr("stage 0 of replica 1 on c0"));
}

TEST_F(RunStateReplicasTest, AnErrorNamesStageAndReplica) {
  run_.Feed(StageEnded{.epoch = 1, .name = "d0", .status = absl::InvalidArgumentError("the loss is nan")});
  EXPECT_EQ(run_.state.phase(), Phase::kFailed);
  EXPECT_EQ(Of<Finish>(run_.all).back().status.message(), "stage 1 of replica 1 on d0: the loss is nan");
}

// The end of a run, or of its plan: replica 0 has made its last step, and its checkpoint may be under way.
class RunStateReplicasEndTest : public RunStateReplicasTest {
 protected:
  RunStateReplicasEndTest() {
    run_.Feed(ExecutorLeft{.name = "s0", .incarnation = 1, .why = "killed"});  // no spare stands in for the one that is lost
    run_.ignores = [](const Action& action) {
      return std::holds_alternative<CommitCheckpoint>(action) || std::holds_alternative<SendAbort>(action);
    };
    run_.Step(10);
    run_.SaveShards(10);
    Commit(10);
    run_.Step(100);
    run_.SaveShards(100);
  }
  void Commit(int64_t step) { run_.Feed(CheckpointCommitted{.step = step, .path = "step-" + std::to_string(step)}); }
  void End(const std::string& name, absl::Status status = absl::OkStatus(), int64_t step = 100) {
    run_.Feed(StageEnded{.epoch = 1, .name = name, .last_step = step, .status = std::move(status)});
  }
  void Lose(const std::string& name) { run_.Feed(ExecutorLeft{.name = name, .incarnation = 1, .why = "killed"}); }
  std::vector<std::string> Aborted() const {
    std::vector<std::string> names;
    for (const SendAbort& abort : Of<SendAbort>(run_.all)) names.push_back(abort.name);
    return names;
  }
  void ExpectDone(bool interrupted = false) {
    EXPECT_EQ(run_.state.phase(), Phase::kDone);
    const std::vector<Finish> finished = Of<Finish>(run_.all);
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_TRUE(finished[0].status.ok()) << finished[0].status;
    EXPECT_EQ(finished[0].interrupted, interrupted);
    EXPECT_EQ(run_.state.epoch(), 1u) << "nothing was done again";
  }
};

TEST_F(RunStateReplicasEndTest, WhoIsLostDuringTheLastCommitIsNotMissed) {
  for (const char* name : {"a0", "b0", "c0", "d0"}) End(name);
  for (const char* name : {"c0", "d0"}) {
    Lose(name);
    EXPECT_EQ(run_.state.phase(), Phase::kFinishing);
  }
  EXPECT_EQ(run_.EventsNamed("ExecutorLost").back().message,
            "d0 (stage 1 of replica 1) was lost after step 100: killed; all steps of this plan had been made, so nothing is lost");
  EXPECT_THAT(Aborted(), ::testing::IsEmpty());
  Commit(100);
  ExpectDone();
}

TEST_F(RunStateReplicasEndTest, ReplicaZeroIsMissedUntilTheLastCommit) {
  for (const char* name : {"a0", "b0", "c0", "d0"}) End(name);
  Lose("b0");
  EXPECT_EQ(run_.state.epoch(), 2u);
  EXPECT_THAT(run_.EventsNamed("Replanned").back().message, HasSubstr("3 stages on a0, c0, d0"));
}

TEST_F(RunStateReplicasEndTest, WhoIsLostBetweenTheEndsOfTheReplicasHasEnded) {
  End("a0");
  End("b0");
  Lose("c0");
  EXPECT_THAT(Aborted(), ElementsAre("d0")) << "which may wait for it";
  EXPECT_EQ(run_.state.phase(), Phase::kFinishing);
  End("d0", absl::CancelledError("c0 was lost"));
  Commit(100);
  ExpectDone();
  EXPECT_TRUE(run_.EventsNamed("ReplicaFailed").empty()) << "it had been told to end";
}

// To each stage of replica 0 the others of its stage are peers, the loss of which ends it.
TEST_F(RunStateReplicasEndTest, ALossBeforeAllOfReplicaZeroHasEndedIsMissed) {
  End("a0");
  Lose("d0");
  EXPECT_EQ(run_.EventsNamed("ExecutorLost").back().message, "d0 (stage 1 of replica 1) was lost after step 100: killed");
  EXPECT_EQ(run_.state.phase(), Phase::kDraining);
  EXPECT_THAT(Aborted(), ElementsAre("b0", "c0"));
  Commit(100);  // before b0 has stopped
  End("b0", absl::UnavailableError("lost the connection to d0"));
  End("c0", absl::CancelledError("d0 was lost"));
  EXPECT_EQ(run_.state.epoch(), 2u);
  for (const SendAssign& assign : LastAssigned()) EXPECT_EQ(assign.first_step, 101) << "nothing was done again";
}

TEST_F(RunStateReplicasEndTest, AStageOfReplicaZeroThatEndsByALossIsNoError) {
  run_.ignores = nullptr;
  End("a0");
  run_.Feed(StageEnded{.epoch = 1, .name = "b0", .status = absl::UnavailableError("lost the connection to d0"), .lost_peer = "d0"});
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
  EXPECT_EQ(run_.state.epoch(), 2u);
}

TEST_F(RunStateReplicasEndTest, AnErrorBeforeAllOfReplicaZeroHasEndedFailsTheRun) {
  End("a0");
  End("d0", absl::InternalError("the device is gone"));
  EXPECT_EQ(run_.state.phase(), Phase::kFailed);
  EXPECT_TRUE(run_.EventsNamed("ReplicaFailed").empty());
}

TEST_F(RunStateReplicasEndTest, WhoHasEndedIsMissedAsLongAsReplicaZeroHasNot) {
  End("a0");
  End("d0");
  Lose("d0");
  EXPECT_EQ(run_.state.phase(), Phase::kDraining);
  EXPECT_THAT(Aborted(), ElementsAre("b0", "c0"));
}

TEST_F(RunStateReplicasEndTest, ALossOfReplicaZeroAfterThatBeginsAgainWithWhoIsThere) {
  run_.ignores = nullptr;
  End("a0");
  End("b0");
  Lose("c0");
  EXPECT_EQ(run_.state.phase(), Phase::kFinishing);
  Lose("b0");
  EXPECT_EQ(run_.state.epoch(), 2u);
  EXPECT_THAT(run_.EventsNamed("Replanned").back().message, HasSubstr("2 stages on a0, d0"));
}

TEST_F(RunStateReplicasEndTest, WhoIsLostWhileThePlanIsBeingLeftIsMissed) {
  End("a0");
  Lose("b0");
  EXPECT_EQ(run_.state.phase(), Phase::kDraining);
  Lose("d0");
  EXPECT_EQ(run_.EventsNamed("ExecutorLost").back().message, "d0 (stage 1 of replica 1) was lost after step 100: killed");
}

TEST_F(RunStateReplicasEndTest, FailureAfterReplicaZeroEndedIsTolerated) {
  End("a0");
  End("b0");
  End("d0", absl::InternalError("the device is gone"));
  const EmitEvent events = run_.EventsNamed("ReplicaFailed").back();
  EXPECT_THAT(events.message, HasSubstr("stage 1 of replica 1 on d0: the device is gone; all steps of this plan had been made"));
  EXPECT_EQ(events.stage, 1);
  EXPECT_EQ(events.replica, 1);
  EXPECT_THAT(Aborted(), ElementsAre("c0"));
  Commit(100);
  ExpectDone();
}

TEST_F(RunStateReplicasEndTest, WhoDoesNotEndIsWaitedForAsLongAsForAStep) {
  End("a0");
  End("b0");
  End("c0");
  Commit(100);
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
  ASSERT_TRUE(run_.timer.has_value());
  run_.Feed(TimerFired{.id = run_.timer->id});
  EXPECT_THAT(Aborted(), ElementsAre("d0"));
  EXPECT_THAT(run_.EventsNamed("ReplicaFailed").back().message, HasSubstr("stage 1 of replica 1 on d0: it has not ended"));
  ExpectDone();
}

TEST_F(RunStateReplicasEndTest, BeforeReplicaZeroHasEndedAStepThatDoesNotComeDrains) {
  End("a0");
  End("d0");
  ASSERT_TRUE(run_.timer.has_value());
  run_.Feed(TimerFired{.id = run_.timer->id});
  EXPECT_EQ(run_.state.phase(), Phase::kDraining);
  EXPECT_THAT(Aborted(), ElementsAre("b0", "c0"));
}

TEST_F(RunStateReplicasEndTest, EmitsNothingAfterARestartEndedTheRun) {
  Commit(100);
  for (const char* name : {"a0", "b0", "d0"}) End(name);
  run_.Join("c0", /*spare=*/false, /*memory=*/100, /*incarnation=*/2);
  ExpectDone();
  EXPECT_TRUE(std::holds_alternative<Finish>(run_.all.back()));
}

// Else it would be given a stage of the next plan, which all would wait for, while it hangs in this one.
TEST(RunStateReplicasRenewalTest, WhoDoesNotEndWhereAnotherPlanIsDueIsToStopFirst) {
  RunOptions options = Options({"a0", "b0", "c0", "d0"});
  options.total_steps = 1000;
  RunStateHarness run(options, {"a0", "b0", "c0", "d0"});
  run.refine_plan = [](const RequestPlan& ask, RunPlan& plan) {
    if (plan.devices.size() == 4) plan.plan.replicas = 2;
    const std::string codec = ask.codec_limit.empty() ? "topk@100:int8" : ask.codec_limit;
    if (plan.stages() > 1) plan.plan.links = {testing::Between(plan, 0, 1, {.bytes = 100, .codec = codec})};
  };
  run.ignores = [](const Action& action) {
    const auto* abort = std::get_if<SendAbort>(&action);
    return abort != nullptr && abort->name == "c0";
  };
  for (const char* name : {"a0", "b0", "c0", "d0"}) run.Join(name);
  while (Of<SendStop>(run.all).empty()) {
    ASSERT_LT(run.state.last_step(), 100) << "the loss has left its trend";
    run.Step(run.state.last_step() + 1, run.state.last_step() < 60 ? 3 : 4);
  }
  const int64_t last = run.state.last_step();
  run.SaveShards(last);
  for (const char* name : {"a0", "b0", "d0"}) run.Feed(StageEnded{.epoch = 1, .name = name, .last_step = last});
  ASSERT_TRUE(run.timer.has_value());
  run.Feed(TimerFired{.id = run.timer->id});
  ASSERT_EQ(run.state.phase(), Phase::kDraining);
  EXPECT_TRUE(run.EventsNamed("ReplicaFailed").empty());
  ASSERT_EQ(Of<SendAbort>(run.all).size(), 1u);
  EXPECT_EQ(Of<SendAbort>(run.all)[0].name, "c0");
  run.Feed(TimerFired{.id = run.timer->id});
  EXPECT_THAT(run.EventsNamed("ExecutorLost").back().message, HasSubstr("did not stop when asked to"));
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_THAT(run.EventsNamed("Replanned").back().message, HasSubstr("3 stages on a0, b0, d0"));
  EXPECT_EQ(Of<RequestPlan>(run.all).back().codec_limit, "int8") << "the plan that was due";
  EXPECT_EQ(Of<SendAssign>(run.all).back().first_step, last + 1);
}

TEST_F(RunStateReplicasTest, StopCompletesWithCheckpointDespiteLosses) {
  run_.ignores = [](const Action& action) { return std::holds_alternative<CommitCheckpoint>(action); };
  run_.Step(12);
  run_.Feed(StopRequested{});
  run_.SaveShards(12);
  for (const char* name : {"a0", "b0"}) run_.Feed(StageEnded{.epoch = 1, .name = name, .last_step = 12});
  run_.Feed(ExecutorLeft{.name = "c0", .incarnation = 1, .why = "killed"});
  run_.Feed(ExecutorLeft{.name = "d0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(run_.state.phase(), Phase::kFinishing);
  EXPECT_TRUE(Of<Finish>(run_.all).empty()) << "the checkpoint is not whole yet";
  run_.Feed(CheckpointCommitted{.step = 12, .path = "step-12"});
  ASSERT_EQ(Of<Finish>(run_.all).size(), 1u);
  EXPECT_TRUE(Of<Finish>(run_.all)[0].status.ok());
  EXPECT_TRUE(Of<Finish>(run_.all)[0].interrupted);
}

// What comes next is planned over who is there then, and begins with the checkpoint that was under way.
TEST_F(RunStateReplicasTest, ALossWhileAnotherPlanIsDueDoesNotThrowBack) {
  run_.ignores = [](const Action& action) { return std::holds_alternative<CommitCheckpoint>(action); };
  run_.Step(12);
  run_.SaveShards(12);
  run_.EndAll(12);
  run_.Feed(ExecutorLeft{.name = "d0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(run_.state.epoch(), 1u);
  run_.ignores = nullptr;
  run_.Feed(CheckpointCommitted{.step = 12, .path = "step-12"});
  EXPECT_EQ(run_.state.epoch(), 2u);
  for (const SendAssign& assign : LastAssigned()) {
    EXPECT_EQ(assign.first_step, 13);
    EXPECT_NE(assign.name, "d0");
  }
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
}

}  // namespace
}  // namespace fusionllm::broker
