#include "lib/scheduler/simulation.h"

#include <algorithm>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/schedule_variants.h"
#include "lib/scheduler/testing/requests.h"
#include "lib/scheduler/timeline.h"

namespace fusionllm::scheduler {
namespace {

using ::testing::HasSubstr;

class Spans final : public SpanSink {
 public:
  void Add(const TimelineSpan& span) override { all.push_back(span); }
  std::vector<TimelineSpan> all;
};

// A chain with uneven stages and links, some over one shared link; now and then a link that skips stages.
PipelineInput RandomPipeline(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  PipelineInput input;
  const int stages = 1 + static_cast<int>(seed % 6);
  input.micro_batches = 1 + static_cast<int>(draw(0, 12));
  input.schedule = seed % 3 == 0 ? schedule::kGPipe : schedule::k1F1B;
  input.split_backward = seed % 5 == 1;
  for (int s = 0; s < stages; ++s) {
    const double backward_s = draw(0.1, 3);
    input.stages.push_back({.forward_s = draw(0.1, 2),
                            .backward_s = backward_s,
                            .weights_s = backward_s * draw(0, 0.6),
                            .update_s = draw(0, 0.5),
                            .in_flight = 1 + static_cast<int>(draw(0, 6)),
                            .codec_forward_s = 0.05,
                            .codec_backward_s = 0.02});
  }
  const int shared = 2 * stages * stages;
  input.shared_links = shared + 1;
  const auto join = [&](int src, int dst, bool returns) {
    const int shared_link = 2 * (src * stages + dst);
    const auto channel = [&](int own) {
      Channel out{.used = true, .latency_s = draw(0, 1.5), .shared_links = {{own, draw(0, 1)}}, .bytes = 1000 + own};
      if (seed % 2 == 0) out.shared_links.push_back({shared, draw(0, 0.5)});
      return out;
    };
    input.links.push_back({.src = src, .dst = dst, .forward = channel(shared_link)});
    if (returns) input.links.back().backward = channel(shared_link + 1);
  };
  for (int s = 0; s + 1 < stages; ++s) join(s, s + 1, true);
  if (stages > 2 && seed % 4 == 0) join(0, stages - 1, seed % 8 == 0);
  if (stages > 1 && seed % 7 < 3) {
    for (const auto& [from, to] : {std::pair(0, stages - 1), std::pair(stages - 1, 0)}) {
      for (int exchange = 0; exchange < 2; ++exchange) {
        const int own = from == 0 ? 2 * (stages - 1) : 2 * (stages - 1) + 1;
        TiedMessage tied{.from = from, .to = to, .exchange = exchange, .channel = {.used = true, .latency_s = draw(0, 1), .bytes = 5000}};
        tied.channel.shared_links = {{own, draw(0, 9)}};
        if (seed % 2 == 0) tied.channel.shared_links.push_back({shared, draw(0, 9)});
        tied.pieces = seed % 2 == 0 ? 8 : 1;
        input.tied.push_back(tied);
      }
    }
    for (int s = 1; s < stages; ++s) {
      input.reports.push_back({s, 0, 0.3, 0.2, 100});
      input.decisions.push_back({0, s, 0.3, 0.2, 100});
    }
  }
  return input;
}

std::vector<std::string> SharedLinkNames(const PipelineInput& input) {
  std::vector<std::string> names(input.shared_links);
  names.back() = "uplink";
  return names;
}

class RandomPipelines : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomPipelines, ::testing::Range(0U, 120U));

TEST_P(RandomPipelines, SecondsOfAStageAddUpToTheStep) {
  const PipelineInput input = RandomPipeline(GetParam());
  const Simulation simulation = Simulate(input, SharedLinkNames(input));
  EXPECT_TRUE(simulation.complete);
  EXPECT_EQ(simulation.step_s, PipelineSimulator().Run(input).step_s) << "listening changes nothing";
  for (size_t s = 0; s < input.stages.size(); ++s) {
    const StageTiming& timing = input.stages[s];
    const StageUsage& use = simulation.stages[s];
    EXPECT_NEAR(use.busy_s() + use.idle_s, simulation.step_s, 1e-9);
    EXPECT_GE(use.end_s, 0);
    // A stage deep in the pipeline may wait while the next step's first micro-batch is on its way.
    if (s == 0) {
      EXPECT_LE(use.end_s, use.idle_s + 1e-9);
    }
    EXPECT_NEAR(use.busy_s(), input.micro_batches * (timing.forward_s + timing.backward_s) + timing.update_s, 1e-9);
    EXPECT_NEAR(use.codec_s, input.micro_batches * 0.07, 0.02 * input.micro_batches * 0.6 + 1e-9);
    EXPECT_LE(use.peak_in_flight, input.schedule == schedule::kGPipe ? input.micro_batches : timing.in_flight);
    EXPECT_GE(use.peak_in_flight, 1);
  }
  int64_t bytes = 0, sent = 0;
  double shared_s = 0;
  for (const LinkUsage& use : simulation.links) {
    const bool of_passes = use.kind == LinkUsage::Kind::kActivations || use.kind == LinkUsage::Kind::kGradients;
    EXPECT_EQ(use.messages, of_passes ? input.micro_batches : use.kind == LinkUsage::Kind::kTied ? 2 : 1);
    EXPECT_LE(use.busy_s, simulation.step_s * (1 + 1e-9));
    if (use.kind != LinkUsage::Kind::kNorm) sent += use.bytes;
  }
  for (const TiedMessage& tied : input.tied) {
    bytes += tied.channel.bytes;
    if (tied.channel.shared_links.size() == 2) shared_s += tied.channel.shared_links[1].hold_s;
  }
  for (const StageLink& link : input.links) {
    for (const Channel* channel : {&link.forward, &link.backward}) {
      if (!channel->used) continue;
      bytes += input.micro_batches * channel->bytes;
      if (channel->shared_links.size() == 2) shared_s += input.micro_batches * channel->shared_links[1].hold_s;
    }
  }
  EXPECT_EQ(sent, bytes);
  ASSERT_EQ(simulation.shared.size(), GetParam() % 2 == 0 && input.stages.size() > 1);
  if (!simulation.shared.empty()) {
    EXPECT_NEAR(simulation.shared[0].busy_s, shared_s, 1e-9);
    EXPECT_EQ(simulation.shared[0].name, "uplink");
  }
}

TEST_P(RandomPipelines, RowsOfTheTimelineDoNotOverlapAndEveryPassWaitsForItsMessages) {
  const PipelineInput input = RandomPipeline(GetParam());
  std::vector<std::string> names;
  for (size_t s = 0; s < input.stages.size(); ++s) names.push_back("d" + std::to_string(s));
  TimelineRecorder recorder(input, names);
  const Simulation simulation = Simulate(input, SharedLinkNames(input), nullptr, &recorder);
  const Timeline timeline = recorder.Finish(simulation.step_s);
  EXPECT_FALSE(timeline.truncated);
  std::vector<double> free_s(timeline.rows.size(), 0);
  std::map<std::tuple<int, int, int>, const TimelineSpan*> by_pass;
  for (const Timeline::Box& box : timeline.boxes) {
    EXPECT_GE(box.span.begin_s, free_s[box.row]) << timeline.rows[box.row].name;
    EXPECT_GE(box.span.end_s, box.span.begin_s);
    free_s[box.row] = box.span.end_s;
    by_pass[{static_cast<int>(box.span.kind), box.span.stage, box.span.micro_batch}] = &box.span;
  }
  using Kind = TimelineSpan::Kind;
  const auto span = [&](Kind kind, int stage, int micro_batch) { return by_pass.at({static_cast<int>(kind), stage, micro_batch}); };
  for (size_t l = 0; l < input.links.size(); ++l) {
    const StageLink& link = input.links[l];
    for (int m = 0; m < input.micro_batches; ++m) {
      const TimelineSpan* there = span(Kind::kForwardMessage, static_cast<int>(l), m);
      EXPECT_EQ(there->sent_s, span(Kind::kForward, link.src, m)->end_s);
      EXPECT_GE(there->begin_s, there->sent_s);
      EXPECT_GE(span(Kind::kForward, link.dst, m)->begin_s, there->arrives_s);
      if (!link.backward.used) continue;
      const TimelineSpan* back = span(Kind::kBackwardMessage, static_cast<int>(l), m);
      EXPECT_EQ(back->sent_s, span(Kind::kBackward, link.dst, m)->end_s);
      EXPECT_GE(span(Kind::kBackward, link.src, m)->begin_s, back->arrives_s);
    }
  }
}

// What must hold: all passes in order along the chain once, and the busiest stage; and with GPipe, whose order of passes is fixed, nothing
// gets faster when something gets slower (with 1F1B a delay may reorder passes for the better).
TEST_P(RandomPipelines, NeverBelowTheBoundsAndGPipeIsMonotone) {
  PipelineInput input = RandomPipeline(GetParam());
  const double step_s = PipelineSimulator().Run(input).step_s;
  double busiest_s = 0;
  for (const StageTiming& stage : input.stages) {
    busiest_s = std::max(busiest_s, input.micro_batches * (stage.forward_s + stage.backward_s) + stage.update_s);
  }
  EXPECT_GE(step_s, busiest_s * (1 - 1e-12));
  double once_s = 0;
  for (size_t s = 0; s < input.stages.size(); ++s) {
    once_s += input.stages[s].forward_s + input.stages[s].backward_s - (input.split_backward ? input.stages[s].weights_s : 0);
    if (s + 1 == input.stages.size()) continue;
    for (const Channel* channel : {&input.links[s].forward, &input.links[s].backward}) {
      double hold_s = 0;
      for (const LinkOccupancy& use : channel->shared_links) hold_s = std::max(hold_s, use.hold_s);
      once_s += hold_s + channel->latency_s;
    }
  }
  EXPECT_GE(step_s, once_s * (1 - 1e-12));
  // A shared link serves first come, first served: a delay may change who is first.
  if (input.schedule != schedule::kGPipe || GetParam() % 2 == 0 || input.split_backward) return;
  for (StageTiming& stage : input.stages) {
    PipelineInput slower = input;
    slower.stages[&stage - input.stages.data()].forward_s *= 1.3;
    EXPECT_GE(PipelineSimulator().Run(slower).compute_end_s, PipelineSimulator().Run(input).compute_end_s);
  }
  for (size_t l = 0; l < input.links.size(); ++l) {
    PipelineInput slower = input;
    slower.links[l].forward.shared_links[0].hold_s *= 1.7;
    slower.links[l].backward.latency_s += 0.4;
    EXPECT_GE(PipelineSimulator().Run(slower).compute_end_s, PipelineSimulator().Run(input).compute_end_s);
  }
}

TEST(SimulationTest, HalfDuplexMakesBothDirectionsWaitForEachOther) {
  PipelineInput input;
  input.micro_batches = 8;
  input.stages.assign(2, {.forward_s = 1, .backward_s = 1, .in_flight = 4});
  input.shared_links = 3;
  input.links = {{0, 1, {true, 0.1, {{0, 1.0}}}, {true, 0.1, {{1, 1.0}}}}};
  const Simulation full = Simulate(input, {"", "", "radio"});
  EXPECT_TRUE(full.shared.empty());
  input.links[0].forward.shared_links.push_back({2, 1.0});
  input.links[0].backward.shared_links.push_back({2, 1.0});
  const Simulation half = Simulate(input, {"", "", "radio"});
  EXPECT_GT(half.step_s, full.step_s);
  ASSERT_EQ(half.shared.size(), 1);
  EXPECT_EQ(half.shared[0].pairs, 2);
  EXPECT_NEAR(half.shared[0].busy_s, 16, 1e-9);
  EXPECT_GE(half.step_s, half.shared[0].busy_s);
}

StepSpread SpreadOfSteps(const PipelineInput& input, const NoiseSpec& noise, int steps) {
  return SpreadOf(SimulateStepSeconds(input, noise, steps));
}

TEST(SimulationTest, NoiseFollowsTheSeedAndKeepsItsMean) {
  PipelineInput input;
  input.micro_batches = 16;
  input.stages.assign(1, {.forward_s = 1, .backward_s = 2, .in_flight = 1});
  const NoiseSpec noise{.jitter = 0.3, .seed = 7};
  const StepSpread spread = SpreadOfSteps(input, noise, 400), again = SpreadOfSteps(input, noise, 400);
  EXPECT_EQ(spread.mean_s, again.mean_s);
  EXPECT_EQ(spread.p95_s, again.p95_s);
  EXPECT_NE(spread.mean_s, SpreadOfSteps(input, {.jitter = 0.3, .seed = 8}, 400).mean_s);
  // 400 steps of 32 independent passes: the mean is within 1 % (five standard errors).
  EXPECT_NEAR(spread.mean_s, 48, 0.48);
  EXPECT_LT(spread.min_s, spread.p50_s);
  EXPECT_LT(spread.p50_s, spread.p95_s);
  EXPECT_LE(spread.p95_s, spread.max_s);
  EXPECT_EQ(SpreadOfSteps(input, {}, 3).p95_s, 48);
}

TEST(SimulationTest, AStragglerLagsInItsShareOfTheSteps) {
  PipelineInput input;
  input.micro_batches = 4;
  input.stages.assign(2, {.forward_s = 1, .backward_s = 2, .update_s = 1, .in_flight = 2});
  input.links = {{0, 1, {true, 0, {}}, {true, 0, {}}}};
  const double step_s = PipelineSimulator().Run(input).step_s;
  const NoiseSpec always{.stragglers = {{.worker = 1, .factor = 3}}};
  const PipelineInput slowed = WithStragglers(input, always, 0);
  EXPECT_EQ(slowed.stages[0], input.stages[0]);
  EXPECT_EQ(slowed.stages[1].backward_s, 6);
  const double slow_s = PipelineSimulator().Run(slowed).step_s;
  EXPECT_EQ(SpreadOfSteps(input, always, 5).min_s, slow_s);
  const StepSpread often = SpreadOfSteps(input, {.stragglers = {{.worker = 1, .factor = 3, .probability = 0.25}}, .seed = 3}, 1000);
  EXPECT_EQ(often.min_s, step_s);
  EXPECT_EQ(often.max_s, slow_s);
  EXPECT_NEAR((often.mean_s - step_s) / (slow_s - step_s), 0.25, 0.07);
}

PlannedPipeline ChainPlan(double bandwidth, int micro_batches = 16) {
  PlanRequest request = testing::Chain({.ops = 24, .op_s = 0.01, .cut_bytes = 100'000}, micro_batches);
  for (OpNode& op : request.ops) {
    for (const double backward_s : op.backward_s) op.weights_s.push_back(backward_s / 2);
  }
  for (int d = 0; d < 4; ++d) testing::AddDevice(request, "a", 1);
  testing::LinkSites(request, bandwidth, 1e-5, bandwidth, 1e-5);
  request.stages = 4;
  return std::get<PlannedPipeline>(*MakePlan("equal-compute", request));
}

TEST(ScheduleVariantsTest, ShortenTheBubbleOnFastLinks) {
  const PlannedPipeline plan = ChainPlan(1e10);
  const auto interleaved = Interleave(plan.pipeline, 3), split = SplitBackward(plan.pipeline);
  ASSERT_TRUE(interleaved.ok()) << interleaved.status();
  ASSERT_TRUE(split.ok()) << split.status();
  const Simulation simulation = Simulate(*interleaved, plan.pipeline.shared_links);
  EXPECT_TRUE(simulation.complete);
  EXPECT_LT(simulation.step_s, plan.predicted_step_s);
  const Simulation plain = Simulate(plan.pipeline.input, plan.pipeline.shared_links);
  for (int w = 0; w < 4; ++w) EXPECT_NEAR(simulation.stages[w].busy_s(), plain.stages[w].busy_s(), 1e-9) << "the same work";
  EXPECT_LT(PipelineSimulator().Run(*split).step_s, plan.predicted_step_s);
  for (const StageTiming& stage : split->stages) EXPECT_LE(stage.in_flight, std::max(stage.max_kept, 1));
}

TEST(ScheduleVariantsTest, InterleavingPaysForItsCrossingsOnSlowLinks) {
  const PlannedPipeline plan = ChainPlan(3e6);
  const auto interleaved = Interleave(plan.pipeline, 3);
  ASSERT_TRUE(interleaved.ok());
  EXPECT_GT(PipelineSimulator().Run(*interleaved).step_s, plan.predicted_step_s);
}

// Between the sites messages are shrunk, inside them not: what goes round the sites is not the larger one.
TEST(ScheduleVariantsTest, WrapAroundMessageIsAsLargeAsTheSlowest) {
  const CodecLevelPolicy ladder({{.name = "fp32"}, {.name = "topk", .forward_ratio = 100, .backward_ratio = 100, .loss_cost = 1e-6}});
  PlanRequest request = testing::Chain({.ops = 12, .op_s = 0.01, .cut_bytes = 4'000'000}, 8);
  for (const char* site : {"paris", "paris", "tokyo", "tokyo"}) testing::AddDevice(request, site, 1);
  testing::LinkSites(request, 1e10, 1e-3, 2.5e6, 0.02);
  request.stages = 4;
  request.codec_policy = &ladder;
  const PlannedPipeline plan = std::get<PlannedPipeline>(*MakePlan("equal-compute", request));
  ASSERT_TRUE(plan.pipeline.wrap_around.forward.used);
  EXPECT_EQ(plan.pipeline.wrap_around.forward.bytes, 40'000);
  EXPECT_EQ(plan.pipeline.wrap_around.backward.bytes, 40'000);
}

TEST(ScheduleVariantsTest, SayWhatCannotBe) {
  PlannedPipeline plan = ChainPlan(1e10);
  EXPECT_EQ(Interleave(plan.pipeline, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Interleave(plan.pipeline, 65).status().code(), absl::StatusCode::kInvalidArgument);
  StepModel open = plan.pipeline;
  open.wrap_around = {};
  EXPECT_THAT(Interleave(open, 2).status().message(), HasSubstr("not joined"));
  StepModel tight = plan.pipeline;
  tight.input.stages[0].max_kept = 2;
  EXPECT_THAT(Interleave(tight, 2).status().message(), HasSubstr("stage 0 must keep 11"));
  for (StageTiming& stage : plan.pipeline.input.stages) stage.weights_s = 0;
  EXPECT_THAT(SplitBackward(plan.pipeline).status().message(), HasSubstr("gradients of weights"));
}

}  // namespace
}  // namespace fusionllm::scheduler
