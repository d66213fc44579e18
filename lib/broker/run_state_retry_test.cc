// What a run tries again, after how long, and what it does not.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/exit_code.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Of;
using testing::Options;
using testing::RunStateHarness;

// Two stages that load only when the test says how.
class RetryTest : public ::testing::Test {
 protected:
  explicit RetryTest(int max_recoveries = 100) : run_(WithLimit(max_recoveries), {"a0", "b0"}) {
    run_.ignores = [this](const Action& action) { return by_hand_ && std::holds_alternative<SendAssign>(action); };
  }
  static RunOptions WithLimit(int max_recoveries) {
    RunOptions options = Options({"a0", "b0"});
    options.max_recoveries = max_recoveries;
    return options;
  }
  void Join() {
    for (const char* name : {"a0", "b0"}) run_.Join(name);
  }
  void FailToLoad(const absl::Status& status) { run_.Feed(StageReady{.epoch = run_.state.epoch(), .name = "b0", .status = status}); }
  // The wait before the next try, which then is over; 0: it has begun already.
  double Wait() {
    if (run_.state.phase() != Phase::kDraining) return 0;
    const StartTimer timer = *run_.timer;
    run_.Feed(TimerFired{.id = timer.id});
    return timer.seconds;
  }

  bool by_hand_ = true;
  RunStateHarness run_;
};

const absl::Status kStoreIsAway = absl::UnavailableError("s3://models/gpt2: HTTP 503 Service Unavailable");

TEST_F(RetryTest, FailuresWithoutAStepBetweenThemWaitTwiceAsLongEachTime) {
  Join();
  std::vector<double> waits;
  for (int i = 0; i < 9; ++i) {
    FailToLoad(kStoreIsAway);
    waits.push_back(Wait());
    ASSERT_EQ(run_.state.phase(), Phase::kLoading) << i;
  }
  EXPECT_THAT(waits, ElementsAre(0, 1, 2, 4, 8, 16, 32, 60, 60));
  const std::vector<EmitEvent> recovering_events = run_.EventsNamed("Recovering");
  ASSERT_EQ(recovering_events.size(), 9u);
  EXPECT_THAT(recovering_events[0].message,
              AllOf(HasSubstr("recovery 1 of at most 100: stage 1 on b0: "), HasSubstr("HTTP 503 Service Unavailable")));
  EXPECT_THAT(recovering_events[3].message,
              AllOf(HasSubstr("recovery 4 of at most 100 in 4 s"), HasSubstr("HTTP 503 Service Unavailable")));
}

TEST_F(RetryTest, ALossAfterAFailedLastCheckpointMakesNoStepsAgain) {
  by_hand_ = false;
  Join();
  run_.Step(100);
  run_.Feed(run_.Shard(100, 0, absl::ResourceExhaustedError("no space left on /ckpt/x")));
  ASSERT_EQ(run_.state.phase(), Phase::kRunning);
  run_.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(run_.state.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run_.all).back().status.message()), HasSubstr("checkpoint of step 100 was not saved"));
}

TEST_F(RetryTest, TrainingThatDivergesEndsTheRunWithWhatWouldHelp) {
  by_hand_ = false;
  Join();
  run_.Step(5);
  run_.Feed(StageEnded{.epoch = run_.state.epoch(),
                       .name = "b0",
                       .last_step = 5,
                       .status = absl::DataLossError("the gradient norm is nan at step 6"),
                       .not_finite = true});
  EXPECT_EQ(run_.state.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run_.all).back().status.message()),
              AllOf(HasSubstr("the gradient norm is nan at step 6; the same command again would end there again: lower "
                              "spec.training.optimizer.learningRate"),
                    HasSubstr("spec.training.gradientClipNorm")));
}

TEST_F(RetryTest, AStepMakesTheNextRecoveryImmediateAgain) {
  Join();
  for (int i = 0; i < 3; ++i) {
    FailToLoad(kStoreIsAway);
    Wait();
  }
  by_hand_ = false;
  for (const char* name : {"a0", "b0"}) run_.Feed(StageReady{.epoch = run_.state.epoch(), .name = name});
  run_.Step(1);
  by_hand_ = true;
  run_.Feed(StageEnded{.epoch = run_.state.epoch(), .name = "b0", .status = absl::UnavailableError("lost the connection to a0")});
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(run_.state.phase(), Phase::kLoading);
}

TEST_F(RetryTest, ARecoveryOfSeveralTriesTellsOnceWhatItRestores) {
  Join();
  for (int i = 0; i < 3; ++i) {
    FailToLoad(kStoreIsAway);
    Wait();
  }
  EXPECT_EQ(run_.EventsNamed("Restored").size(), 1u);
  by_hand_ = false;
  for (const char* name : {"a0", "b0"}) run_.Feed(StageReady{.epoch = run_.state.epoch(), .name = name});
  run_.Step(1);
  by_hand_ = true;
  run_.Feed(StageEnded{.epoch = run_.state.epoch(), .name = "b0", .status = absl::UnavailableError("lost the connection to a0")});
  FailToLoad(kStoreIsAway);
  EXPECT_EQ(run_.EventsNamed("Restored").size(), 2u) << "another recovery, to the same parameters";
}

TEST_F(RetryTest, ALossWhileTheNextTryIsAwaitedIsTakenUpByThatTry) {
  Join();
  run_.Join("s", /*spare=*/true);
  FailToLoad(kStoreIsAway);
  FailToLoad(kStoreIsAway);
  ASSERT_EQ(run_.state.phase(), Phase::kDraining);
  const size_t recoveries = run_.EventsNamed("Recovering").size();
  run_.Feed(ExecutorLeft{.name = "a0", .incarnation = 1, .why = "gone"});
  EXPECT_EQ(run_.state.phase(), Phase::kDraining);
  EXPECT_EQ(Wait(), 1);
  EXPECT_EQ(run_.EventsNamed("Recovering").size(), recoveries);
  EXPECT_EQ(run_.state.plan().devices, (std::vector<std::string>{"s", "b0"}));
}

TEST_F(RetryTest, LossesAreMadeUpForAtOnceButNotForEver) {
  for (const char* name : {"s0", "s1", "s2", "s3", "s4", "s5", "s6"}) run_.Join(name, /*spare=*/true);
  Join();
  std::vector<double> waits;
  for (int i = 0; i < 7; ++i) {
    run_.Feed(ExecutorLeft{.name = run_.state.plan().devices[1], .incarnation = 1, .why = "gone"});
    waits.push_back(Wait());
  }
  EXPECT_THAT(waits, ElementsAre(0, 0, 0, 0, 0, 1, 2));
}

TEST_F(RetryTest, AnOrderToStopDoesNotWaitForTheNextTry) {
  Join();
  FailToLoad(kStoreIsAway);
  FailToLoad(kStoreIsAway);
  run_.Feed(StopRequested{});
  EXPECT_EQ(run_.state.phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run_.all).back().interrupted);
}

TEST_F(RetryTest, LastingFailuresEndTheRunAtOnceWithWhatTheSystemSaid) {
  const struct {
    absl::StatusCode code;
    const char* what;
    int exit_code;
  } kCases[] = {{absl::StatusCode::kPermissionDenied, "cannot read corpus.txt: Permission denied", base::kExitBadInput},
                {absl::StatusCode::kNotFound, "cannot read corpus.txt: No such file or directory", base::kExitBadInput},
                {absl::StatusCode::kInvalidArgument, "corpus.bin: 7 bytes are no whole number of ids", base::kExitBadInput},
                {absl::StatusCode::kFailedPrecondition, "s3://b/k: HTTP 412 Precondition Failed", base::kExitBadInput},
                {absl::StatusCode::kResourceExhausted, "cannot read corpus.txt: Too many open files", base::kExitFailed},
                {absl::StatusCode::kInternal, "cannot read corpus.txt: Input/output error", base::kExitFailed}};
  for (const auto& each : kCases) {
    RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
    run.ignores = [](const Action& action) { return std::holds_alternative<SendAssign>(action); };
    for (const char* name : {"a0", "b0"}) run.Join(name);
    run.Feed(StageReady{.epoch = run.state.epoch(), .name = "a0", .status = absl::Status(each.code, each.what)});
    ASSERT_EQ(run.state.phase(), Phase::kFailed) << each.what;
    const absl::Status status = Of<Finish>(run.all).back().status;
    EXPECT_EQ(status.message(), absl::StrCat("stage 0 on a0: ", each.what));
    EXPECT_EQ(base::ExitCodeFor(status), each.exit_code) << each.what;
    EXPECT_TRUE(run.EventsNamed("Recovering").empty());
  }
}

TEST_F(RetryTest, AMachineThatJoinedByItselfEndsItsOwnPartAndNotTheRun) {
  for (const bool loaded : {false, true}) {
    for (const bool spare : {false, true}) {
      RunOptions options = Options({"a0"});
      options.data_devices = {"a0"};
      options.min_executors = 2;
      RunStateHarness run(options, {"a0", "x"});
      run.ignores = [&](const Action& action) { return !loaded && std::holds_alternative<SendAssign>(action); };
      run.Join("a0");
      run.Join("x");
      if (spare) run.Join("y", /*spare=*/true);
      ASSERT_EQ(run.state.phase(), loaded ? Phase::kRunning : Phase::kLoading);
      const absl::Status broken = absl::InternalError("no GPU");
      if (loaded) {
        run.Feed(StageEnded{.epoch = run.state.epoch(), .name = "x", .last_step = -1, .status = broken});
      } else {
        run.Feed(StageReady{.epoch = run.state.epoch(), .name = "x", .status = broken});
      }
      EXPECT_NE(run.state.phase(), Phase::kFailed);
      ASSERT_EQ(Of<Reject>(run.all).size(), 1u);
      EXPECT_EQ(Of<Reject>(run.all)[0].name, "x");
      EXPECT_EQ(Of<Reject>(run.all)[0].why, "it cannot take part: no GPU");
    }
  }
}

TEST_F(RetryTest, NaNOrInfiniteLossEndsTheRun) {
  RunOptions options = Options({"a0"});
  options.data_devices = {"a0"};
  options.min_executors = 2;
  RunStateHarness run(options, {"a0", "x"});
  run.Join("a0");
  run.Join("x");
  ASSERT_EQ(run.state.phase(), Phase::kRunning);
  run.Feed(StageEnded{.epoch = run.state.epoch(),
                      .name = "x",
                      .last_step = -1,
                      .status = absl::InvalidArgumentError("the loss is nan"),
                      .not_finite = true});
  EXPECT_EQ(run.state.phase(), Phase::kFailed);
  EXPECT_TRUE(Of<Reject>(run.all).empty());
}

class FewRecoveriesTest : public RetryTest {
 protected:
  FewRecoveriesTest() : RetryTest(/*max_recoveries=*/3) {}
};
TEST_F(FewRecoveriesTest, GivingUpNamesTheLastCause) {
  Join();
  for (int i = 0; i < 3; ++i) {
    FailToLoad(absl::UnavailableError("another cause"));
    Wait();
  }
  FailToLoad(kStoreIsAway);
  ASSERT_EQ(run_.state.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run_.all).back().status.message()),
              AllOf(HasSubstr("gave up after 3 recoveries"), HasSubstr("stage 1 on b0"), HasSubstr("HTTP 503 Service Unavailable")));
}

}  // namespace
}  // namespace fusionllm::broker
