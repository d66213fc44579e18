#include "lib/scheduler/pipeline_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::scheduler {
namespace {

using ::testing::DoubleNear;

// A chain of equal stages, F = 1, B = 2 (dX and dW); every link full duplex with serialisation x and latency a.
PipelineInput EqualChain(int stages, int micro_batches, double x, double a) {
  PipelineInput input;
  input.micro_batches = micro_batches;
  input.stages.assign(stages, {.forward_s = 1, .backward_s = 2, .in_flight = micro_batches});
  for (int s = 0; s + 1 < stages; ++s) {
    const int shared_link = input.shared_links;
    input.shared_links += 2;
    input.links.push_back({.src = s,
                           .dst = s + 1,
                           .forward = {.used = true, .latency_s = a, .shared_links = {{shared_link, x}}},
                           .backward = {.used = true, .latency_s = a, .shared_links = {{shared_link + 1, x}}}});
  }
  return input;
}

// Latency-aware warm-up depth of stage `stage` of `stages`: (stages - stage) (1 + 2 (x + a) / (F + B)), rounded up, one more when
// links take time (rounding leaves stages out of step: at x = F the utilisation of eight stages is 0.70 without it, 0.73 with), at least 1,
// at most micro_batches; crossing_s = serialisation + latency of the slowest link after it, stage_s = its forward + backward.
int WarmUpDepth(int stage, int stages, double crossing_s, double stage_s, int micro_batches) {
  const double stretch = stage_s > 0 ? 1 + 2 * crossing_s / stage_s : micro_batches;
  const double depth = std::ceil((stages - stage) * stretch - 1e-9) + (crossing_s > 0 ? 1 : 0);
  return static_cast<int>(std::clamp(depth, 1.0, static_cast<double>(micro_batches)));
}

double Utilisation(const PipelineInput& input) {
  const StageTiming& stage = input.stages[0];
  return input.micro_batches * (stage.forward_s + stage.backward_s) / PipelineSimulator().Run(input).step_s;
}

// Figures of an event simulation that shares no code with ours.
TEST(PipelineModelTest, ReproducesUtilisationOfEightStagesAnd32MicroBatches) {
  struct Row {
    double x, a, gpipe, textbook, deeper;
  };
  for (const Row& row : {Row{0, 0, .821, .821, .821}, Row{1, 0, .733, .519, .733}, Row{2, 0, .545, .379, .653}, Row{6, 0, .200, .183, .314},
                         Row{.1, 3, .599, .293, .599}}) {
    SCOPED_TRACE(::testing::Message() << "x " << row.x << " a " << row.a);
    PipelineInput input = EqualChain(8, 32, row.x, row.a);
    input.schedule = schedule::kGPipe;
    EXPECT_THAT(Utilisation(input), DoubleNear(row.gpipe, 0.02));
    input.schedule = schedule::k1F1B;
    for (int s = 0; s < 8; ++s) input.stages[s].in_flight = 8 - s;
    EXPECT_THAT(Utilisation(input), DoubleNear(row.textbook, 0.02));
    for (int s = 0; s < 8; ++s) input.stages[s].in_flight = WarmUpDepth(s, 8, row.x + row.a, 3, 32);
    EXPECT_THAT(Utilisation(input), DoubleNear(row.deeper, 0.02));
  }
}

// The same simulation with a split backward. Ours keeps every stage a pipeline's length of micro-batches further ahead, so it is not
// slower; nothing beats the busiest stage or link.
TEST(PipelineModelTest, SplitBackwardReachesTheFiguresAndNeverMoreThanTheBound) {
  struct Row {
    double x, a, least, bound;
  };
  for (const Row& row : {Row{0, 0, .932, 1}, Row{1, 0, .873, 1}, Row{2, 0, .821, 1}, Row{6, 0, .334, .5}, Row{.1, 3, .766, 1}}) {
    SCOPED_TRACE(::testing::Message() << "x " << row.x << " a " << row.a);
    PipelineInput input = EqualChain(8, 32, row.x, row.a);
    input.split_backward = true;
    for (int s = 0; s < 8; ++s) {
      input.stages[s].weights_s = 1;
      input.stages[s].in_flight = std::min(32, WarmUpDepth(s, 8, row.x + row.a, 3, 32) + 7);
    }
    EXPECT_GE(Utilisation(input), row.least - 0.001);
    EXPECT_LE(Utilisation(input), row.bound + 1e-9);
    // Memory may limit how much is put off.
    for (StageTiming& stage : input.stages) stage.max_kept = stage.in_flight = WarmUpDepth(0, 8, row.x + row.a, 3, 32);
    std::vector<TimelineSpan> timeline;
    PipelineSimulator().Run(input, &timeline);
    std::vector<int> kept(8, 0);
    for (const TimelineSpan& span : timeline) {
      if (span.kind == TimelineSpan::Kind::kForward) {
        EXPECT_LE(++kept[span.stage], input.stages[0].max_kept);
      }
      if (span.kind == TimelineSpan::Kind::kWeights) --kept[span.stage];
    }
    EXPECT_THAT(kept, ::testing::Each(0)) << "every weight's gradient is computed";
  }
}

// `workers` devices of `chunks` stages each; free links. Warm-up of Megatron-LM (arXiv 2104.04473).
PipelineInput InterleavedPipeline(int workers, int chunks, int micro_batches) {
  PipelineInput input = EqualChain(workers * chunks, micro_batches, 0, 0);
  input.virtual_stages = chunks;
  for (StageTiming& stage : input.stages) stage.forward_s /= chunks, stage.backward_s /= chunks;
  for (int w = 0; w < workers; ++w) input.stages[w].in_flight = 2 * (workers - w - 1) + (chunks - 1) * workers + 1;
  return input;
}

// Bubbles over compute are (p - 1) / (v m): of the whole step (p - 1) / (v m + p - 1).
TEST(PipelineModelTest, InterleavingShrinksTheBubbleByTheNumberOfChunks) {
  for (const auto& [workers, chunks, micro_batches] : {std::tuple(2, 1, 4), std::tuple(2, 2, 4), std::tuple(4, 2, 8), std::tuple(4, 3, 8),
                                                       std::tuple(8, 2, 32), std::tuple(8, 4, 32), std::tuple(3, 5, 9)}) {
    SCOPED_TRACE(::testing::Message() << workers << " workers, " << chunks << " chunks, " << micro_batches << " micro-batches");
    const PipelineResult result = PipelineSimulator().Run(InterleavedPipeline(workers, chunks, micro_batches));
    EXPECT_TRUE(result.complete);
    const double bubble = 1 - micro_batches * 3 / result.step_s;
    EXPECT_NEAR(bubble, (workers - 1.0) / (chunks * micro_batches + workers - 1.0), 1e-9);
  }
}

TEST(PipelineModelTest, InterleavedWorkersRunEveryPassOnce) {
  for (int micro_batches = 1; micro_batches <= 13; ++micro_batches) {
    SCOPED_TRACE(::testing::Message() << micro_batches << " micro-batches");
    PipelineInput input = InterleavedPipeline(4, 3, micro_batches);
    std::vector<TimelineSpan> timeline;
    EXPECT_TRUE(PipelineSimulator().Run(input, &timeline).complete);
    std::map<std::tuple<int, int, int>, int> passes;
    for (const TimelineSpan& span : timeline) {
      if (span.kind == TimelineSpan::Kind::kForward || span.kind == TimelineSpan::Kind::kBackward) {
        ++passes[{static_cast<int>(span.kind), span.stage, span.micro_batch}];
      }
    }
    EXPECT_EQ(passes.size(), 2 * 12 * micro_batches);
    EXPECT_THAT(passes, ::testing::Each(::testing::Pair(::testing::_, 1)));
  }
  // No worker can go back before a micro-batch has been through all three chunks.
  PipelineInput shallow = InterleavedPipeline(4, 3, 8);
  for (int w = 0; w < 4; ++w) shallow.stages[w].in_flight = 4;
  EXPECT_FALSE(PipelineSimulator().Run(shallow).complete);
}

TEST(PipelineModelTest, OneStageTakesItsComputeAndUpdate) {
  PipelineInput input = EqualChain(1, 5, 0, 0);
  input.stages[0].update_s = 0.5;
  input.step_overhead_s = 0.25;
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, 5 * 3 + 0.5 + 0.25);
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).compute_end_s, 15);
}

// adr/0006: stage 0 is the slowest, so a backward is ready whenever it has ended one; those behind must get their forwards all the same.
TEST(PipelineModelTest, ASlowFirstStageDoesNotStarveThoseBehind) {
  PipelineInput input = EqualChain(3, 8, 0, 0);
  input.stages[0] = {.forward_s = 17.3, .backward_s = 36.3, .in_flight = 8};
  for (int s : {1, 2}) input.stages[s] = {.forward_s = 12, .backward_s = 25, .in_flight = 8};
  EXPECT_LE(PipelineSimulator().Run(input).step_s, 8 * (17.3 + 36.3) * 1.02);
}

TEST(PipelineModelTest, OneMicroBatchCrossesEveryStageAndLinkTwice) {
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(EqualChain(4, 1, 0.5, 0.25)).step_s, 4 * 3 + 2 * 3 * 0.75);
}

TEST(PipelineModelTest, SharedLinksSerialiseWhatOwnLinksOverlap) {
  // Stage 0 feeds stages 1 and 2 at the same moment; over one shared link the second message waits for the first.
  PipelineInput input;
  input.micro_batches = 1;
  input.shared_links = 4;
  input.stages.assign(3, {.forward_s = 1, .backward_s = 1, .in_flight = 1});
  input.links = {{0, 1, {true, 0, {{0, 4}}}, {true, 0, {{2, 0}}}}, {0, 2, {true, 0, {{1, 4}}}, {true, 0, {{3, 0}}}}};
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, 1 + 4 + 1 + 1 + 1);
  input.links[1].forward.shared_links = {{0, 4}};
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, 1 + 8 + 1 + 1 + 1);
}

// A port is not taken by a message that waits for a slow link behind it: what goes elsewhere passes.
TEST(PipelineModelTest, ASharedLinkIsNotHeldByWhatWaitsForAnother) {
  // Stage 0 sends to stage 2 over its port (shared link 4) and a slow link (5), twice; and to stage 1 over its port alone.
  PipelineInput input;
  input.micro_batches = 2;
  input.shared_links = 6;
  input.stages.assign(3, {.forward_s = 1, .backward_s = 1, .in_flight = 2});
  input.links = {{0, 1, {true, 0, {{0, 0.1}, {4, 0.1}}}, {}}, {0, 2, {true, 0, {{1, 50}, {4, 0.1}, {5, 50}}}, {}}};
  std::vector<TimelineSpan> timeline;
  PipelineSimulator().Run(input, &timeline);
  int seen = 0;
  for (const TimelineSpan& span : timeline) {
    if (span.kind != TimelineSpan::Kind::kForwardMessage) continue;
    ++seen;
    const double expected_s = span.stage == 0 ? span.sent_s + 0.1 : 1 + 50 * (1 + span.micro_batch);
    EXPECT_NEAR(span.arrives_s, expected_s, 1e-12) << "link " << span.stage << ", micro-batch " << span.micro_batch;
  }
  EXPECT_EQ(seen, 4);
}

// The messages that queue for a slow link do not take the port behind it for all the time that they will need the link.
TEST(PipelineModelTest, AQueueTakesNoSharedLinkAheadOfItsTurn) {
  // Stages 0 and 1 send to stage 2 through its port (shared link 4), stage 0 over a slow link (0).
  PipelineInput input;
  input.micro_batches = 3;
  input.shared_links = 5;
  input.stages.assign(3, {.forward_s = 1, .backward_s = 1, .in_flight = 3});
  input.links = {{0, 2, {true, 0, {{0, 50}, {4, 0.1}}}, {}}, {1, 2, {true, 0, {{1, 0.1}, {4, 0.1}}}, {}}};
  std::vector<TimelineSpan> timeline;
  PipelineSimulator().Run(input, &timeline);
  std::vector<double> slow_s, quick_s, handed_s;
  for (const TimelineSpan& span : timeline) {
    if (span.kind != TimelineSpan::Kind::kForwardMessage) continue;
    (span.stage == 0 ? slow_s : quick_s).push_back(span.arrives_s);
    if (span.stage == 0) handed_s.push_back(span.sent_s);
  }
  EXPECT_THAT(handed_s, ::testing::ElementsAre(1, 3, 5)) << "between backwards";
  ASSERT_EQ(slow_s.size(), 3u);
  ASSERT_EQ(quick_s.size(), 3u);
  for (int m = 0; m < 3; ++m) {
    EXPECT_NEAR(slow_s[m], 1 + 50 * (m + 1), 1e-9) << m;
    EXPECT_LT(quick_s[m], handed_s[m] + 0.3) << m;
  }
}

TEST(PipelineModelTest, TheEndOfAStepCostsWhatNeitherBackwardNorTheNextStepHides) {
  PipelineInput input = EqualChain(2, 1, 0, 0);
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, 6);
  // Stage 1 is done at 4 and its report arrives at 7, one second after stage 0's backward; the decision reaches it at 10, when it should
  // have been in the next step's forward for two seconds already: that began a second after stage 0's.
  input.reports = {{1, 0, 3}};
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, 7);
  input.decisions = {{0, 1, 3}};
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, 9);
  // Shared gradients cross both ways at once, from 4 and from 6.
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    input.tied.push_back({.from = from, .to = to, .channel = {.used = true, .latency_s = 10}});
  }
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, 16 + 3 + 3 - 1);
}

TEST(PipelineModelTest, UnreportedTiedGradientsHideBehindStepExchange) {
  PipelineInput input = EqualChain(2, 1, 0, 0);
  input.reports = {{1, 0, 3}};
  input.decisions = {{0, 1, 3}};
  // Stage 0 is done at 6 and decides at 7, stage 1 has the decision at 10; its first forward began at 1.
  for (const auto& [seconds, step_s] : {std::pair(4.0, 9.0), std::pair(5.0, 10.0)}) {
    input.tied = {{.from = 0, .to = 1, .before_report = false, .channel = {.used = true, .latency_s = seconds}}};
    EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, step_s) << seconds;
  }
  // Stage 0 reports on what stage 1 sends at 4, and decides at 14.
  input.tied = {{.from = 1, .to = 0, .channel = {.used = true, .latency_s = 10}}};
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, 17 - 1);
}

TimelineSpan TiedSpan(const std::vector<TimelineSpan>& timeline, int message) {
  for (const TimelineSpan& span : timeline) {
    if (span.kind == TimelineSpan::Kind::kTiedMessage && span.stage == message) return span;
  }
  ADD_FAILURE() << "no tied message " << message;
  return {};
}

TEST(PipelineModelTest, TiedGradientsFollowTheGradientsOnTheirLink) {
  PipelineInput input = EqualChain(2, 1, 4, 0.5);
  input.tied.push_back({.from = 1, .to = 0, .channel = {.used = true, .latency_s = 0.5, .shared_links = {{1, 10}}}});
  input.tied.push_back({.from = 1, .to = 0, .exchange = 1, .channel = {.used = true, .latency_s = 0.5, .shared_links = {{1, 2}}}});
  input.tied.push_back({.from = 0, .to = 1, .channel = {.used = true, .latency_s = 0.5, .shared_links = {{0, 10}}}});
  std::vector<TimelineSpan> timeline;
  // Stage 0: forward to 1, its message is there at 5.5; stage 1 is done at 8.5, its gradient there at 13, stage 0 done at 15.
  const double step_s = PipelineSimulator().Run(input, &timeline).step_s;
  EXPECT_DOUBLE_EQ(TiedSpan(timeline, 0).sent_s, 8.5);
  EXPECT_DOUBLE_EQ(TiedSpan(timeline, 0).begin_s, 12.5) << "when the gradient has passed";
  EXPECT_DOUBLE_EQ(TiedSpan(timeline, 0).arrives_s, 23);
  EXPECT_DOUBLE_EQ(TiedSpan(timeline, 1).begin_s, 22.5) << "one after the other";
  EXPECT_DOUBLE_EQ(TiedSpan(timeline, 2).arrives_s, 25.5);
  EXPECT_DOUBLE_EQ(step_s, 25);
}

// Stage 2's tied gradients go to stage 0 over shared link 8; so do the gradients of stage 1, which is not done yet.
TEST(PipelineModelTest, TiedGradientsLetOthersPassBetweenTheirPieces) {
  PipelineInput input = EqualChain(3, 1, 0.001, 0);
  input.shared_links = 9;
  input.links[0].backward.shared_links.push_back({8, 1});
  input.tied.push_back({.from = 2, .to = 0, .channel = {.used = true, .shared_links = {{4, 16}, {8, 16}}}, .pieces = 16});
  std::vector<TimelineSpan> timeline;
  PipelineSimulator().Run(input, &timeline);
  const TimelineSpan tied = TiedSpan(timeline, 0);
  EXPECT_NEAR(tied.end_s - tied.begin_s, 17, 1e-9) << "the link carries both";
  for (const TimelineSpan& span : timeline) {
    if (span.kind != TimelineSpan::Kind::kBackwardMessage || span.stage != 0) continue;
    EXPECT_LE(span.arrives_s - span.sent_s, 2.001) << "no more than a piece later than alone";
    EXPECT_GT(span.sent_s, tied.begin_s);
  }
  input.tied[0].pieces = 1;
  PipelineSimulator().Run(input, &timeline);
  EXPECT_NEAR(TiedSpan(timeline, 0).end_s - TiedSpan(timeline, 0).begin_s, 16, 1e-9);
}

TEST(PipelineModelTest, TiedGradientsOfASplitBackwardWaitForThoseOfTheWeights) {
  PipelineInput input = EqualChain(2, 2, 0, 0);
  input.split_backward = true;
  for (StageTiming& stage : input.stages) stage.weights_s = 1;
  input.tied.push_back({.from = 0, .to = 1, .channel = {.used = true, .latency_s = 3}});
  std::vector<TimelineSpan> timeline;
  PipelineSimulator().Run(input, &timeline);
  double last_s = 0;
  for (const TimelineSpan& span : timeline) {
    if (span.stage == 0 && span.kind == TimelineSpan::Kind::kWeights) last_s = std::max(last_s, span.end_s);
  }
  EXPECT_DOUBLE_EQ(TiedSpan(timeline, 0).sent_s, last_s);
}

TEST(PipelineModelTest, AnUpdateDeepInThePipelineHidesBehindTheFill) {
  PipelineInput input = EqualChain(3, 2, 0, 0);
  const double alone_s = PipelineSimulator().Run(input).step_s;
  input.stages[2].update_s = 2;  // stage 2 idles for the first two seconds of a step and the last four
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, alone_s);
  input.stages[0].update_s = 2;
  EXPECT_DOUBLE_EQ(PipelineSimulator().Run(input).step_s, alone_s + 2);
}

TEST(PipelineModelTest, NeverOpensMoreMicroBatchesThanAllowed) {
  PipelineInput input = EqualChain(3, 9, 0.3, 0.7);
  for (int s = 0; s < 3; ++s) input.stages[s].in_flight = 3 - s;
  std::vector<TimelineSpan> timeline;
  PipelineSimulator().Run(input, &timeline);
  std::vector<int> open(3, 0);
  int forwards = 0;
  for (const TimelineSpan& span : timeline) {
    if (span.kind == TimelineSpan::Kind::kForward) {
      EXPECT_LE(++open[span.stage], 3 - span.stage);
      ++forwards;
    }
    if (span.kind == TimelineSpan::Kind::kBackward) --open[span.stage];
  }
  EXPECT_EQ(forwards, 27);
  EXPECT_THAT(open, ::testing::Each(0));
}

TEST(PipelineModelTest, IsNeverFasterThanItsBusiestStageOrLink) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto draw = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
    const int stages = 1 + static_cast<int>(seed % 6), micro_batches = 1 + static_cast<int>(seed % 11);
    PipelineInput input = EqualChain(stages, micro_batches, draw(0, 2), draw(0, 2));
    double busiest_s = 0;
    for (StageTiming& stage : input.stages) {
      stage = {.forward_s = draw(0.1, 2), .backward_s = draw(0.1, 4), .in_flight = 1 + static_cast<int>(draw(0, 6))};
      busiest_s = std::max(busiest_s, micro_batches * (stage.forward_s + stage.backward_s));
    }
    for (const StageLink& link : input.links) busiest_s = std::max(busiest_s, micro_batches * link.forward.shared_links[0].hold_s);
    const double step_s = PipelineSimulator().Run(input).step_s;
    EXPECT_GE(step_s, busiest_s * (1 - 1e-12));
    EXPECT_EQ(step_s, PipelineSimulator().Run(input).step_s);
  }
}

// Chains with a skip connection, links that send nothing back and a link that several share.
PipelineInput RandomChain(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  const int stages = 1 + static_cast<int>(seed % 6);
  PipelineInput input = EqualChain(stages, 1 + static_cast<int>(seed % 11), draw(0, 2), draw(0, 2));
  if (seed % 4 == 0) input.schedule = schedule::kGPipe;
  for (StageTiming& stage : input.stages) {
    stage = {.forward_s = draw(0.1, 2), .backward_s = draw(0.1, 4), .update_s = draw(0, 1), .in_flight = 1 + static_cast<int>(draw(0, 6))};
  }
  if (stages > 2) {
    const int shared_link = input.shared_links;
    input.shared_links += 2;
    input.links.push_back(
        {0, stages - 1, {true, draw(0, 3), {{shared_link, draw(0, 1)}}}, {true, draw(0, 3), {{shared_link + 1, draw(0, 1)}}}});
  }
  const int shared = input.shared_links++;
  for (StageLink& link : input.links) {
    link.backward.used = draw(0, 1) < 0.9;
    if (draw(0, 1) < 0.3) link.forward.shared_links.push_back({shared, draw(0, 1)});
    if (draw(0, 1) < 0.3) link.backward.shared_links.push_back({shared, draw(0, 1)});
  }
  input.step_overhead_s = draw(0, 1);
  if (stages > 1 && seed % 3 == 0) {
    for (const auto& [from, to] : {std::pair(0, stages - 1), std::pair(stages - 1, 0)}) {
      const double seconds = draw(0, 20);
      input.tied.push_back({.from = from,
                            .to = to,
                            .before_report = draw(0, 1) < 0.5,
                            .channel = {.used = true, .latency_s = draw(0, 2), .shared_links = {{input.shared_links++, seconds}}},
                            .pieces = 4});
      if (seed % 2 == 0) input.tied.back().channel.shared_links.push_back({shared, seconds});
    }
    for (int s = 1; s < stages; ++s) {
      input.reports.push_back({s, 0, draw(0, 1)});
      input.decisions.push_back({0, s, draw(0, 1)});
    }
  }
  return input;
}

TEST(PipelineModelTest, CutoffAbandonsOnlySlowerSteps) {
  int given_up = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const PipelineInput input = RandomChain(seed);
    PipelineSimulator simulator;
    const double step_s = simulator.Run(input).step_s;
    for (const double share : {0.3, 0.7, 0.95, 0.9999, 1.0, 1.1}) {
      const double judged_s = simulator.RunWithCutoff(input, share * step_s);
      if (share >= 1) {
        EXPECT_EQ(judged_s, step_s) << share;
        continue;
      }
      EXPECT_GT(judged_s, share * step_s);
      EXPECT_LE(judged_s, step_s * (1 + 1e-9)) << share;
      given_up += judged_s < step_s ? 1 : 0;
    }
    EXPECT_EQ(simulator.Run(input).step_s, step_s) << "a judgement leaves nothing behind";
  }
  EXPECT_GT(given_up, 1'000) << "of 2,000";
}

}  // namespace
}  // namespace fusionllm::scheduler
