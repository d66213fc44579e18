// Executors that are lost before the first step, in a run where somebody starts them again and says when it gives up (an operator).
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/broker/testing/run_state_harness.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RunOptions Waiting() {
  RunOptions options = Options({"a0", "b0", "c0"});
  options.executor_timeout_s = 300;
  options.waits_for_executors = true;
  return options;
}

// With a scheduler that wants all three.
class AbsenceTest : public ::testing::Test {
 protected:
  explicit AbsenceTest(RunOptions options = Waiting()) : run_(std::move(options), {"a0", "b0", "c0"}) {
    run_.refuse = [](const RequestPlan& ask) -> std::optional<PlanRefused> {
      if (ask.devices.size() >= 3) return std::nullopt;
      return PlanRefused{.reason = "TooFewExecutors", .message = "spec.strategy.stages asks for 3 executors"};
    };
  }
  void JoinAll() {
    for (const char* name : {"a0", "b0", "c0"}) run_.Join(name);
  }
  void Lose(const std::string& name) { run_.Feed(ExecutorLeft{.name = name, .incarnation = 1, .why = "evicted"}); }
  void ComeBack(const std::string& name) { run_.Join(name, /*spare=*/false, 100, /*incarnation=*/2); }
  // The time of the wait that is under way.
  void LetTimePass() {
    if (run_.timer.has_value()) run_.Feed(TimerFired{.id = run_.timer->id});
  }
  RunStateHarness run_;
};

TEST_F(AbsenceTest, OneThatNeverCameIsWaitedForWithoutALimit) {
  for (const char* name : {"a0", "b0"}) run_.Join(name);
  EXPECT_FALSE(run_.timer.has_value());
  EXPECT_EQ(run_.state.phase(), Phase::kGathering);
  run_.Join("c0");
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
}

TEST_F(AbsenceTest, RunWaitsWhereTheRemainingExecutorsAreTooFewToPlan) {
  run_.ignores = [](const Action& action) { return std::holds_alternative<RequestPlan>(action); };
  JoinAll();
  run_.ignores = nullptr;
  Lose("c0");
  ASSERT_TRUE(run_.timer.has_value());
  EXPECT_EQ(run_.timer->seconds, 300);
  LetTimePass();
  EXPECT_EQ(run_.state.phase(), Phase::kGathering);
  ASSERT_THAT(run_.EventsNamed("WaitingForExecutors"), SizeIs(1));
  EXPECT_EQ(run_.EventsNamed("WaitingForExecutors")[0].message,
            "TooFewExecutors: spec.strategy.stages asks for 3 executors: the run waits for c0 to come back, 300 s without news at most");
  ComeBack("c0");
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
  EXPECT_EQ(run_.state.plan().devices.size(), 3u);
}

TEST_F(AbsenceTest, ExecutorThatStaysAwayEndsTheRunAsUnavailable) {
  JoinAll();
  Lose("c0");
  for (int i = 0; i < 2; ++i) LetTimePass();
  ASSERT_EQ(run_.state.phase(), Phase::kFailed);
  const Finish end = Of<Finish>(run_.all)[0];
  EXPECT_EQ(end.refusal_reason, "");
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(end.status.message(), "c0 lost, and not back in 300 s: TooFewExecutors: spec.strategy.stages asks for 3 executors");
}

TEST_F(AbsenceTest, WhereTheOthersAreEnoughTheyGoOnWhenItWasWaitedForLongEnough) {
  run_.refuse = nullptr;
  run_.ignores = [](const Action& action) { return std::holds_alternative<RequestPlan>(action); };
  JoinAll();
  run_.ignores = nullptr;
  Lose("c0");
  EXPECT_EQ(run_.state.phase(), Phase::kGathering);
  LetTimePass();
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
  EXPECT_EQ(run_.state.plan().devices.size(), 2u);
}

TEST_F(AbsenceTest, ExecutorLostBeforeTheFirstStepIsAwaited) {
  JoinAll();
  ASSERT_EQ(run_.state.phase(), Phase::kRunning);
  Lose("c0");
  EXPECT_EQ(run_.state.phase(), Phase::kGathering);
  LetTimePass();
  EXPECT_EQ(run_.state.phase(), Phase::kGathering);
  ComeBack("c0");
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
  run_.Step(1);
  EXPECT_EQ(run_.state.last_step(), 1);
}

TEST_F(AbsenceTest, UnderStepsARunThatCannotGoOnWithTheOthersWaits) {
  JoinAll();
  run_.Step(1);
  Lose("c0");
  EXPECT_EQ(run_.state.phase(), Phase::kGathering);
  EXPECT_THAT(run_.EventsNamed("WaitingForExecutors"), SizeIs(1));
  Lose("b0");
  for (const char* name : {"b0", "c0"}) ComeBack(name);
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
}

TEST_F(AbsenceTest, AllThatAreLostAreWaitedFor) {
  JoinAll();
  run_.Step(1);
  for (const char* name : {"a0", "b0", "c0"}) Lose(name);
  for (const char* name : {"a0", "b0", "c0"}) ComeBack(name);
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
}

TEST_F(AbsenceTest, AStopIsNotWaitedWith) {
  JoinAll();
  Lose("c0");
  run_.Feed(StopRequested{});
  EXPECT_EQ(run_.state.phase(), Phase::kDone);
}

TEST_F(AbsenceTest, APlanThatIsRefusedWithEverybodyHereEndsTheRunAsBefore) {
  run_.refuse = [](const RequestPlan&) { return PlanRefused{.reason = "InsufficientMemory", .message = "too large"}; };
  JoinAll();
  ASSERT_EQ(run_.state.phase(), Phase::kFailed);
  EXPECT_EQ(Of<Finish>(run_.all)[0].refusal_reason, "InsufficientMemory");
}

class CutTest : public AbsenceTest {
 protected:
  CutTest() {
    run_.ignores = [this](const Action& action) {
      const auto* probe = std::get_if<StartLinkProbe>(&action);
      if (probe == nullptr || !cut_) return false;
      run_.answers.push_back(
          LinkProbed{.link = {.src = probe->src, .dst = probe->dst}, .status = absl::UnavailableError("connection refused")});
      return true;
    };
  }
  bool cut_ = true;
};

TEST_F(CutTest, TwoThatCannotReachEachOtherAreTriedAgainUntilTheyCan) {
  JoinAll();
  EXPECT_EQ(run_.state.phase(), Phase::kProbing);
  ASSERT_THAT(run_.EventsNamed("ProbeFailed"), SizeIs(1));
  EXPECT_THAT(run_.EventsNamed("ProbeFailed")[0].message, HasSubstr("cannot reach"));
  EXPECT_THAT(run_.EventsNamed("ProbeFailed")[0].message, HasSubstr("; it is tried again, with pauses of 300 s in all at most"));
  for (int i = 0; i < 3; ++i) run_.Feed(TimerFired{.id = run_.timer->id});
  EXPECT_EQ(run_.state.phase(), Phase::kProbing);
  cut_ = false;
  run_.Feed(TimerFired{.id = run_.timer->id});
  EXPECT_EQ(run_.state.phase(), Phase::kRunning);
}

TEST_F(CutTest, WhereTheyNeverCanTheRunEndsAndSaysWho) {
  JoinAll();
  double waited_s = 0;
  while (run_.state.phase() == Phase::kProbing) {
    ASSERT_TRUE(run_.timer.has_value());
    waited_s += run_.timer->seconds;
    run_.Feed(TimerFired{.id = run_.timer->id});
  }
  ASSERT_EQ(run_.state.phase(), Phase::kFailed);
  EXPECT_EQ(waited_s, 300);
  EXPECT_THAT(run_.EventsNamed("ProbeFailed"), SizeIs(1)) << "once for all tries of the wait";
  const Finish end = Of<Finish>(run_.all)[0];
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(end.status.message()), HasSubstr("cannot reach"));
}

TEST_F(CutTest, SecondProbeFailureEndsRunWithoutRestarts) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.ignores = [&run](const Action& action) {
    const auto* probe = std::get_if<StartLinkProbe>(&action);
    if (probe == nullptr) return false;
    run.answers.push_back(LinkProbed{.link = {.src = probe->src, .dst = probe->dst}, .status = absl::UnavailableError("refused")});
    return true;
  };
  for (const char* name : {"a0", "b0"}) run.Join(name);
  EXPECT_EQ(run.state.phase(), Phase::kFailed);
  EXPECT_THAT(run.EventsNamed("ProbeFailed"), IsEmpty());
}

// At whatever moment before the first step some are lost, and however long they are away.
class LossBySeedTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, LossBySeedTest, ::testing::Range(0, 200));

TEST_P(LossBySeedTest, NoLossBeforeTheFirstStepEndsTheRun) {
  const base::CounterRng random(static_cast<uint64_t>(GetParam()), "losses");
  uint64_t drawn = 0;
  const auto below = [&](int n) { return static_cast<int>(random.Below(drawn++, static_cast<uint64_t>(n))); };
  RunStateHarness run(Waiting(), {"a0", "b0", "c0"});
  run.refuse = [](const RequestPlan& ask) -> std::optional<PlanRefused> {
    if (ask.devices.size() >= 3) return std::nullopt;
    return PlanRefused{.reason = "TooFewExecutors", .message = "three are wanted"};
  };
  // One order after the other, so that anything may happen between two.
  std::vector<Action> held;
  run.ignores = [&](const Action& action) {
    held.push_back(action);
    return true;
  };
  std::map<std::string, uint64_t> lives;
  const auto join = [&](const std::string& name) { run.Join(name, /*spare=*/false, 100, ++lives[name]); };
  for (const char* name : {"a0", "b0", "c0"}) join(name);
  std::set<std::string> away;
  int losses = 1 + below(4);
  for (int turn = 0; turn < 4000 && run.state.phase() != Phase::kRunning; ++turn) {
    ASSERT_NE(run.state.phase(), Phase::kFailed) << Of<Finish>(run.all)[0].status << " seed " << GetParam();
    const int turn_of = below(10);
    if (turn_of < 5 && !held.empty()) {
      const Action order = held.front();
      held.erase(held.begin());
      run.Answer(order);
      // What somebody who is not there was asked is never answered.
      std::erase_if(run.answers, [&](const Event& event) {
        const auto* calibrated = std::get_if<Calibrated>(&event);
        const auto* ready = std::get_if<StageReady>(&event);
        return (calibrated != nullptr && away.contains(calibrated->name)) || (ready != nullptr && away.contains(ready->name));
      });
      run.Feed(TimerFired{.id = 0});
    } else if (turn_of == 5 && losses > 0) {
      const std::string name = std::string(1, static_cast<char>('a' + below(3))) + "0";
      if (away.insert(name).second) {
        --losses;
        run.Feed(ExecutorLeft{.name = name, .incarnation = lives[name], .why = "evicted"});
      }
    } else if (turn_of == 6 && !away.empty()) {
      join(*away.begin());
      away.erase(away.begin());
    } else if (turn_of == 7 && run.timer.has_value() && (held.empty() || !away.empty())) {
      // An order is answered in time, and none stays away for longer than the second wait.
      const std::string& what = run.timer->what;
      if (what == "executors that were lost to be started again" || what == "the next try") run.Feed(TimerFired{.id = run.timer->id});
    }
  }
  EXPECT_EQ(run.state.phase(), Phase::kRunning)
      << Name(run.state.phase()) << ", seed " << GetParam() << ", held " << held.size() << ", away " << away.size() << " here "
      << run.state.executors().size() << " " << ::testing::PrintToString(Reasons(run.all));
  EXPECT_EQ(run.state.plan().devices.size(), 3u);
}

}  // namespace
}  // namespace fusionllm::broker::testing
