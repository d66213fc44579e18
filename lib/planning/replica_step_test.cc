// Several pipelines side by side, simulated: the plan's own prediction, and whose time goes where.
#include "lib/planning/replica_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lib/job/parse.h"
#include "lib/planning/simulate_workload.h"

namespace fusionllm::planning {
namespace {

constexpr char kReplicaJob[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
    "  model: {family: mlp, config: {layers: [192, 2048, 2048, 2048, 2048, 8], activation: relu}}\n"
    "  data: {kind: shapes, shapes: {samples: 4096, imageSize: 8, numClasses: 8}}\n"
    "  training: {steps: 100, globalBatchSize: 4096, microBatchSize: 256}\n"
    "  strategy: {replicas: 2, stages: 2}\n";

constexpr char kGpuTopology[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: gpus}\nspec:\n  sites:\n"
    "  - {name: a, devices: [{name: a-0, profile: nvidia-t4}, {name: a-1, profile: nvidia-t4}]}\n"
    "  - {name: b, devices: [{name: b-0, profile: nvidia-t4}, {name: b-1, profile: nvidia-a100-40gb}]}\n"
    "  links: [{from: a, to: b, bandwidth: 1Gbit, latency: 1ms, symmetric: true}]\n";

absl::StatusOr<std::unique_ptr<workload::Workload>> ReplicaSource(const std::vector<std::string>& overrides) {
  const auto job = job::ParseFusionJob(kReplicaJob, "job.yaml", overrides);
  if (!job.ok()) return job.status();
  return workload::Resolve(*job, "/");
}

TEST(ReplicaStepTest, ASimulationTakesWhatThePlanPredictsBitForBit) {
  const auto outcome = SimulateWorkload(ReplicaSource, {.topology = *job::ParseTopology(kGpuTopology, "t.yaml")},
                                        {.jitter = 0, .what_if = {"device:b-0=absent", "site:a.latency=5ms"}, .timeline = true});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_TRUE(std::holds_alternative<wire::SimulationDocument>(outcome->answer)) << wire::PrintSimulation(outcome->answer);
  const auto& [plan, step, what_if] = std::get<wire::SimulationDocument>(outcome->answer);
  EXPECT_EQ(step.step_seconds, plan.predicted_step_seconds);
  EXPECT_EQ(step.sync_seconds, plan.sync_seconds);
  EXPECT_GT(step.sync_seconds, 0);
  EXPECT_EQ(step.replicas, 2);
  EXPECT_EQ(step.micro_batches, plan.micro_batches);
  EXPECT_FALSE(step.runnable);
  ASSERT_EQ(step.stages.size(), 4u);
  for (const wire::SimulatedStage& stage : step.stages) {
    EXPECT_EQ(stage.device, plan.stages[stage.index].devices[stage.replica]);
    const double seconds = stage.forward_seconds + stage.backward_seconds + stage.weights_seconds + stage.codec_seconds +
                           stage.update_seconds + stage.idle_seconds;
    EXPECT_NEAR(seconds, step.step_seconds, 1e-9);
    EXPECT_NEAR(stage.busy_ratio, 1 - stage.idle_seconds / step.step_seconds, 1e-9);
  }
  // Two replicas of each stage that has gradients: a hop there and one back, with all of them in chunks.
  std::vector<wire::SimulatedLink> hops;
  for (const wire::SimulatedLink& link : step.links) {
    if (link.sync) hops.push_back(link);
  }
  ASSERT_EQ(hops.size(), 2u) << "one stage has all weights";
  for (size_t h = 0; h < hops.size(); ++h) {
    const plan::Stage& stage = plan.stages[hops[h].src_stage];
    ASSERT_THAT(stage.chain, ::testing::ElementsAre(0, 1)) << "as fast as backwards";
    EXPECT_EQ(hops[h].replica, stage.chain[h]) << "who sends";
    EXPECT_EQ(hops[h].src, stage.devices[stage.chain[h]]);
    EXPECT_EQ(hops[h].dst, stage.devices[stage.chain[1 - h]]);
    EXPECT_EQ(hops[h].bytes, stage.sync_bytes);
    EXPECT_GT(hops[h].messages, 1);
    EXPECT_LE(hops[h].busy_seconds + hops[h].latency_seconds, step.sync_seconds);
  }
  int64_t synced_bytes = 0, sent_bytes = 0, planned_bytes = 0;
  for (const wire::SimulatedLink& link : step.links) {
    // Reports and decisions are rows of a simulation, and none of a plan's links.
    if (!link.norm) (link.sync ? synced_bytes : sent_bytes) += link.bytes;
  }
  for (const plan::Link& link : plan.links) planned_bytes += link.bytes;
  EXPECT_GT(synced_bytes, 0);
  EXPECT_EQ(synced_bytes, plan.sync_bytes);
  EXPECT_EQ(sent_bytes, planned_bytes);
  for (const wire::SimulatedResource& resource : step.resources) EXPECT_LE(resource.busy_ratio, 1 + 1e-9) << resource.name;
  ASSERT_FALSE(step.bottlenecks.empty());
  EXPECT_GT(step.bottlenecks[0].gain, 0);
  EXPECT_FALSE(step.bottleneck.empty());
  EXPECT_EQ(outcome->timeline.step_s, step.step_seconds);
  double last_s = 0;
  for (const scheduler::Timeline::Box& box : outcome->timeline.boxes) last_s = std::max(last_s, box.span.arrives_s);
  EXPECT_EQ(last_s, step.step_seconds) << "the last chunk ends the step, bit for bit";
  std::vector<std::string> rows;
  for (const scheduler::Timeline::Row& row : outcome->timeline.rows) rows.push_back(row.name);
  EXPECT_THAT(rows, ::testing::Contains(::testing::HasSubstr("pipeline 1, stage 1")));
  for (const wire::SimulatedLink& link : step.links) {
    if (!link.sync) continue;
    const std::string name = link.src + " -> " + link.dst + ": all-reduce of stage " + std::to_string(link.src_stage);
    ASSERT_THAT(rows, ::testing::Contains(name));
    const auto row = std::find(rows.begin(), rows.end(), name) - rows.begin();
    const auto box =
        std::find_if(outcome->timeline.boxes.begin(), outcome->timeline.boxes.end(), [&](const auto& b) { return b.row == row; });
    ASSERT_NE(box, outcome->timeline.boxes.end());
    EXPECT_GE(box->span.begin_s, step.step_seconds - step.sync_seconds - 1e-12);
    EXPECT_GE(box->span.end_s - box->span.begin_s, link.busy_seconds - 1e-12);
    EXPECT_NEAR(box->span.arrives_s - box->span.end_s, link.latency_seconds, 1e-12);
  }
  // Three devices are too few for two pipelines of two stages.
  ASSERT_EQ(what_if.size(), 2u);
  EXPECT_FALSE(what_if[0].same_plan.has_value());
  EXPECT_EQ(std::get<plan::PlanError>(what_if[0].replanned).reason, "TooFewExecutors");
  EXPECT_EQ(std::get<wire::PlannedStep>(what_if[1].replanned).step.replicas, 2);
}

TEST(ReplicaStepTest, PipelinesVaryEachOnItsOwn) {
  const auto outcome = SimulateWorkload(ReplicaSource, {.topology = *job::ParseTopology(kGpuTopology, "t.yaml")},
                                        {.jitter = 0.2, .noise_seed = 3, .steps = 20});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const wire::SimulatedStep& step = std::get<wire::SimulationDocument>(outcome->answer).step;
  ASSERT_TRUE(step.spread.has_value());
  EXPECT_EQ(step.spread->steps, 20);
  EXPECT_LT(step.spread->min_seconds, step.spread->max_seconds);
  EXPECT_LE(step.spread->min_seconds, step.step_seconds);
  EXPECT_GE(step.spread->max_seconds, step.step_seconds);
}

}  // namespace
}  // namespace fusionllm::planning
