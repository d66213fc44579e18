#include "lib/planning/step_document.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace fusionllm::planning {
namespace {

// Stages with these shares of the step, on h0, h1, ..; `bottlenecks` most gain first.
wire::SimulatedStep StepOf(const std::vector<double>& busy, std::vector<wire::SimulatedBottleneck> bottlenecks) {
  wire::SimulatedStep step{.step_seconds = 1, .bottlenecks = std::move(bottlenecks)};
  for (size_t s = 0; s < busy.size(); ++s) {
    step.stages.push_back({.index = static_cast<int>(s), .device = absl::StrCat("h", s), .busy_ratio = busy[s]});
  }
  return step;
}

wire::SimulatedBottleneck Stage(const std::string& name, double busy_ratio, double gain) {
  return {.kind = "stage", .name = name, .busy_ratio = busy_ratio, .gain = gain};
}

TEST(BottleneckSentenceTest, WhatSavesSomethingLimitsTheStep) {
  EXPECT_EQ(BottleneckSentence(StepOf({0.9, 0.4}, {Stage("stage 0 on h0", 0.9, 0.08), Stage("stage 1 on h1", 0.4, 0.006)}), 1),
            "The step is limited by stage 0 on h0, busy 90% of the step: if it took 10% less time, the step would be 8.0% shorter. Next is "
            "stage 1 on h1, busy 40% of the step: 0.6%.");
}

TEST(BottleneckSentenceTest, WhereNothingSavesTwoPerCentNothingAloneLimitsTheStep) {
  const auto sentence = [](const std::vector<double>& busy) {
    return BottleneckSentence(StepOf(busy, {Stage("stage 3 on h3", 0.81, 0.009), Stage("stage 0 on h2", 0.95, 0.007)}), 1);
  };
  const std::string head = "Nothing alone limits the step: 10% less time of one thing would save at most 0.9% (stage 3 on h3).";
  EXPECT_EQ(sentence({0.95, 1, 0.93, 0.97}), head + " All 4 stages are busy 93 to 100% of the step.");
  EXPECT_EQ(sentence({0.95, 1}), head + " Both stages are busy 95 to 100% of the step.");
  EXPECT_EQ(sentence({0.95, 0.6, 0.93, 0.97}), head + " 3 of 4 stages are busy 93 to 97% of the step.");
  EXPECT_EQ(sentence({0.95, 0.2, 0.5}), head + " Stage 0 on h0 is busy 95% of the step.");
  EXPECT_EQ(sentence({0.3, 0.2, 0.4}), head + " No stage is busy more than 40% of the step: the rest is waiting.");
}

TEST(BottleneckSentenceTest, ABusyLinkIsNamedBesideTheStages) {
  wire::SimulatedStep step = StepOf({0.9, 0.85}, {{.kind = "latency", .name = "h0 -> h1 (activations)", .gain = 0.01}});
  step.resources = {{.name = "h1.ingress", .busy_ratio = 0.3}, {.name = "link:paris->tokyo", .busy_ratio = 0.88}};
  EXPECT_EQ(
      BottleneckSentence(step, 0),
      "Nothing alone limits the step: 10% less time of one thing would save at most 1.0% (the latency of h0 -> h1 (activations)). Both "
      "stages are busy 85 to 90%, and the shared link:paris->tokyo is busy 88% of the step.");
  step.resources.clear();
  step.links = {{.src = "h0", .dst = "h1", .busy_ratio = 0.9}};
  EXPECT_NE(BottleneckSentence(step, 0).find(", and the link h0 -> h1 is busy 90% of the step."), std::string::npos);
}

TEST(BottleneckSentenceTest, ARunnerUpThatIsBusierIsExplained) {
  const std::string sentence =
      BottleneckSentence(StepOf({0.94, 0.77}, {Stage("stage 1 on h1", 0.77, 0.04), Stage("stage 0 on h0", 0.94, 0.03)}), 1);
  EXPECT_NE(sentence.find("Next is stage 0 on h0, busy 94% of the step: 3.0%, since less of its work is waited for."), std::string::npos)
      << sentence;
}

// Two stages that send each other messages of 2 s.
TEST(StepDocumentTest, ALinkIsOneLimitWithTheShareOfEachDirection) {
  scheduler::PipelineInput input;
  input.micro_batches = 4;
  input.stages.assign(2, {.forward_s = 0.1, .backward_s = 0.1, .in_flight = 4});
  input.shared_links = 2;
  input.links = {{0, 1, {true, 0, {{0, 2}}}, {true, 0, {{1, 1.9}}}}};
  const wire::SimulatedStep step =
      StepDocument(input, scheduler::Simulate(input, {"", ""}), {.schedule = "1f1b", .devices = {"h0", "h1"}}, nullptr);
  ASSERT_FALSE(step.bottlenecks.empty());
  EXPECT_EQ(step.bottlenecks[0].kind, "link");
  EXPECT_EQ(step.bottlenecks[0].name, "h0 <-> h1 (activations, gradients)");
  EXPECT_TRUE(
      step.bottleneck.starts_with("The step is limited by the link h0 <-> h1 (activations, gradients), busy 78% of the step one way "
                                  "and 74% the other: if it took 10% less time, the step would be 9."))
      << step.bottleneck;
}

TEST(BottleneckSentenceTest, AStepOfNothingHasNone) { EXPECT_EQ(BottleneckSentence({}, 0), "Nothing takes time in this step."); }

}  // namespace
}  // namespace fusionllm::planning
