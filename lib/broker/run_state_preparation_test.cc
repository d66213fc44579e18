// Until the first plan: who is waited for, measured, asked.
#include "lib/broker/run_state.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::HasSubstr;
using testing::Is;
using testing::Of;
using testing::Options;
using testing::RunStateHarness;

TEST(RunStatePreparationTest, WithoutNamesARunBeginsWhenEnoughHaveJoined) {
  RunStateHarness drill({.min_executors = 2, .total_steps = 100}, {"a", "b"});
  drill.Join("a");
  EXPECT_EQ(drill.state.phase(), Phase::kGathering);
  for (const StartTimer& expect : Of<StartTimer>(drill.all))
    EXPECT_EQ(expect.id, 0u) << "nobody hurries people who start executors by hand";
  drill.Join("b");
  EXPECT_NE(drill.state.phase(), Phase::kGathering);
}

TEST(RunStatePreparationTest, AnnouncesArrivalsWhileWaitingForExecutors) {
  RunStateHarness drill({.min_executors = 3, .total_steps = 100}, {"a", "b", "c", "s"});
  drill.Join("a");
  drill.Join("s", /*spare=*/true);
  drill.Join("a");  // the same process: its stream broke
  drill.Join("b");
  std::vector<std::string> sentences;
  for (const EmitEvent& arrived : drill.EventsNamed("ExecutorConnected")) sentences.push_back(arrived.message);
  EXPECT_THAT(sentences,
              ::testing::ElementsAre("a is here; 1 of 3 executors", "s is here, a spare; 1 of 3 executors", "b is here; 2 of 3 executors"));
  RunStateHarness named(Options({"a", "b"}), {"a", "b"});
  named.Join("a");
  EXPECT_TRUE(named.EventsNamed("ExecutorConnected").empty()) << "a run on one machine starts them itself";
}

TEST(RunStatePreparationTest, LinesBetweenDevicesAreMeasuredBesideTheLinksOfTheirSites) {
  RunOptions options = Options({"a0", "a1", "b0", "b1"});
  // One line of a0 and b0 both ways; one from a1 to site b.
  options.link_names = {{{"a0", "b0"}, "leased"}, {{"b0", "a0"}, "leased back"}, {{"a1", "b0"}, "uplink"}, {{"a1", "b1"}, "uplink"}};
  RunStateHarness run(options, {"a0", "b0"});
  for (const char* name : {"a0", "a1", "b0", "b1"}) run.Join(name);
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  std::set<std::string> probed;
  for (const StartLinkProbe& probe : Of<StartLinkProbe>(run.all)) probed.insert(probe.src + ">" + probe.dst);
  // "a0>b1", not the leased "a0>b0", speaks for the sites.
  EXPECT_THAT(probed, ::testing::UnorderedElementsAre("a0>a1", "b0>b1", "a0>b0", "b0>a0", "a1>b0", "a0>b1", "b0>a1"));
}

TEST(RunStatePreparationTest, WhatIsKnownOfLinesIsNotMeasuredAgain) {
  RunOptions options = Options({"a0", "b0"});
  options.link_names = {{{"a0", "b0"}, "leased"}};
  options.known_profiles = {{"a0", "{}"}, {"b0", "{}"}};
  options.known_links = {{.src = "a0", .dst = "b0", .bytes_per_s = 1}};
  RunStateHarness run(options, {"a0", "b0"});
  for (const char* name : {"a0", "b0"}) run.Join(name);
  EXPECT_TRUE(Of<StartCalibration>(run.all).empty());
  ASSERT_EQ(Of<StartLinkProbe>(run.all).size(), 1u);
  EXPECT_EQ(Of<StartLinkProbe>(run.all)[0].src, "b0");
}

TEST(RunStatePreparationTest, GathersMeasuresPlansAndStarts) {
  RunStateHarness run(Options({"a0", "a1", "b0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("a1");
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  run.Join("b0");
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(Of<StartCalibration>(run.all).size(), 3u);
  // Inside a, and between a and b both ways.
  EXPECT_EQ(Of<StartLinkProbe>(run.all).size(), 3u);
  EXPECT_EQ(Of<SendStart>(run.all).size(), 2u);
  const auto joined = Of<EmitEvent>(run.all);
  ASSERT_EQ(joined.size(), 3u);
  EXPECT_EQ(joined[0].stage, 0);
  EXPECT_EQ(joined[1].stage, std::nullopt);
  EXPECT_EQ(joined[2].stage, 1);
}

TEST(RunStatePreparationTest, WaitsWithoutLimitForMachinesThatItDoesNotKnow) {
  RunOptions options = Options({"a0"});
  options.min_executors = 3;
  RunStateHarness run(options, {"a0", "x", "y"});
  run.Join("x");
  run.Join("y");
  run.Join("z", /*spare=*/true);
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "the expected one is missing";
  run.Feed(ExecutorLeft{.name = "y", .incarnation = 1, .why = "gone"});
  run.Join("a0");
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "two and a spare";
  EXPECT_TRUE(Of<StartTimer>(run.all).empty());
  run.Join("y");
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
}

TEST(RunStatePreparationTest, AnOpenRunThatHasLostAllForgetsItsTimers) {
  RunStateHarness run({.min_executors = 1, .total_steps = 100}, {"a"});
  run.ignores = Is<StartCalibration>;
  run.Join("a");
  ASSERT_TRUE(run.timer.has_value());
  run.Feed(ExecutorLeft{.name = "a", .incarnation = 1, .why = "gone"});
  ASSERT_EQ(run.state.phase(), Phase::kGathering);
  run.Feed(TimerFired{.id = run.timer->id});  // of the calibration
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "whoever starts executors by hand is not hurried";
}

TEST(RunStatePreparationTest, AnExecutorThatIsAwaitedByNameAndCannotTakePartEndsTheRunBeforeThePlan) {
  for (const bool asked : {true, false}) {
    RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
    run.ignores = Is<StartCalibration>;
    run.Join("a0");
    if (asked) run.Join("b0");
    run.Feed(Calibrated{.name = "a0", .status = absl::InternalError("/data/train.bin: no such file")});
    EXPECT_EQ(run.state.phase(), Phase::kFailed);
    EXPECT_EQ(Of<Finish>(run.all).back().status.message(), "executor a0: /data/train.bin: no such file");
  }
}

TEST(RunStatePreparationTest, AModelThatNeedsMoreMemoryThanItsExecutorMayUseHasNoPlan) {
  const absl::Status too_large = absl::ResourceExhaustedError("op 'fc' (linear) needs 2.0 TiB to be measured");
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.ignores = Is<StartCalibration>;
  for (const char* name : {"a0", "b0"}) run.Join(name);
  run.Feed(Calibrated{.name = "a0", .status = too_large});
  EXPECT_EQ(Of<Finish>(run.all).back().refusal_reason, "InsufficientMemory");
  EXPECT_EQ(Of<Finish>(run.all).back().status.message(), "executor a0: op 'fc' (linear) needs 2.0 TiB to be measured");

  RunStateHarness open({.min_executors = 1, .total_steps = 100}, {"big"});
  open.ignores = Is<StartCalibration>;
  open.Join("small");
  open.Feed(Calibrated{.name = "small", .status = too_large});
  EXPECT_THAT(Of<Reject>(open.all).back().why, HasSubstr("op 'fc' (linear) needs 2.0 TiB"));
  EXPECT_TRUE(Of<Finish>(open.all).empty()) << "another machine may have more";
}

TEST(RunStatePreparationTest, AnExecutorThatDoesNotEndItsCalibrationIsLeftOutWhereItIsNotNeeded) {
  RunStateHarness spare(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  spare.ignores = [](const Action& action) {
    const auto* ask = std::get_if<StartCalibration>(&action);
    return ask != nullptr && ask->name == "s0";
  };
  for (const char* name : {"a0", "b0"}) spare.Join(name);
  spare.Join("s0", /*spare=*/true);
  ASSERT_EQ(spare.state.phase(), Phase::kCalibrating);
  spare.Feed(TimerFired{.id = spare.timer->id});
  EXPECT_EQ(spare.state.phase(), Phase::kRunning);
  EXPECT_FALSE(spare.state.executors().contains("s0"));

  RunStateHarness needed(Options({"a0", "b0"}), {"a0", "b0"});
  needed.ignores = Is<StartCalibration>;
  for (const char* name : {"a0", "b0"}) needed.Join(name);
  needed.Feed(TimerFired{.id = needed.timer->id});
  EXPECT_EQ(needed.state.phase(), Phase::kFailed);
  EXPECT_EQ(Of<Finish>(needed.all).back().status.message(), "executor a0: it has not measured itself in 300 s");
}

TEST(RunStatePreparationTest, UnfitSpareDoesNotEndTheRun) {
  const Calibrated error{.name = "s0", .status = absl::InternalError("no such file")};
  for (const bool running : {true, false}) {
    RunStateHarness run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
    if (!running) run.ignores = Is<StartCalibration>;
    for (const char* name : {"a0", "b0"}) run.Join(name);
    run.Join("s0", /*spare=*/true);
    if (running) run.Step(1);
    run.Feed(error);
    EXPECT_EQ(run.state.phase(), running ? Phase::kRunning : Phase::kCalibrating);
    EXPECT_FALSE(run.state.executors().contains("s0"));
    ASSERT_EQ(Of<EmitEvent>(run.all).back().reason, "ExecutorLost");
    EXPECT_THAT(Of<EmitEvent>(run.all).back().message, ::testing::AllOf(HasSubstr("s0"), HasSubstr("cannot take part: no such file")));
    run.Join("s0", /*spare=*/true);
    EXPECT_FALSE(run.state.executors().contains("s0")) << "the same process dialled again";
    run.Join("s0", /*spare=*/true, 100, /*incarnation=*/2);
    EXPECT_TRUE(run.state.executors().contains("s0")) << "started again, perhaps with what it missed";
  }
}

TEST(RunStatePreparationTest, ASpareThatCannotTakePartIsNotAwaited) {
  RunStateHarness run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.Join("s0", /*spare=*/true);
  run.Feed(Calibrated{.name = "s0", .status = absl::InternalError("no such file")});
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  for (const char* name : {"a0", "b0"}) run.Join(name);
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
}

TEST(RunStatePreparationTest, AnUnknownMachineThatCannotTakePartIsTurnedAwayAndTheRunWaitsForAnother) {
  RunStateHarness run({.min_executors = 2, .total_steps = 100}, {"d", "e"});
  run.ignores = Is<StartCalibration>;
  run.Join("a");
  run.Feed(Calibrated{.name = "a", .status = absl::InternalError("no AVX2")});
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "another one may come";
  for (const char* name : {"b", "c"}) run.Join(name);
  ASSERT_EQ(run.state.phase(), Phase::kCalibrating);
  run.Join("d");
  run.Feed(Calibrated{.name = "b", .status = absl::InternalError("no AVX2")});
  EXPECT_EQ(run.state.phase(), Phase::kCalibrating) << "c and d are enough";
  run.Feed(Calibrated{.name = "c", .status = absl::InternalError("no AVX2")});
  EXPECT_EQ(run.state.phase(), Phase::kCalibrating) << "d is asked";
  run.Feed(Calibrated{.name = "d", .profile_document = "{}"});
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "d is one too few";
  EXPECT_TRUE(Of<Finish>(run.all).empty());
  std::vector<std::string> turned_away;
  for (const Reject& order : Of<Reject>(run.all)) turned_away.push_back(order.name);
  EXPECT_EQ(turned_away, (std::vector<std::string>{"a", "b", "c"}));
  run.ignores = nullptr;
  run.Join("e");
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"d", "e"}));
}

TEST(RunStatePreparationTest, ARestartedStageThatCannotTakePartIsReplaced) {
  RunStateHarness run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  for (const char* name : {"a0", "b0"}) run.Join(name);
  run.Join("s0", /*spare=*/true);
  run.ignores = Is<SendAssign>;
  run.Join("b0", /*spare=*/false, 100, /*incarnation=*/2);
  run.Feed(StageEnded{.epoch = 1, .name = "a0", .status = absl::CancelledError("told to")});
  ASSERT_EQ(run.state.phase(), Phase::kLoading);
  run.ignores = nullptr;
  run.Feed(Calibrated{.name = "b0", .status = absl::InternalError("no such file")});
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"a0", "s0"}));
}

TEST(RunStatePreparationTest, OneMeasuresAtATimeDespiteLosses) {
  RunStateHarness run(Options({"a0", "b0", "c0"}), {"a0", "b0"});
  run.ignores = [](const Action& action) { return Is<StartCalibration>(action) || Is<StartLinkProbe>(action); };
  for (const char* name : {"a0", "b0", "c0"}) run.Join(name);
  const auto asked = [&] {
    std::vector<std::string> names;
    for (const StartCalibration& ask : Of<StartCalibration>(run.all)) names.push_back(ask.name);
    return names;
  };
  const Calibrated a0{.name = "a0", .profile_document = "{}", .status = {}}, b0{.name = "b0", .profile_document = "{}", .status = {}};
  run.Feed(ExecutorLeft{.name = "c0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(asked(), std::vector<std::string>{"a0"}) << "a0 is still measuring";
  run.Join("c0", /*spare=*/false, 100, /*incarnation=*/2);
  run.Feed(b0);
  EXPECT_EQ(asked(), std::vector<std::string>{"a0"}) << "nobody has asked b0";
  run.Feed(a0);
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(asked(), (std::vector<std::string>{"a0", "b0", "c0"})) << "whoever was asked has gone";
  run.Feed(Calibrated{.name = "c0", .profile_document = "{}", .status = {}});
  ASSERT_EQ(Of<StartLinkProbe>(run.all).size(), 1u);
  run.Join("b0", /*spare=*/false, 100, /*incarnation=*/2);
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 2, .why = "killed"});
  EXPECT_EQ(Of<StartLinkProbe>(run.all).size(), 1u) << "a0 and c0 are still measuring";
  run.Feed(ExecutorLeft{.name = "c0", .incarnation = 2, .why = "killed"});
  run.Feed(TimerFired{.id = run.timer->id});  // for neither is started again
  EXPECT_EQ(run.state.phase(), Phase::kRunning) << "over a0 alone";
}

TEST(RunStatePreparationTest, OnlyTheAnswerToTheLastQuestionCounts) {
  for (const bool refused : {false, true}) {
    RunStateHarness run(Options({"a0", "b0", "c0"}), {"a0", "b0", "c0"});
    run.ignores = Is<RequestPlan>;
    for (const char* name : {"a0", "b0", "c0"}) run.Join(name);
    run.Feed(ExecutorLeft{.name = "c0", .incarnation = 1, .why = "killed"});
    run.Feed(TimerFired{.id = run.timer->id});  // it is not started again
    const auto asked = Of<RequestPlan>(run.all);
    ASSERT_EQ(asked.size(), 2u);
    // Of three devices there would have been room for two.
    const RunPlan plan{.document = "{}", .devices = {"a0", "b0"}};
    if (refused) run.Feed(PlanRefused{.id = asked[0].id, .reason = "InsufficientMemory", .message = "late"});
    if (!refused) run.Feed(Planned{.id = asked[0].id, .plan = plan});
    EXPECT_EQ(run.state.phase(), Phase::kPlanning);
    run.Feed(Planned{.id = asked[1].id, .plan = plan});
    EXPECT_EQ(run.state.phase(), Phase::kRunning);
    EXPECT_EQ(run.state.epoch(), 1u);
  }
}

TEST(RunStatePreparationTest, AnExecutorThatIsLostBeforeTheFirstPlanIsAwaited) {
  for (const bool comes_back : {true, false}) {
    RunStateHarness run(Options({"a0", "b0", "c0"}), {"a0", "b0", "c0"});
    run.ignores = Is<RequestPlan>;
    for (const char* name : {"a0", "b0", "c0"}) run.Join(name);
    const auto asked = Of<RequestPlan>(run.all);
    ASSERT_EQ(asked.size(), 1u);
    run.Feed(ExecutorLeft{.name = "c0", .incarnation = 1, .why = "killed"});
    run.Feed(PlanRefused{.id = asked[0].id, .reason = "TooFewExecutors", .message = "late"});
    EXPECT_EQ(run.state.phase(), Phase::kGathering);
    EXPECT_EQ(Of<RequestPlan>(run.all).size(), 1u) << "of two, while the third is being started again";
    run.ignores = nullptr;
    ASSERT_TRUE(run.timer.has_value());
    if (comes_back) run.Join("c0", /*spare=*/false, 100, /*incarnation=*/2);
    if (!comes_back) run.Feed(TimerFired{.id = run.timer->id});
    EXPECT_EQ(run.state.phase(), Phase::kRunning);
    EXPECT_EQ(run.state.plan().devices.size(), comes_back ? 3u : 2u);
  }
}

TEST(RunStatePreparationTest, AnExecutorThatIsLostAsTheLastOneMeasuresIsAwaited) {
  RunStateHarness run(Options({"a0", "b0", "c0"}), {"a0", "b0", "c0"});
  run.ignores = [](const Action& action) {
    const auto* ask = std::get_if<StartCalibration>(&action);
    return ask != nullptr && ask->name == "c0";
  };
  for (const char* name : {"a0", "b0", "c0"}) run.Join(name);
  run.Feed(ExecutorLeft{.name = "c0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  EXPECT_TRUE(Of<RequestPlan>(run.all).empty());
  run.ignores = nullptr;
  run.Join("c0", /*spare=*/false, 100, /*incarnation=*/2);
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices.size(), 3u);
}

TEST(RunStatePreparationTest, DoesNotWaitAfterJoinTimeout) {
  RunStateHarness run(Options({"a0", "b0", "c0"}), {"a0", "b0"});
  run.ignores = Is<RequestPlan>;
  for (const char* name : {"a0", "b0"}) run.Join(name);
  run.Feed(JoinTimeout{});
  run.ignores = nullptr;
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, std::vector<std::string>{"a0"});
}

TEST(RunStatePreparationTest, WhereTheTimeToGatherIsOverBeforeAnybodyCameTheFirstOneIsEnough) {
  RunStateHarness run({.min_executors = 2, .total_steps = 100}, {"a", "b"});
  run.Feed(JoinTimeout{});
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  run.Join("a");
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, std::vector<std::string>{"a"});
}

TEST(RunStatePreparationTest, AnOpenRunThatHasLostOneOfTooFewWaitsForAnother) {
  RunStateHarness run({.min_executors = 2, .total_steps = 100}, {"a", "b", "c"});
  run.ignores = Is<RequestPlan>;
  for (const char* name : {"a", "b"}) run.Join(name);
  ASSERT_EQ(run.state.phase(), Phase::kPlanning);
  run.Feed(ExecutorLeft{.name = "b", .incarnation = 1, .why = "gone"});
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  run.Feed(TimerFired{.id = run.timer->id});  // of the question
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "whoever starts executors by hand is not hurried";
  run.ignores = nullptr;
  run.Join("c");
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"a", "c"}));
}

TEST(RunStatePreparationTest, ALostDataDeviceIsAwaitedForAWhileAndEndsTheRunWhereItDoesNotComeBack) {
  for (const bool gathering : {true, false}) {
    for (const bool comes_back : {true, false}) {
      RunOptions options = Options({"local-0"});
      options.min_executors = 3;
      options.data_devices = {"local-0"};
      RunStateHarness run(options, {"local-0", "x", "y"});
      run.ignores = Is<RequestPlan>;
      for (const char* name : {"local-0", "x"}) run.Join(name);
      if (!gathering) run.Join("y");
      ASSERT_EQ(run.state.phase(), gathering ? Phase::kGathering : Phase::kPlanning);
      run.Feed(ExecutorLeft{.name = "local-0", .incarnation = 1, .why = "killed"});
      if (gathering) run.Join("y");
      EXPECT_EQ(run.state.phase(), Phase::kGathering) << "without data there is no plan";
      run.ignores = nullptr;
      ASSERT_TRUE(run.timer.has_value());
      if (comes_back) run.Join("local-0", /*spare=*/false, 100, /*incarnation=*/2);
      if (!comes_back) run.Feed(TimerFired{.id = run.timer->id});
      EXPECT_EQ(run.state.phase(), comes_back ? Phase::kRunning : Phase::kFailed);
      if (comes_back) continue;
      EXPECT_EQ(Of<Finish>(run.all).back().status.message(), "local-0, which alone has the training data, was lost before the first plan");
    }
  }
}

// An open run of three, of which local-0 has the data; what is said of links with `unreachable` is that there is no answer.
RunStateHarness OpenRunWith(const std::string& unreachable, const std::vector<Executor>& joined) {
  RunOptions options = Options({"local-0"});
  options.min_executors = 3;
  options.data_devices = {"local-0"};
  RunStateHarness run(options, {"local-0", "good", "adv", "other"});
  run.ignores = [unreachable](const Action& action) {
    const auto* ask = std::get_if<StartLinkProbe>(&action);
    return ask != nullptr && (ask->src == unreachable || ask->dst == unreachable);
  };
  run.Join("local-0");
  for (Executor executor : joined) {
    executor.site = executor.name;
    executor.incarnation = 1;
    run.Feed(ExecutorJoined{.executor = executor});
  }
  return run;
}

LinkProbed Unanswered(const StartLinkProbe& probe) {
  return {.link = {.src = probe.src, .dst = probe.dst}, .status = absl::UnavailableError(probe.dst + " did not answer")};
}

TEST(RunStatePreparationTest, RejectsUnreachableMachineAndWaitsForAnother) {
  RunStateHarness run = OpenRunWith(
      "adv", {{.name = "good", .data_address = "relay:good", .at_relay = true}, {.name = "adv", .data_address = "far.example:9"}});
  ASSERT_EQ(run.state.phase(), Phase::kProbing);
  EXPECT_EQ(Of<StartLinkProbe>(run.all).back().src, "local-0") << "where it fails, adv is at fault";
  run.Feed(Unanswered(Of<StartLinkProbe>(run.all).back()));
  EXPECT_THAT(Of<Reject>(run.all), ::testing::IsEmpty()) << "it may have been killed, which is told in a moment";
  run.Feed(Unanswered(Of<StartLinkProbe>(run.all).back()));
  ASSERT_EQ(Of<Reject>(run.all).size(), 1u);
  EXPECT_EQ(Of<Reject>(run.all)[0].name, "adv");
  const auto says_why =
      ::testing::AllOf(HasSubstr("cannot reach adv at far.example:9"), HasSubstr("did not answer"), HasSubstr("--advertise"));
  EXPECT_THAT(Of<Reject>(run.all)[0].why, says_why);
  EXPECT_EQ(Of<EmitEvent>(run.all).back().reason, "ExecutorLost");
  EXPECT_THAT(Of<EmitEvent>(run.all).back().message, says_why);
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "two of three are left";
  run.Feed(ExecutorJoined{.executor = {.name = "adv", .incarnation = 1, .site = "adv"}});
  EXPECT_FALSE(run.state.executors().contains("adv")) << "the same process dialled again";
  run.ignores = nullptr;
  run.Join("other");
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"local-0", "good", "other"}));
}

TEST(RunStatePreparationTest, WhoMustBeDialledIsAtFaultBeforeWhoDialsOut) {
  const Executor out{.name = "b", .data_address = "relay:b", .at_relay = true}, dialled{.name = "a", .data_address = "a.example:1"};
  for (const bool first : {true, false}) {
    RunStateHarness run = OpenRunWith("", {});
    run.ignores = [first](const Action& action) {
      const auto* ask = std::get_if<StartLinkProbe>(&action);
      return ask != nullptr && ask->src == (first ? "a" : "b") && ask->dst == (first ? "b" : "a");
    };
    for (Executor executor : {out, dialled}) {
      executor.site = executor.name;
      run.Feed(ExecutorJoined{.executor = executor});
    }
    for (int i = 0; i < 2; ++i) run.Feed(Unanswered(Of<StartLinkProbe>(run.all).back()));
    ASSERT_EQ(Of<Reject>(run.all).size(), 1u);
    EXPECT_EQ(Of<Reject>(run.all)[0].name, "a");
  }
}

TEST(RunStatePreparationTest, ProbeFailureOfKilledPeerBlamesNoExecutor) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.ignores = Is<StartLinkProbe>;
  for (const char* name : {"a0", "b0"}) run.Join(name);
  run.Feed(Unanswered(Of<StartLinkProbe>(run.all).back()));
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  run.Join("b0", /*spare=*/false, 100, /*incarnation=*/2);
  run.Feed(Unanswered(Of<StartLinkProbe>(run.all).back()));
  EXPECT_EQ(run.state.phase(), Phase::kProbing) << "the first failure of this life of b0";
  run.Feed(Unanswered(Of<StartLinkProbe>(run.all).back()));
  EXPECT_EQ(run.state.phase(), Phase::kFailed) << "both are needed";
  EXPECT_THAT(std::string(Of<Finish>(run.all).back().status.message()),
              HasSubstr("a0 cannot reach b0 (probe a0 -> b0: b0 did not answer)"));
}

TEST(RunStatePreparationTest, OfSitesThatDoNotReachEachOtherItIsSaidWhatDoes) {
  const auto last_word = [](const std::string& other_site, bool at_relay) {
    RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
    run.ignores = Is<StartLinkProbe>;
    run.Feed(
        ExecutorJoined{.executor = {.name = "a0", .incarnation = 1, .site = "paris", .data_address = "10.1.0.4:1", .at_relay = at_relay}});
    run.Feed(ExecutorJoined{
        .executor = {.name = "b0", .incarnation = 1, .site = other_site, .data_address = "10.2.0.9:1", .at_relay = at_relay}});
    for (int i = 0; i < 2; ++i) run.Feed(Unanswered(Of<StartLinkProbe>(run.all).back()));
    EXPECT_EQ(run.state.phase(), Phase::kFailed);
    return std::string(Of<Finish>(run.all).back().status.message());
  };
  const std::string apart = last_word("oslo", /*at_relay=*/false);
  EXPECT_THAT(apart, HasSubstr("a0 cannot reach b0 at 10.2.0.9:1"));
  EXPECT_THAT(apart, HasSubstr("paris and oslo"));
  EXPECT_THAT(apart, HasSubstr("spec.network.mode: Relay"));
  EXPECT_THAT(last_word("paris", /*at_relay=*/false), ::testing::Not(HasSubstr("Relay"))) << "Pods of one cluster: something else is wrong";
  EXPECT_THAT(last_word("oslo", /*at_relay=*/true), ::testing::Not(HasSubstr("Relay"))) << "they meet there already";
}

TEST(RunStatePreparationTest, RejectsPlanOverUnknownDevices) {
  RunStateHarness run(Options({"a0"}), {"a0"});
  run.refine_plan = [](const RequestPlan&, RunPlan& plan) { plan.devices = {"x0"}; };
  run.Join("a0");
  EXPECT_EQ(run.state.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run.all).back().status.message()), HasSubstr("uses x0"));
}

}  // namespace
}  // namespace fusionllm::broker
