// A run that watches itself, played as events: what is told, what is asked, and that nothing is lost on the way to another plan.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/drill.h"

namespace fusionllm::broker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::Drill;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Of;
using testing::Options;
using testing::Reasons;
using ::testing::SizeIs;

// What the scheduler is told of the size that the planner chose, in the order asked.
std::vector<int64_t> SizesAsked(const Drill& run) {
  std::vector<int64_t> sizes;
  for (const AskPlan& ask : Of<AskPlan>(run.all)) sizes.push_back(ask.micro_batch_size);
  return sizes;
}

TEST(MicroBatchSizeOfARun, IsThatOfItsFirstPlanForAllFurtherOnes) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
  int64_t answered = 16;
  run.refine_plan = [&](const AskPlan&, PlanSummary& plan) { plan.micro_batch_size = answered; };
  run.Join("a0");
  run.Join("b0");
  run.Step(1);
  run.Feed(Left{.name = "b0", .incarnation = 1});
  EXPECT_THAT(SizesAsked(run), ElementsAre(0, 16));
  EXPECT_THAT(run.Told("Replanned").back().message, Not(HasSubstr("micro-batches")));
  answered = 4;
  run.Join("b0", /*spare=*/false, /*memory=*/100, /*incarnation=*/2);
  run.Feed(Left{.name = "a0", .incarnation = 1});
  EXPECT_EQ(SizesAsked(run).back(), 16);
  EXPECT_THAT(run.Told("Replanned").back().message, HasSubstr("with micro-batches of 4 instead of 16"));
}

TEST(MicroBatchSizeOfARun, IsThatOfTheCheckpointThatItGoesOnFrom) {
  RunOptions options = Options({"a0"});
  options.micro_batch_size = 8;
  Drill run(options, {"a0"});
  run.Join("a0");
  EXPECT_THAT(SizesAsked(run), ElementsAre(8));
}

// Two stages of 0.4 s each, at one site each, and a link between them that needs 0.2 s of a step of 1 s; a spare that nobody needs yet.
class WatchedRun : public ::testing::Test {
 protected:
  void Start(RunOptions options, const std::string& codec = "fp32") {
    run_.emplace(std::move(options), std::vector<std::string>{"a0", "b0"});
    run_->refine_plan = [this, codec](const AskPlan& ask, PlanSummary& plan) {
      plan.predicted_step_s = ask.alternative > 0 ? alternative_step_s_ : 1;
      plan.stage_busy_s.assign(plan.devices.size(), 0.4);
      const std::string used = ask.codec_limit.empty() ? codec : ask.codec_limit;
      plan.links = {{.src_seat = 0, .dst_seat = 1, .codec = used, .bytes = 0.2}};
      if (ask.alternative > 0 && !alternative_devices_.empty()) plan.devices = alternative_devices_;
    };
    run_->Join("a0");
    run_->Join("b0");
    run_->Join("s0", /*spare=*/true);
    ASSERT_EQ(state().phase(), Phase::kRunning);
  }
  RunOptions WithSpare(int64_t total_steps = 1000) {
    RunOptions options = Options({"a0", "b0", "s0"});
    options.total_steps = total_steps;
    return options;
  }
  RunState& state() { return run_->state; }

  // One whole step; the links of the drill carry 1 byte/s by the probe.
  void Step(double busy_b0 = 0.4, double rate = 1, float loss = 3, double seconds = 1) {
    const int64_t step = state().last_step() + 1;
    run_->Step(step, loss, seconds);
    for (const std::string& device : state().plan().devices) {
      run_->Feed(StageMeasured{.epoch = state().epoch(),
                               .name = device,
                               .step = step,
                               .busy_s = device == "b0" ? busy_b0 : 0.4,
                               .rates = {{"b0", {rate, step}}, {"s0", {rate, step}}}});
    }
  }
  void Steps(int count, double busy_b0 = 0.4, double rate = 1, double seconds = 1) {
    for (int i = 0; i < count; ++i) Step(busy_b0, rate, 3, seconds);
  }

  std::optional<Drill> run_;
  double alternative_step_s_ = 1;
  std::vector<std::string> alternative_devices_;
};

// ---- Drift ------------------------------------------------------------------------------------------------------------------------------

TEST_F(WatchedRun, AStragglerIsToldAndReplacedWhereThatPaysWithoutLosingAStep) {
  Start(WithSpare());
  alternative_devices_ = {"a0", "s0"};
  Steps(20);
  Steps(5, /*busy_b0=*/1.2, 1, /*seconds=*/1.8);
  ASSERT_THAT(run_->Told("Straggler"), SizeIs(1));
  EXPECT_EQ(run_->Told("Straggler")[0].device, "b0");
  EXPECT_EQ(run_->Told("Straggler")[0].stage, 1);
  EXPECT_DOUBLE_EQ(*run_->Told("Straggler")[0].measured, 1.2);
  EXPECT_DOUBLE_EQ(*run_->Told("Straggler")[0].planned, 0.4);
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
  EXPECT_THAT(Of<Announce>(after)[1].message, AllOf(HasSubstr("a0, s0"), HasSubstr("1 s a step instead of 1.8 s")));
  for (const SendAssign& assign : Of<SendAssign>(after)) EXPECT_EQ(assign.first_step, last + 1);
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(state().epoch(), 2u);
  EXPECT_EQ(state().plan().devices, (std::vector<std::string>{"a0", "s0"}));
  Steps(50);
  EXPECT_THAT(run_->Told("Straggler"), SizeIs(1));
  EXPECT_THAT(run_->Alternatives(), SizeIs(2)) << "nothing drifts any more";
}

TEST_F(WatchedRun, ThePlannerHearsOfThePlanInForceAndItsDoubtStartsTheCountAgain) {
  Start(WithSpare());
  alternative_devices_ = {"a0", "s0"};
  Steps(20);
  Steps(5, /*busy_b0=*/1.2, 1, /*seconds=*/1.8);
  ASSERT_THAT(run_->Alternatives(), SizeIs(1));
  const std::optional<PlanInForce> in_force = run_->Alternatives()[0].in_force;
  ASSERT_TRUE(in_force.has_value());
  EXPECT_EQ(in_force->devices, (std::vector<std::string>{"a0", "b0"}));
  EXPECT_EQ(in_force->document, state().plan().document);
  EXPECT_EQ(in_force->steps_left, 1000 - state().last_step());
  EXPECT_NEAR(in_force->step_s, 1.8, 1e-9);
  EXPECT_GT(in_force->move_s, 0);

  run_->ignores = [](const Action& action) { return std::holds_alternative<AskPlan>(action); };
  while (run_->Alternatives().size() < 2) Step(1.2, 1, 3, 1.8);
  run_->Feed(AlternativePlanned{.alternative = run_->Alternatives()[1].alternative, .plan = absl::FailedPreconditionError("staying")});
  run_->ignores = nullptr;
  while (run_->Alternatives().size() < 3) Step(1.2, 1, 3, 1.8);
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty()) << "found once since the doubt";
  while (run_->Alternatives().size() < 4) Step(1.2, 1, 3, 1.8);
  EXPECT_THAT(Of<SendStop>(run_->all), SizeIs(1));
}

TEST_F(WatchedRun, NothingMovesForNoGain) {
  Start(WithSpare());
  Steps(10);
  alternative_step_s_ = 1.75;  // against 1.8: less than predictions are good for
  Steps(100, 1.2, 1, 1.8);
  EXPECT_THAT(run_->Told("Straggler"), SizeIs(1));
  EXPECT_GE(run_->Alternatives().size(), 3u);
  EXPECT_LE(run_->Alternatives().size(), 6u) << "the scheduler is not asked at every step";
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty());
}

TEST_F(WatchedRun, NothingMovesForTheLastStepsOfARun) {
  Start(WithSpare(/*total_steps=*/30));
  Steps(20);
  Steps(9, 1.2, 1, 1.8);
  EXPECT_THAT(run_->Told("Straggler"), SizeIs(1));
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty());
}

TEST_F(WatchedRun, APlanThatNoSpareCouldKeepUpWithIsForgottenWhenTheDriftEnds) {
  Start(WithSpare());
  Steps(10);
  Steps(6, 1.2, 1, 1.8);
  EXPECT_THAT(run_->Alternatives(), SizeIs(1));
  Steps(20);
  EXPECT_THAT(run_->Told("StragglerRecovered"), SizeIs(1));
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty());
  Steps(6, 1.2, 1, 1.8);
  EXPECT_THAT(run_->Told("Straggler"), SizeIs(2));
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty()) << "the two findings were not in a row";
}

TEST_F(WatchedRun, WithoutCheckpointsItOnlyTells) {
  RunOptions options = WithSpare();
  options.checkpoints = false;
  Start(options);
  Steps(10);
  Steps(100, 1.2, 1, 1.8);
  ASSERT_THAT(run_->Told("Straggler"), SizeIs(1));
  EXPECT_THAT(run_->Told("Straggler")[0].message, HasSubstr("keeps no checkpoints"));
  EXPECT_THAT(run_->Alternatives(), IsEmpty());
}

TEST_F(WatchedRun, ADegradedLinkIsToldAndPlannedAroundByItsMeasuredRate) {
  Start(WithSpare());
  Steps(20);
  Steps(20, 0.4, /*rate=*/0.25, /*seconds=*/1.8);
  ASSERT_THAT(run_->Told("LinkDegraded"), SizeIs(1));
  EXPECT_EQ(run_->Told("LinkDegraded")[0].device, "a0");
  EXPECT_EQ(run_->Told("LinkDegraded")[0].peer, "b0");
  EXPECT_DOUBLE_EQ(*run_->Told("LinkDegraded")[0].measured, 0.25);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  const auto& links = state().links();
  const auto link = std::find_if(links.begin(), links.end(), [](const Link& l) { return l.src == "a0" && l.dst == "b0"; });
  ASSERT_NE(link, links.end());
  EXPECT_DOUBLE_EQ(link->bytes_per_s, 0.25);
  EXPECT_THAT(run_->Alternatives()[0].devices, Not(Contains("s0"))) << "no device is to blame";
  run_->EndAtBoundary();
  EXPECT_THAT(run_->Told("Replanned"), SizeIs(1));
  Steps(50, 0.4, 0.25);
  EXPECT_THAT(run_->Told("LinkDegraded"), SizeIs(1)) << "the new plan counts on what there is";
}

TEST_F(WatchedRun, APlanIsNotTakenWhenItsDevicesHaveGone) {
  Start(WithSpare());
  alternative_devices_ = {"a0", "s0"};
  Steps(20);
  Steps(15, 1.2, 1, 1.8);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  run_->Feed(Left{.name = "s0", .incarnation = 1, .why = "killed"});
  run_->EndAtBoundary();
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(state().plan().devices, (std::vector<std::string>{"a0", "b0"})) << "asked for anew, over those who are left";
}

TEST_F(WatchedRun, TheBoundaryMayBeTheEndOfTheRun) {
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

TEST_F(WatchedRun, AUserWhoStopsTheRunGoesBeforeAnyMove) {
  Start(WithSpare());
  Steps(20);
  Steps(15, 1.2, 1, 1.8);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  run_->Feed(StopAsked{});
  run_->EndAtBoundary();
  EXPECT_EQ(state().phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run_->all).back().interrupted);
}

TEST_F(WatchedRun, ABoundaryCheckpointThatFailsCostsTheStepsSinceTheLastOne) {
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
  EXPECT_THAT(run_->Told("CheckpointFailed"), SizeIs(1));
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, 11);
}

TEST_F(WatchedRun, ABrokerThatComesBackAtTheBoundaryAsksForAPlan) {
  run_.emplace(WithSpare(), std::vector<std::string>{"a0", "b0"});
  state().Adopt(3, {.document = "{}", .devices = {"a0", "b0"}, .memory_bytes = {1, 1}}, {{"a0", "{}"}, {"b0", "{}"}, {"s0", "{}"}}, {}, 20,
                {}, {{"a0", 20}, {"b0", 20}}, "int8");
  for (const char* name : {"a0", "b0"}) run_->Feed(Joined{.member = {.name = name, .incarnation = 1}, .epoch = 3});
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(state().epoch(), 4u);
  ASSERT_THAT(Of<AskPlan>(run_->all), SizeIs(1));
  EXPECT_EQ(Of<AskPlan>(run_->all)[0].codec_limit, "int8");
}

// ---- Compression ------------------------------------------------------------------------------------------------------------------------

class CompressedRun : public WatchedRun {
 protected:
  void Losses(int count, float loss) {
    for (int i = 0; i < count; ++i) Step(0.4, 1, loss);
  }
  void NotFinite() {
    run_->Feed(Ended{.epoch = state().epoch(),
                     .name = "b0",
                     .last_step = state().last_step(),
                     .status = absl::DataLossError("the loss of op 'loss' is nan"),
                     .not_finite = true});
  }
};

TEST_F(CompressedRun, ALossThatLeavesItsTrendIsAnsweredWithGentlerCodecsFromWhereItStands) {
  Start(WithSpare(), "topk@100:int8");
  Losses(60, 3);
  EXPECT_THAT(run_->Told("CompressionBackoff"), IsEmpty());
  Losses(8, 4);
  ASSERT_THAT(run_->Told("CompressionBackoff"), SizeIs(1));
  EXPECT_THAT(run_->Told("CompressionBackoff")[0].message, AllOf(HasSubstr("mean loss"), HasSubstr("from topk@100:int8 to topk@50:int8")));
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  const int64_t last = state().last_step();
  run_->EndAtBoundary();
  EXPECT_EQ(Of<AskPlan>(run_->all).back().codec_limit, "topk@50:int8");
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, last + 1);
  EXPECT_THAT(run_->Told("Replanned").back().message, HasSubstr("codecs up to topk@50:int8"));
  EXPECT_EQ(state().codec_limit(), "topk@50:int8");
  Losses(38, 4);
  EXPECT_THAT(run_->Told("CompressionBackoff"), SizeIs(1)) << "a new plan begins a new trend";
}

TEST_F(CompressedRun, RungByRungItEndsWithoutCompression) {
  Start(WithSpare(100'000), "topk@100:int8");
  int backoffs = 0;
  while (state().plan().links[0].codec != "fp32" && backoffs < 50) {
    Losses(60, 3);
    Losses(20, 4);
    ASSERT_THAT(run_->Told("CompressionBackoff"), SizeIs(++backoffs));
    run_->EndAtBoundary();
  }
  EXPECT_EQ(state().codec_limit(), "fp32");
  EXPECT_EQ(backoffs, 9) << "100, 50, 25, 12.5, 6.25, 3.1 as int4, int8, fp16, fp32";
  Losses(60, 3);
  Losses(40, 9);
  EXPECT_THAT(run_->Told("CompressionBackoff"), SizeIs(9)) << "without compression it is not to blame";
}

TEST_F(CompressedRun, WithoutCheckpointsItAdvisesOnce) {
  RunOptions options = WithSpare();
  options.checkpoints = false;
  Start(options, "topk@100:int8");
  for (int i = 0; i < 3; ++i) {
    Losses(60, 3);
    Losses(20, 4);
  }
  ASSERT_THAT(run_->Told("CompressionBackoff"), SizeIs(1));
  EXPECT_THAT(run_->Told("CompressionBackoff")[0].message, HasSubstr("spec.compression.ratio"));
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty());
}

TEST_F(CompressedRun, ALossThatIsNoNumberGoesBackToTheLastCheckpointTwiceAndThenFails) {
  Start(WithSpare(), "topk@100:int8");
  Losses(10, 3);
  run_->SaveShards(10);
  Losses(5, 3);
  NotFinite();
  ASSERT_THAT(run_->Told("CompressionBackoff"), SizeIs(1));
  EXPECT_THAT(run_->Told("CompressionBackoff")[0].message, AllOf(HasSubstr("stage 1 on b0"), HasSubstr("is nan"), HasSubstr("topk@50")));
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(state().last_step(), 10);
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, 11);
  Losses(5, 3);
  NotFinite();
  EXPECT_EQ(state().codec_limit(), "fp32") << "compression is ruled out at once";
  EXPECT_EQ(state().phase(), Phase::kRunning);
  NotFinite();
  EXPECT_EQ(state().phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run_->all).back().status.message()), HasSubstr("is nan"));
}

TEST_F(CompressedRun, WithoutCompressionOrCheckpointsALossThatIsNoNumberEndsTheRun) {
  Start(WithSpare(), "fp32");
  Losses(10, 3);
  NotFinite();
  EXPECT_EQ(state().phase(), Phase::kFailed);
  RunOptions options = WithSpare();
  options.checkpoints = false;
  Start(options, "int8");
  Losses(10, 3);
  NotFinite();
  EXPECT_EQ(state().phase(), Phase::kFailed);
}

TEST_F(CompressedRun, TheLimitHoldsForEveryLaterPlan) {
  Start(WithSpare(), "topk@100:int8");
  Losses(60, 3);
  Losses(8, 4);
  run_->EndAtBoundary();
  run_->Feed(Left{.name = "s0", .incarnation = 1, .why = "killed"});
  run_->Feed(Left{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(Of<AskPlan>(run_->all).back().devices, std::vector<std::string>{"a0"});
  EXPECT_EQ(Of<AskPlan>(run_->all).back().codec_limit, "topk@50:int8");
}

TEST_F(CompressedRun, ASpareThatRunsAStageIsPlannedOverAgain) {
  Start(WithSpare(), "topk@100:int8");
  run_->Feed(Left{.name = "b0", .incarnation = 1, .why = "killed"});
  ASSERT_EQ(state().plan().devices, (std::vector<std::string>{"a0", "s0"}));
  run_->stage_devices = {"a0", "s0"};
  Losses(60, 3);
  Losses(8, 4);
  run_->EndAtBoundary();
  EXPECT_EQ(Of<AskPlan>(run_->all).back().devices, (std::vector<std::string>{"a0", "s0"}));
  EXPECT_EQ(state().plan().devices, (std::vector<std::string>{"a0", "s0"}));
}

TEST_F(CompressedRun, AnExecutorLostOnTheWayToTheBoundaryIsRecoveredWithTheGentlerCodecs) {
  Start(WithSpare(), "topk@100:int8");
  Losses(60, 3);
  run_->SaveShards(60);
  Losses(8, 4);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  run_->Feed(Left{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(state().last_step(), 60);
  EXPECT_EQ(Of<AskPlan>(run_->all).back().codec_limit, "topk@50:int8");
}

// Whatever happens in whatever order, the run keeps its promises (run_state_history_test.cc), and it never stops for good before its last
// step.
TEST_F(CompressedRun, SurvivesRandomHistories) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const base::CounterRng rng(seed, "watched history");
    uint64_t draw = 0;
    const auto below = [&](uint64_t bound) { return rng.Below(draw++, bound); };
    alternative_step_s_ = 0.5;
    alternative_devices_ = below(2) == 0 ? std::vector<std::string>{"a0", "s0"} : std::vector<std::string>{};
    Start(WithSpare(), "topk@100:int8");
    std::map<std::string, uint64_t> incarnation = {{"a0", 1}, {"b0", 1}, {"s0", 1}};
    for (int i = 0; i < 60 && state().phase() != Phase::kFailed; ++i) {
      const std::string name = std::vector<std::string>{"a0", "b0", "s0"}[below(3)];
      switch (below(8)) {
        case 0:
          run_->Feed(Left{.name = name, .incarnation = incarnation[name], .why = "killed"});
          run_->Join(name, name[0] == 's', 100, ++incarnation[name]);
          break;
        case 1:
          NotFinite();
          break;
        case 2:
          run_->EndAtBoundary();
          break;
        case 3:
          Losses(50, static_cast<float>(2 + below(3)));
          break;
        default:
          Steps(7, below(2) == 0 ? 0.4 : 1.2, below(2) == 0 ? 1 : 0.2, 1.8);
          break;
      }
      EXPECT_NE(state().phase(), Phase::kDone) << "seed " << seed;
    }
    EXPECT_LE(Of<Finish>(run_->all).size(), 1u) << "seed " << seed;
    for (const SendAssign& assign : Of<SendAssign>(run_->all)) EXPECT_GE(assign.first_step, 1) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fusionllm::broker
