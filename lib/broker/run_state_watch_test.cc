// A run that watches its plan, played as events: what is reported, what is asked, and that nothing is lost on the way to another plan.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/watched_run.h"

namespace fusionllm::broker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MonitoredRun;
using ::testing::Not;
using testing::Of;
using testing::Options;
using testing::Reasons;
using testing::RunStateHarness;
using ::testing::SizeIs;

// What the scheduler gets of the size that the planner chose, in the order asked.
std::vector<int64_t> SizesAsked(const RunStateHarness& run) {
  std::vector<int64_t> sizes;
  for (const RequestPlan& ask : Of<RequestPlan>(run.all)) sizes.push_back(ask.micro_batch_size);
  return sizes;
}

TEST(MicroBatchSizeOfARun, IsThatOfItsFirstPlanForAllFurtherOnes) {
  RunStateHarness run(Options({"a0", "b0", "c0"}), {"a0", "b0", "c0"});
  int64_t answered = 16;
  run.refine_plan = [&](const RequestPlan&, RunPlan& plan) { plan.plan.micro_batch_size = answered; };
  for (const char* device : {"a0", "b0", "c0"}) run.Join(device);
  run.Step(1);
  run.Feed(ExecutorLeft{.name = "c0", .incarnation = 1});
  EXPECT_THAT(SizesAsked(run), ElementsAre(0, 16));
  EXPECT_THAT(run.EventsNamed("Replanned").back().message, AllOf(HasSubstr("2 stages"), Not(HasSubstr("micro-batches"))));
  answered = 4;
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1});
  EXPECT_THAT(SizesAsked(run), ElementsAre(0, 16, 16));
  EXPECT_THAT(run.EventsNamed("Replanned").back().message, AllOf(HasSubstr("1 stage"), HasSubstr("with micro-batches of 4 instead of 16")));
}

TEST(MicroBatchSizeOfARun, IsThatOfTheCheckpointThatItGoesOnFrom) {
  RunOptions options = Options({"a0"});
  options.micro_batch_size = 8;
  RunStateHarness run(options, {"a0"});
  run.Join("a0");
  EXPECT_THAT(SizesAsked(run), ElementsAre(8));
}

// ---- Slowdowns --------------------------------------------------------------------------------------------------------------------------

TEST_F(MonitoredRun, ReplacesStragglerWithoutLosingAStep) {
  Start(WithSpare());
  alternative_devices_ = {"a0", "s0"};
  Steps(20);
  Steps(5, /*busy_b0=*/1.2, 1, /*seconds=*/1.8);
  ASSERT_THAT(run_->EventsNamed("Straggler"), SizeIs(1));
  EXPECT_EQ(run_->EventsNamed("Straggler")[0].device, "b0");
  EXPECT_EQ(run_->EventsNamed("Straggler")[0].stage, 1);
  EXPECT_DOUBLE_EQ(*run_->EventsNamed("Straggler")[0].measured, 1.2);
  EXPECT_DOUBLE_EQ(*run_->EventsNamed("Straggler")[0].planned, 0.4);
  ASSERT_THAT(run_->Alternatives(), SizeIs(1));
  EXPECT_THAT(run_->Alternatives()[0].devices, Contains("s0")) << "what spares are for";
  EXPECT_NEAR(run_->Alternatives()[0].slowness.at("b0"), 3, 1e-9);
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty()) << "once is not enough";

  Steps(10, 1.2, 1, 1.8);
  ASSERT_THAT(run_->Alternatives(), SizeIs(2));
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  EXPECT_EQ(Of<SendStop>(run_->all)[0].epoch, 1u);
  Step(1.2, 1, 3, 1.8);  // the stages end where they are, not where the broker was
  const int64_t last = state().last_step();
  const size_t before = run_->all.size();
  run_->EndAtBoundary();
  const std::vector<Action> after(run_->all.begin() + static_cast<std::ptrdiff_t>(before), run_->all.end());
  EXPECT_THAT(Reasons(after), ElementsAre("CheckpointSaved", "Replanned", "Restored"));
  EXPECT_THAT(Of<EmitEvent>(after)[1].message, AllOf(HasSubstr("a0, s0"), HasSubstr("1 s a step instead of 1.8 s")));
  for (const SendAssign& assign : Of<SendAssign>(after)) EXPECT_EQ(assign.first_step, last + 1);
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(state().epoch(), 2u);
  EXPECT_EQ(state().plan().devices, (std::vector<std::string>{"a0", "s0"}));
  Steps(50);
  EXPECT_THAT(run_->EventsNamed("Straggler"), SizeIs(1));
  EXPECT_THAT(run_->Alternatives(), SizeIs(2)) << "nothing is slow any more";
}

TEST_F(MonitoredRun, ThePlannerHearsOfThePlanInForceAndItsDoubtStartsTheCountAgain) {
  Start(WithSpare());
  alternative_devices_ = {"a0", "s0"};
  Steps(20);
  Steps(5, /*busy_b0=*/1.2, 1, /*seconds=*/1.8);
  ASSERT_THAT(run_->Alternatives(), SizeIs(1));
  const std::optional<CurrentPlan> current_plan = run_->Alternatives()[0].current_plan;
  ASSERT_TRUE(current_plan.has_value());
  EXPECT_EQ(current_plan->devices, (std::vector<std::string>{"a0", "b0"}));
  EXPECT_EQ(current_plan->document, state().plan().document);
  EXPECT_EQ(current_plan->steps_left, 1000 - state().last_step());
  EXPECT_NEAR(current_plan->step_s, 1.8, 1e-9);
  EXPECT_GT(current_plan->move_s, 0);

  run_->ignores = [](const Action& action) { return std::holds_alternative<RequestPlan>(action); };
  while (run_->Alternatives().size() < 2) Step(1.2, 1, 3, 1.8);
  run_->Feed(AlternativePlanned{.alternative = run_->Alternatives()[1].alternative, .plan = absl::FailedPreconditionError("staying")});
  run_->ignores = nullptr;
  while (run_->Alternatives().size() < 3) Step(1.2, 1, 3, 1.8);
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty()) << "found once since the doubt";
  while (run_->Alternatives().size() < 4) Step(1.2, 1, 3, 1.8);
  EXPECT_THAT(Of<SendStop>(run_->all), SizeIs(1));
}

TEST_F(MonitoredRun, NothingMovesForNoGain) {
  Start(WithSpare());
  Steps(10);
  alternative_step_s_ = 1.75;  // against 1.8: less than predictions are good for
  Steps(100, 1.2, 1, 1.8);
  EXPECT_THAT(run_->EventsNamed("Straggler"), SizeIs(1));
  EXPECT_GE(run_->Alternatives().size(), 3u);
  EXPECT_LE(run_->Alternatives().size(), 6u) << "the scheduler is not asked at every step";
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty());
}

TEST_F(MonitoredRun, NothingMovesForTheLastStepsOfARun) {
  Start(WithSpare(/*total_steps=*/30));
  Steps(20);
  Steps(9, 1.2, 1, 1.8);
  EXPECT_THAT(run_->EventsNamed("Straggler"), SizeIs(1));
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty());
}

TEST_F(MonitoredRun, APlanThatNoSpareCouldKeepUpWithIsForgottenWhenTheSlowdownEnds) {
  Start(WithSpare());
  Steps(10);
  Steps(6, 1.2, 1, 1.8);
  EXPECT_THAT(run_->Alternatives(), SizeIs(1));
  Steps(20);
  EXPECT_THAT(run_->EventsNamed("StragglerRecovered"), SizeIs(1));
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty());
  Steps(6, 1.2, 1, 1.8);
  EXPECT_THAT(run_->EventsNamed("Straggler"), SizeIs(2));
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty()) << "the two findings were not in a row";
}

TEST_F(MonitoredRun, WithoutCheckpointsItOnlyTells) {
  RunOptions options = WithSpare();
  options.checkpoints = false;
  Start(options);
  Steps(10);
  Steps(100, 1.2, 1, 1.8);
  ASSERT_THAT(run_->EventsNamed("Straggler"), SizeIs(1));
  EXPECT_THAT(run_->EventsNamed("Straggler")[0].message, HasSubstr("keeps no checkpoints"));
  EXPECT_THAT(run_->Alternatives(), IsEmpty());
}

TEST_F(MonitoredRun, ReplansAroundDegradedLinkByMeasuredRate) {
  Start(WithSpare());
  Steps(20);
  Steps(20, 0.4, /*rate=*/0.25, /*seconds=*/1.8);
  ASSERT_THAT(run_->EventsNamed("LinkDegraded"), SizeIs(1));
  EXPECT_EQ(run_->EventsNamed("LinkDegraded")[0].device, "a0");
  EXPECT_EQ(run_->EventsNamed("LinkDegraded")[0].peer, "b0");
  EXPECT_DOUBLE_EQ(*run_->EventsNamed("LinkDegraded")[0].measured, 0.25 * kBytesPerSecond);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  const auto& links = state().links();
  const auto link = std::find_if(links.begin(), links.end(), [](const Link& l) { return l.src == "a0" && l.dst == "b0"; });
  ASSERT_NE(link, links.end());
  EXPECT_DOUBLE_EQ(link->bytes_per_s, 0.25 * kBytesPerSecond);
  EXPECT_THAT(run_->Alternatives()[0].devices, Not(Contains("s0"))) << "no device is to blame";
  run_->EndAtBoundary();
  EXPECT_THAT(run_->EventsNamed("Replanned"), SizeIs(1));
  Steps(50, 0.4, 0.25);
  EXPECT_THAT(run_->EventsNamed("LinkDegraded"), SizeIs(1)) << "the new plan counts on what there is";
}

TEST_F(MonitoredRun, APlanIsNotTakenWhenItsDevicesHaveGone) {
  Start(WithSpare());
  alternative_devices_ = {"a0", "s0"};
  Steps(20);
  Steps(15, 1.2, 1, 1.8);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  run_->Feed(ExecutorLeft{.name = "s0", .incarnation = 1, .why = "killed"});
  run_->EndAtBoundary();
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(state().plan().devices, (std::vector<std::string>{"a0", "b0"})) << "asked for anew, over those who are left";
}

TEST_F(MonitoredRun, TheBoundaryMayBeTheEndOfTheRun) {
  Start(WithSpare(/*total_steps=*/100));
  alternative_step_s_ = 0.1;
  Steps(20);
  Steps(15, 1.2, 1, 1.8);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  while (state().last_step() < 100) Step(1.2, 1, 3, 1.8);  // the order came too late
  run_->EndAtBoundary();
  EXPECT_EQ(state().phase(), Phase::kDone);
  EXPECT_FALSE(Of<Finish>(run_->all).back().interrupted);
}

TEST_F(MonitoredRun, AUserWhoStopsTheRunGoesBeforeAnyMove) {
  Start(WithSpare());
  Steps(20);
  Steps(15, 1.2, 1, 1.8);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  run_->Feed(StopRequested{});
  run_->EndAtBoundary();
  EXPECT_EQ(state().phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run_->all).back().interrupted);
}

TEST_F(MonitoredRun, ABoundaryCheckpointThatFailsCostsTheStepsSinceTheLastOne) {
  Start(WithSpare());
  Steps(10);
  run_->SaveShards(10);
  Steps(10);
  Steps(15, 1.2, 1, 1.8);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  for (int stage = 0; stage < 2; ++stage) {
    run_->Feed(run_->Shard(state().last_step(), stage, absl::ResourceExhaustedError("disk full")));
  }
  run_->EndAll(state().last_step());
  EXPECT_THAT(run_->EventsNamed("CheckpointFailed"), SizeIs(1));
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, 11);
}

TEST_F(MonitoredRun, ABrokerThatComesBackAtTheBoundaryAsksForAPlan) {
  run_.emplace(WithSpare(), std::vector<std::string>{"a0", "b0"});
  state().Adopt(3, {.document = "{}", .devices = {"a0", "b0"}}, {{"a0", "{}"}, {"b0", "{}"}, {"s0", "{}"}}, {}, 20, {},
                {{"a0", 20}, {"b0", 20}}, "int8");
  for (const char* name : {"a0", "b0"}) run_->Feed(ExecutorJoined{.executor = {.name = name, .incarnation = 1}, .epoch = 3});
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(state().epoch(), 4u);
  ASSERT_THAT(Of<RequestPlan>(run_->all), SizeIs(1));
  EXPECT_EQ(Of<RequestPlan>(run_->all)[0].codec_limit, "int8");
}

}  // namespace
}  // namespace fusionllm::broker
