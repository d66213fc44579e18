// spec.strategy.replicas as users meet it when they plan: planned, simulated and shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cli/testing/fusionctl.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kReplicaJob[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
    "  model: {family: mlp, config: {layers: [192, 2048, 2048, 2048, 2048, 8], activation: relu}}\n"
    "  data: {kind: shapes, shapes: {samples: 4096, imageSize: 8, numClasses: 8}}\n"
    "  training: {steps: 100, globalBatchSize: 4096, microBatchSize: 256}\n";

// GPUs by name: nothing is measured, so the same figures come out everywhere.
constexpr char kReplicaTopology[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: gpus}\nspec:\n  sites:\n"
    "  - {name: a, devices: [{name: a-0, profile: nvidia-t4}, {name: a-1, profile: nvidia-t4}]}\n"
    "  - {name: b, devices: [{name: b-0, profile: nvidia-t4}, {name: b-1, profile: nvidia-a100-40gb}]}\n"
    "  links: [{from: a, to: b, bandwidth: 1Gbit, latency: 1ms, symmetric: true}]\n";

class PlanReplicas : public ::testing::Test {
 protected:
  void SetUp() override {
    program_.Write("job.yaml", kReplicaJob);
    program_.Write("t.yaml", kReplicaTopology);
  }
  json PlanWith(const std::string& replicas, const std::string& flags = "") {
    const Outcome outcome =
        program_.Run("--format json plan job.yaml --topology t.yaml --set spec.strategy.replicas=" + replicas + " " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json::object();
  }

  Fusionctl program_;
};

TEST_F(PlanReplicas, APlanShowsItsPipelinesAndWhatAddingUpGradientsTakes) {
  const json plan = PlanWith("2");
  ASSERT_EQ(plan["replicas"], 2);
  std::set<std::string> devices;
  int64_t gradient_bytes = 0;
  for (const json& stage : plan["stages"]) {
    ASSERT_EQ(stage["devices"].size(), 2u);
    devices.insert(stage["devices"].begin(), stage["devices"].end());
    gradient_bytes += stage["sync_bytes"].get<int64_t>();
  }
  EXPECT_EQ(devices.size(), 2 * plan["stages"].size());
  EXPECT_EQ(plan["micro_batches_by_replica"][0].get<int>() + plan["micro_batches_by_replica"][1].get<int>(), 16);
  EXPECT_GT(gradient_bytes, 0);
  EXPECT_EQ(plan["sync_bytes"], 2 * gradient_bytes) << "each of two replicas sends all of them once";
  EXPECT_GT(plan["sync_seconds"], 0);
  EXPECT_GT(plan["predicted_step_seconds"], plan["sync_seconds"]);
  EXPECT_GE(plan["gap"], 0);

  const Outcome text = program_.Run("plan job.yaml --topology t.yaml --explain --set spec.strategy.replicas=2");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("2 pipelines side by side take"));
  EXPECT_THAT(text.out, HasSubstr("of gradients are added up along"));
}

TEST_F(PlanReplicas, AutoIsNeverSlowerThanOnePipelineAndOneIsTheDefault) {
  const json one = PlanWith("1"), decided = PlanWith("auto");
  EXPECT_EQ(one["replicas"], 1);
  EXPECT_FALSE(one.contains("micro_batches_by_replica"));
  EXPECT_LE(decided["predicted_step_seconds"], one["predicted_step_seconds"]);
  const Outcome unsaid = program_.Run("--format json plan job.yaml --topology t.yaml");
  ASSERT_EQ(unsaid.code, 0) << unsaid.err;
  EXPECT_EQ(json::parse(unsaid.out)["stages"], one["stages"]);
}

TEST_F(PlanReplicas, ASimulationShowsEveryPipelineAndTakesWhatThePlanPredicts) {
  const json plan = PlanWith("2");
  const Outcome outcome = program_.Run("--format json simulate job.yaml --topology t.yaml --set spec.strategy.replicas=2 --timeline step");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json step = json::parse(outcome.out);
  EXPECT_EQ(step["step_seconds"], plan["predicted_step_seconds"]);
  EXPECT_EQ(step["sync_seconds"], plan["sync_seconds"]);
  EXPECT_EQ(step["replicas"], 2);
  EXPECT_EQ(step["micro_batches"], plan["micro_batches"]);
  EXPECT_EQ(step["runnable"], false);
  EXPECT_EQ(step["stages"].size(), 2 * plan["stages"].size());
  EXPECT_THAT(base::ReadWholeFile(program_.Path("step/timeline.svg")), HasSubstr("all-reduce of stage 0"));
  EXPECT_THAT(base::ReadWholeFile(program_.Path("step/timeline.json")), HasSubstr("pipeline 1, stage 0"));

  const Outcome text = program_.Run("simulate job.yaml --topology t.yaml --set spec.strategy.replicas=2");
  EXPECT_THAT(text.out, HasSubstr("2 pipelines side by side; the slowest takes"));
  EXPECT_THAT(text.out, HasSubstr("all-reduce"));
}

TEST_F(PlanReplicas, APlanWithSeveralPipelinesIsNoRunningPlan) {
  program_.Write("plan.json", PlanWith("2").dump());
  const Outcome outcome = program_.Run("plan job.yaml --topology t.yaml --running plan.json");
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_THAT(outcome.err, HasSubstr("plan.replicas: the plan has 2 pipelines side by side"));
}

TEST_F(PlanReplicas, WhatCannotBeIsRefused) {
  const auto refused = [&](const std::string& flags) {
    const Outcome outcome = program_.Run("plan job.yaml --topology t.yaml " + flags);
    EXPECT_EQ(outcome.code, 3) << flags << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(refused("--set spec.strategy.replicas=5"), HasSubstr("TooFewExecutors"));
  EXPECT_THAT(refused("--set spec.strategy.replicas=17"), HasSubstr("TooManyReplicas"));
  EXPECT_THAT(refused("--set spec.strategy.replicas=2 --strategy equal-ops"), HasSubstr("planner equal-ops lays out one pipeline"));
  EXPECT_EQ(program_.Run("plan job.yaml --topology t.yaml --set spec.strategy.replicas=-1").code, 2);
}

// Four devices: which of the job's fields leaves fewer of them, or asks for more than such a grid has.
TEST_F(PlanReplicas, TheFieldThatStandsInTheWayIsNamed) {
  struct Case {
    const char *executors, *words;
  };
  for (const Case& c :
       {Case{"{max: 1}",
             "(TooFewExecutors): 2 pipelines (spec.strategy.replicas) need 2 executors, the job may use 1: spec.executors.max is 1"},
        Case{"{replicas: 1, max: 2}", "the job may use 1: spec.executors.replicas is 1"},
        Case{"{spares: 3}", "the job may use 1: 3 are held back as spares (spec.executors.spares)"},
        Case{"{min: 3, max: 3}",
             "(ConflictingConstraints): 2 pipelines (spec.strategy.replicas) with the same number of stages use 2 executors or 4, but "
             "spec.executors.min asks for 3, and the job may use 3 (spec.executors.max is 3)"}}) {
    const Outcome outcome = program_.Run(
        std::string("plan job.yaml --topology t.yaml --set spec.strategy.replicas=2 --set 'spec.executors=") + c.executors + "'");
    EXPECT_EQ(outcome.code, 3) << c.executors << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(c.words));
  }
  // One pipeline is limited by the same.
  const Outcome one = program_.Run("plan job.yaml --topology t.yaml --set spec.strategy.stages=4 --set spec.executors.spares=1");
  EXPECT_EQ(one.code, 3) << one.out;
  EXPECT_THAT(
      one.err,
      HasSubstr("(TooManyStages): spec.strategy.stages is 4, spec.executors (max, replicas, less spares) allows 3: 1 is held back as a "
                "spare (spec.executors.spares)"));
}

}  // namespace
}  // namespace fusionllm::cli
