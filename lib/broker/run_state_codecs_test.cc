// A run whose links compress with loss, played as events: what is reported, how codecs become less aggressive, and that nothing is lost on
// the way.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/watched_run.h"

namespace fusionllm::broker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MonitoredRun;
using testing::Of;
using ::testing::SizeIs;

class CompressedRun : public MonitoredRun {
 protected:
  void Losses(int count, float loss) {
    for (int i = 0; i < count; ++i) Step(0.4, 1, loss);
  }
  void NotFinite() {
    run_->Feed(StageEnded{.epoch = state().epoch(),
                          .name = "b0",
                          .last_step = state().last_step(),
                          .status = absl::DataLossError("the loss of op 'loss' is nan"),
                          .not_finite = true});
  }
};

TEST_F(CompressedRun, ALossThatLeavesItsTrendIsAnsweredWithGentlerCodecsFromWhereItStands) {
  Start(WithSpare(), "topk@100:int8");
  Losses(60, 3);
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff"), IsEmpty());
  Losses(8, 4);
  ASSERT_THAT(run_->EventsNamed("CompressionBackoff"), SizeIs(1));
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff")[0].message,
              AllOf(HasSubstr("mean loss"), HasSubstr("from topk@100:int8 to int8 at most")));
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  const int64_t last = state().last_step();
  run_->EndAtBoundary();
  EXPECT_EQ(Of<RequestPlan>(run_->all).back().codec_limit, "int8");
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, last + 1);
  EXPECT_THAT(run_->EventsNamed("Replanned").back().message, HasSubstr("codecs up to int8"));
  EXPECT_EQ(state().codec_limit(), "int8");
  Losses(38, 4);
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff"), SizeIs(1)) << "a new plan begins a new trend";
}

TEST_F(CompressedRun, ALossThatStaysBadEndsWithoutCompression) {
  Start(WithSpare(100'000), "topk@100:int8");
  int backoffs = 0;
  while (state().plan().plan.links[0].codec != "fp32" && backoffs < 50) {
    Losses(60, 3);
    Losses(20, 4);
    ASSERT_THAT(run_->EventsNamed("CompressionBackoff"), SizeIs(++backoffs));
    run_->EndAtBoundary();
  }
  EXPECT_EQ(state().codec_limit(), "fp32");
  EXPECT_EQ(backoffs, 3) << "int8, fp16, fp32";
  Losses(60, 3);
  Losses(40, 9);
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff"), SizeIs(3)) << "without compression it is not to blame";
}

TEST_F(CompressedRun, WithoutCheckpointsCodecsBecomeGentlerWhereTheyAre) {
  RunOptions options = WithSpare();
  options.checkpoints = false;
  Start(options, "topk@100:int8");
  std::vector<std::string> ordered;
  for (int i = 0; i < 5; ++i) {
    Losses(60, 3);
    Losses(20, 4);
  }
  for (const SendCodecLimit& order : Of<SendCodecLimit>(run_->all)) {
    EXPECT_EQ(order.epoch, state().epoch());
    ordered.push_back(absl::StrCat(order.name, " ", order.codec));
  }
  EXPECT_THAT(ordered, ElementsAre("a0 int8", "b0 int8", "a0 fp16", "b0 fp16", "a0 fp32", "b0 fp32"));
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff"), SizeIs(3)) << "without compression it is not to blame";
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty());
  EXPECT_EQ(state().codec_limit(), "fp32") << "for whatever plan comes next";
}

TEST_F(CompressedRun, AGuardThatOnlyWarnsChangesNothing) {
  RunOptions options = WithSpare();
  options.guard = compression::GuardMode::kWarn;
  Start(options, "topk@100:int8");
  for (int i = 0; i < 3; ++i) {
    Losses(60, 3);
    Losses(20, 4);
  }
  ASSERT_THAT(run_->EventsNamed("CompressionBackoff"), SizeIs(1));
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff")[0].message, HasSubstr("spec.compression.guard: warn"));
  EXPECT_FALSE(run_->EventsNamed("CompressionBackoff")[0].reduces_compression);
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty());
  EXPECT_EQ(state().codec_limit(), "");
}

TEST_F(CompressedRun, WithoutAGuardTheLossIsTheUsersAffair) {
  RunOptions options = WithSpare();
  options.guard = compression::GuardMode::kNone;
  Start(options, "topk@100:int8");
  Losses(60, 3);
  Losses(20, 9);
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff"), IsEmpty());
  NotFinite();
  EXPECT_EQ(state().phase(), Phase::kFailed);
}

// ---- What senders find ------------------------------------------------------------------------------------------------------------------

// The run of the first hour: logits by top-k, where the plan expects 0.14 nats.
CodecBackoff LogitsBackoff() {
  return {.peer = "b0",
          .value = "lm_head",
          .kind = "loss_input",
          .from = "topk@24.8:int8",
          .to = "fp16",
          .relative_error = 0.496,
          .cosine = 0.868,
          .limit = 0.002,
          .remaining_error = 0.0002};
}

TEST_F(CompressedRun, ASendersFindingIsReportedOnceWithFiguresAndKept) {
  RunOptions options = WithSpare();
  options.codecs_asked_for = true;
  Start(options, "topk@24.8:int8");
  for (int64_t step = 1; step <= 3; ++step) {  // reports repeat what the epoch has seen
    run_->Feed(StageMeasured{.epoch = state().epoch(), .name = "a0", .step = step, .busy_s = 0.4, .backoffs = {LogitsBackoff()}});
  }
  ASSERT_THAT(run_->EventsNamed("CompressionBackoff"), SizeIs(1));
  const EmitEvent backoff = run_->EventsNamed("CompressionBackoff")[0];
  EXPECT_EQ(backoff.step, 1);
  EXPECT_EQ(backoff.device, "a0");
  EXPECT_EQ(backoff.peer, "b0");
  EXPECT_TRUE(backoff.reduces_compression);
  EXPECT_THAT(backoff.message, AllOf(HasSubstr("a0 > b0: lm_head (loss_input) by topk@24.8:int8"), HasSubstr("49.6%"),
                                     HasSubstr("cosine 0.868"), HasSubstr("fp16"), HasSubstr("spec.compression.guard: none")));
  EXPECT_EQ(state().codec_limits(), (CodecLimits{{{"lm_head", false}, "fp16"}}));
  EXPECT_THAT(Of<SendStop>(run_->all), IsEmpty()) << "the sender has done it already";
}

TEST_F(CompressedRun, OfTwoSendersOfAValueTheGentlerFindingHolds) {
  Start(WithSpare(), "topk@24.8:int8");
  CodecBackoff milder = LogitsBackoff();
  milder.to = "int8";
  const auto report = [&](const CodecBackoff& found) {
    run_->Feed(StageMeasured{.epoch = state().epoch(), .name = "a0", .step = 1, .busy_s = 0.4, .backoffs = {found}});
  };
  report(milder);
  report(LogitsBackoff());
  report(milder);
  EXPECT_EQ(state().codec_limits(), (CodecLimits{{{"lm_head", false}, "fp16"}}));
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff"), SizeIs(2));
}

TEST_F(CompressedRun, WhatWasFoundGoesIntoCheckpointsAndARunThatGoesOnBeginsWithIt) {
  const CodecLimits limits = {{{"lm_head", false}, "fp16"}};
  RunOptions options = WithSpare();
  options.codec_limits = limits;
  options.codec_limit = "int8";
  Start(options, "topk@24.8:int8");
  EXPECT_EQ(Of<RequestPlan>(run_->all).front().codec_limit, "int8");
  EXPECT_EQ(state().codec_limits(), limits);
  for (const int stage : {0, 1}) run_->Feed(run_->Shard(10, stage));
  ASSERT_THAT(Of<CommitCheckpoint>(run_->all), SizeIs(1));
  EXPECT_EQ(Of<CommitCheckpoint>(run_->all)[0].codec_limits, limits);
  EXPECT_EQ(Of<CommitCheckpoint>(run_->all)[0].codec_limit, "int8");
}

TEST_F(CompressedRun, ACodecThatStaysIsReportedOnceToo) {
  RunOptions options = WithSpare();
  options.guard = compression::GuardMode::kWarn;
  Start(options, "topk@24.8:int8");
  CodecBackoff warning = LogitsBackoff();
  warning.to = warning.from;
  for (int64_t step = 1; step <= 3; ++step) {
    run_->Feed(StageMeasured{.epoch = state().epoch(), .name = "a0", .step = step, .busy_s = 0.4, .backoffs = {warning}});
  }
  ASSERT_THAT(run_->EventsNamed("CompressionBackoff"), SizeIs(1));
  EXPECT_FALSE(run_->EventsNamed("CompressionBackoff")[0].reduces_compression);
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff")[0].message, HasSubstr("spec.compression.guard: warn"));
  EXPECT_THAT(state().codec_limits(), IsEmpty());
}

TEST_F(CompressedRun, FindingsOfStrangersAndWithoutACodecCountForNothing) {
  Start(WithSpare(), "topk@24.8:int8");
  CodecBackoff unknown = LogitsBackoff(), elsewhere = LogitsBackoff();
  unknown.to = "zip";
  elsewhere.peer = "s0";
  run_->Feed(StageMeasured{.epoch = state().epoch(), .name = "a0", .step = 1, .busy_s = 0.4, .backoffs = {unknown, elsewhere}});
  run_->Feed(StageMeasured{.epoch = state().epoch(), .name = "s0", .step = 1, .busy_s = 0.4, .backoffs = {LogitsBackoff()}});
  run_->Feed(StageMeasured{.epoch = state().epoch() + 1, .name = "a0", .step = 1, .busy_s = 0.4, .backoffs = {LogitsBackoff()}});
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff"), IsEmpty());
  EXPECT_THAT(state().codec_limits(), IsEmpty());
}

TEST_F(CompressedRun, ALossThatIsNoNumberGoesBackToTheLastCheckpointTwiceAndThenFails) {
  Start(WithSpare(), "topk@100:int8");
  Losses(10, 3);
  run_->SaveShards(10);
  Losses(5, 3);
  NotFinite();
  ASSERT_THAT(run_->EventsNamed("CompressionBackoff"), SizeIs(1));
  EXPECT_THAT(run_->EventsNamed("CompressionBackoff")[0].message,
              AllOf(HasSubstr("stage 1 on b0"), HasSubstr("is nan"), HasSubstr("to int8 at most")));
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
  run_->Feed(ExecutorLeft{.name = "s0", .incarnation = 1, .why = "killed"});
  run_->Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(Of<RequestPlan>(run_->all).back().devices, std::vector<std::string>{"a0"});
  EXPECT_EQ(Of<RequestPlan>(run_->all).back().codec_limit, "int8");
}

TEST_F(CompressedRun, ASpareThatRunsAStageIsPlannedOverAgain) {
  Start(WithSpare(), "topk@100:int8");
  run_->Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  ASSERT_EQ(state().plan().devices, (std::vector<std::string>{"a0", "s0"}));
  run_->stage_devices = {"a0", "s0"};
  Losses(60, 3);
  Losses(8, 4);
  run_->EndAtBoundary();
  EXPECT_EQ(Of<RequestPlan>(run_->all).back().devices, (std::vector<std::string>{"a0", "s0"}));
  EXPECT_EQ(state().plan().devices, (std::vector<std::string>{"a0", "s0"}));
}

TEST_F(CompressedRun, AnExecutorLostOnTheWayToTheBoundaryIsRecoveredWithTheGentlerCodecs) {
  Start(WithSpare(), "topk@100:int8");
  Losses(60, 3);
  run_->SaveShards(60);
  Losses(8, 4);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  run_->Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(state().last_step(), 60);
  EXPECT_EQ(Of<RequestPlan>(run_->all).back().codec_limit, "int8");
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
          run_->Feed(ExecutorLeft{.name = name, .incarnation = incarnation[name], .why = "killed"});
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
