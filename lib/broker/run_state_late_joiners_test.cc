// A run that goes on with fewer executors than it wants, and what it does with those that come.
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Of;
using testing::Options;
using testing::RunStateHarness;
using ::testing::SizeIs;

// Three stages of a model that takes 1.2 s on one device, each device at a site of its own unless it says otherwise.
class ShortRun : public ::testing::Test {
 protected:
  using Names = std::vector<std::string>;

  void Begin(RunOptions options, const Names& names = {"a0", "b0", "c0"}) {
    run_.emplace(std::move(options), Names{"a0", "b0", "c0", "s0", "x0"});
    run_->refine_plan = [this](const RequestPlan& ask, RunPlan& plan) {
      if (plan.devices.size() > 3) plan.devices.resize(3);
      const double step_s = StepSeconds(plan.devices.size());
      testing::SetStages(plan, std::vector<double>(plan.devices.size(), step_s), RunStateHarness::kPlannedMemoryBytes);
      plan.plan.predicted_step_seconds = ask.alternative > 0 && promise_s_ > 0 ? promise_s_ : step_s;
    };
    for (const std::string& name : names) run_->Join(name, /*spare=*/name[0] == 's');
    ASSERT_EQ(state().phase(), Phase::kRunning);
  }
  static RunOptions Long(std::set<std::string> expected = {"a0", "b0", "c0"}) {
    RunOptions options = Options(std::move(expected));
    options.total_steps = 1000;
    return options;
  }
  static double StepSeconds(size_t stages) { return 1.2 / static_cast<double>(stages); }

  RunState& state() { return run_->state; }
  const Names& devices() { return run_->state.plan().devices; }
  void Lose(const std::string& name, uint64_t incarnation = 1) {
    run_->Feed(ExecutorLeft{.name = name, .incarnation = incarnation, .why = "killed"});
  }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) {
      const int64_t step = state().last_step() + 1;
      const double seconds = StepSeconds(devices().size());
      run_->Step(step, 3, seconds);
      for (const std::string& device : devices()) {
        run_->Feed(StageMeasured{.epoch = state().epoch(), .name = device, .step = step, .busy_s = seconds});
      }
    }
  }
  // b0 was lost without a spare, and is back.
  void LoseAndReturn() {
    Steps(10);
    run_->SaveShards(10);
    Lose("b0");
    ASSERT_THAT(devices(), ElementsAre("a0", "c0"));
    Steps(3);
    run_->Join("b0", /*spare=*/false, 100, /*incarnation=*/2);
  }

  std::optional<RunStateHarness> run_;
  double promise_s_ = 0;  // of alternatives; 0: what they deserve
};

TEST_F(ShortRun, AnExecutorThatComesBackIsPlannedInAtAStepBoundary) {
  Begin(Long());
  LoseAndReturn();
  EXPECT_THAT(run_->EventsNamed("ExecutorJoined").back().message, AllOf(HasSubstr("b0 joined"), HasSubstr("2 of 3 executors")));
  Steps(20);
  ASSERT_THAT(run_->Alternatives(), SizeIs(2)) << "asked, and asked again, as where something is slow";
  EXPECT_THAT(run_->Alternatives()[0].devices, ElementsAre("a0", "b0", "c0"));
  EXPECT_TRUE(run_->Alternatives()[0].current_plan.has_value());
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  const int64_t last = state().last_step();
  run_->EndAtBoundary();
  EXPECT_THAT(devices(), ElementsAre("a0", "b0", "c0"));
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, last + 1) << "nothing is lost";
  EXPECT_THAT(run_->EventsNamed("Replanned").back().message,
              AllOf(HasSubstr("3 stages"), HasSubstr("with b0"), HasSubstr("instead of 0.6 s")));
  EXPECT_EQ(state().plan().executors, 3);
  Steps(100);
  EXPECT_THAT(run_->Alternatives(), SizeIs(2)) << "the run is whole";
  EXPECT_THAT(run_->EventsNamed("ReplanDeclined"), IsEmpty());
}

TEST_F(ShortRun, AMoveThatDoesNotPayIsReportedOnceForEachJoin) {
  Begin(Long());
  promise_s_ = 0.59;
  LoseAndReturn();
  Steps(200);
  EXPECT_THAT(run_->Alternatives(), SizeIs(1));
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty());
  ASSERT_THAT(run_->EventsNamed("ReplanDeclined"), SizeIs(1));
  EXPECT_EQ(run_->EventsNamed("ReplanDeclined")[0].device, "b0");
  EXPECT_THAT(run_->EventsNamed("ReplanDeclined")[0].message, AllOf(HasSubstr("b0 stays a spare"), HasSubstr("instead of 0.6 s")));
  Lose("b0", 2);
  run_->Join("b0", /*spare=*/false, 100, /*incarnation=*/3);
  Steps(200);
  EXPECT_THAT(run_->EventsNamed("ReplanDeclined"), SizeIs(2));
  EXPECT_THAT(run_->Alternatives(), SizeIs(2));
}

TEST_F(ShortRun, WhereThePlannerWouldStayItsReasonIsReported) {
  Begin(Long());
  LoseAndReturn();
  run_->ignores = [](const Action& action) { return std::holds_alternative<RequestPlan>(action); };
  Steps(10);
  ASSERT_THAT(run_->Alternatives(), SizeIs(1));
  run_->Feed(
      AlternativePlanned{.alternative = run_->Alternatives()[0].alternative, .plan = absl::FailedPreconditionError("a move costs more")});
  ASSERT_THAT(run_->EventsNamed("ReplanDeclined"), SizeIs(1));
  EXPECT_THAT(run_->EventsNamed("ReplanDeclined")[0].message, HasSubstr("a move costs more"));
  Steps(100);
  EXPECT_THAT(run_->Alternatives(), SizeIs(1));
}

TEST_F(ShortRun, AWholeRunKeepsWhoComesAsASpare) {
  Begin(Long({"a0", "b0", "c0", "s0"}), {"a0", "b0", "c0", "s0"});
  Steps(10);
  Lose("b0");
  ASSERT_THAT(devices(), ElementsAre("a0", "s0", "c0")) << "its stage went to the spare";
  run_->Join("b0", /*spare=*/false, 100, /*incarnation=*/2);
  EXPECT_EQ(run_->EventsNamed("ExecutorJoined").back().message, "b0 joined as a spare");
  Steps(100);
  Lose("b0", 2);
  run_->Join("b0", /*spare=*/false, 100, /*incarnation=*/3);
  Steps(100);
  EXPECT_THAT(run_->Alternatives(), IsEmpty());
}

TEST_F(ShortRun, ASpareThatComesToAShortRunIsPlannedInAndTheNextOneStaysASpare) {
  Begin(Long({"a0", "b0", "c0", "s0"}), {"a0", "b0", "c0", "s0"});
  Lose("s0");
  Lose("b0");
  ASSERT_THAT(devices(), ElementsAre("a0", "c0"));
  EXPECT_EQ(state().plan().desired_executors, 3) << "the spare is not missed";
  run_->Join("s0", /*spare=*/true, 100, /*incarnation=*/2);
  Steps(20);
  run_->EndAtBoundary();
  EXPECT_THAT(devices(), ElementsAre("a0", "c0", "s0"));
  run_->Join("b0", /*spare=*/false, 100, /*incarnation=*/2);
  Steps(100);
  EXPECT_THAT(run_->Alternatives(), SizeIs(2)) << "three of three train";
  EXPECT_EQ(devices().size(), 3u);
}

TEST_F(ShortRun, WithoutCheckpointsItSaysWhyThePlanStays) {
  RunOptions options = Long();
  options.checkpoints = false;
  Begin(options);
  Steps(5);
  Lose("b0");
  run_->Join("b0", /*spare=*/false, 100, /*incarnation=*/2);
  EXPECT_THAT(run_->EventsNamed("ExecutorJoined").back().message, HasSubstr("keeps no checkpoints"));
  Steps(100);
  EXPECT_THAT(run_->Alternatives(), IsEmpty());
}

TEST_F(ShortRun, MeasuresUnknownMachineDuringTheRun) {
  Begin(Long());
  Steps(10);
  Lose("b0");
  const size_t before = run_->all.size();
  run_->Join("x0");
  Steps(20);
  const std::vector<Action> after(run_->all.begin() + static_cast<std::ptrdiff_t>(before), run_->all.end());
  ASSERT_THAT(Of<StartCalibration>(after), SizeIs(1));
  for (const StartLinkProbe& probe : Of<StartLinkProbe>(after)) EXPECT_EQ(probe.src, "x0") << "a stage sends no probe while it runs";
  EXPECT_THAT(Of<StartLinkProbe>(after), SizeIs(2));
  ASSERT_THAT(run_->Alternatives(), SizeIs(2));
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  run_->EndAtBoundary();
  std::set<std::string> probed;
  const std::vector<Action> all(run_->all.begin() + static_cast<std::ptrdiff_t>(before), run_->all.end());
  for (const StartLinkProbe& probe : Of<StartLinkProbe>(all)) probed.insert(probe.src + ">" + probe.dst);
  EXPECT_THAT(probed, ::testing::UnorderedElementsAre("x0>a0", "x0>c0", "a0>x0", "c0>x0")) << "the way there when the stages have stopped";
  EXPECT_THAT(devices(), ElementsAre("a0", "c0", "x0"));
  EXPECT_THAT(run_->EventsNamed("Replanned").back().message, HasSubstr("with x0"));
}

TEST_F(ShortRun, AMachineThatCannotBeReachedFromARunningRunEndsNothing) {
  Begin(Long());
  Lose("b0");
  run_->ignores = [](const Action& action) { return std::holds_alternative<StartLinkProbe>(action); };
  run_->Join("x0");
  Steps(3);
  const std::vector<StartLinkProbe> probes = Of<StartLinkProbe>(run_->all);
  ASSERT_EQ(probes.back().src, "x0");
  run_->Feed(LinkProbed{.link = {.src = "x0", .dst = probes.back().dst}, .status = absl::UnavailableError("no route")});
  EXPECT_EQ(state().phase(), Phase::kRunning);
  ASSERT_THAT(run_->EventsNamed("ReplanDeclined"), SizeIs(1));
  EXPECT_THAT(run_->EventsNamed("ReplanDeclined")[0].message, AllOf(HasSubstr("x0 stays"), HasSubstr("no route")));
  Steps(100);
  EXPECT_THAT(run_->Alternatives(), IsEmpty());
}

TEST_F(ShortRun, ALossWhileANewcomerMeasuresWaitsForItsFiguresNoLongerThanForAnyOthers) {
  Begin(Long());
  Lose("b0");
  run_->ignores = [](const Action& action) { return std::holds_alternative<StartCalibration>(action); };
  run_->Join("x0", /*spare=*/false, /*memory=*/10);  // too little for a stage as it is
  Steps(3);
  Lose("c0");
  ASSERT_EQ(state().phase(), Phase::kCalibrating);
  ASSERT_TRUE(run_->timer.has_value());
  EXPECT_THAT(run_->timer->what, HasSubstr("x0"));
  run_->Feed(Calibrated{.name = "x0", .profile_document = "{}", .status = {}});
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_THAT(devices(), ElementsAre("a0", "x0"));
}

TEST_F(ShortRun, ABrokerThatTakesOverKnowsThatThePlanIsShort) {
  Begin(Long());
  LoseAndReturn();
  const RunPlan plan = state().plan();
  const std::vector<Link> links = state().links();
  run_.emplace(Long(), Names{"a0", "b0", "c0"});
  run_->refine_plan = [](const RequestPlan&, RunPlan& p) { p.plan.predicted_step_seconds = StepSeconds(p.devices.size()); };
  state().Adopt(2, plan, {{"a0", "{}"}, {"b0", "{}"}, {"c0", "{}"}}, links, 13);
  for (const char* name : {"a0", "c0", "b0"}) {
    run_->Feed(ExecutorJoined{.executor = {.name = name, .incarnation = 1, .site = std::string(name, 1), .memory_bytes = 100},
                              .epoch = name == std::string("b0") ? 0u : 2u});
  }
  ASSERT_EQ(state().phase(), Phase::kRunning);
  Steps(20);
  EXPECT_THAT(run_->Alternatives(), SizeIs(2));
  EXPECT_THAT(Of<SendStop>(run_->all), SizeIs(1));
}

}  // namespace
}  // namespace fusionllm::broker
