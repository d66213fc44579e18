// Plans with recomputation by blocks: what fits, and the search's memory model against the runtime's own sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "lib/job/parse.h"
#include "lib/opdag/testing/random_graph.h"
#include "lib/planning/plan_workload.h"
#include "lib/planning/request.h"
#include "lib/planning/stage_memory.h"
#include "lib/scheduler/graph_request.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::planning {
namespace {

using runtime::Recompute;
using ::testing::HasSubstr;

std::unique_ptr<workload::Workload> WorkloadOf(const std::string& model, const std::string& data, const std::string& training) {
  const auto job =
      job::ParseFusionJob(absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n  model: {",
                                       model, "}\n  data: {", data, "}\n  training: {", training, "}\n"),
                          "job");
  EXPECT_TRUE(job.ok()) << job.status();
  auto workload = workload::Resolve(*job, "/");
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

Profiles Gpus(int count, const std::string& profile) {
  std::string devices;
  for (int d = 0; d < count; ++d) absl::StrAppend(&devices, d > 0 ? ", " : "", "{name: gpu-", d, ", profile: ", profile, "}");
  const auto topology =
      job::ParseTopology(absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: gpus}\nspec:\n  sites:\n  - "
                                      "{name: s, devices: [",
                                      devices, "], internal: {bandwidth: 10Gbit, latency: 100us}}\n"),
                         "t.yaml");
  EXPECT_TRUE(topology.ok()) << topology.status();
  auto profiles = ProfilesFromTopology(*topology, {}, 1);
  EXPECT_TRUE(profiles.ok()) << profiles.status();
  return *std::move(profiles);
}

TEST(RecomputePlan, Gpt2XlFitsTwo4090WhereItDoesNotWithout) {
  const Profiles profiles = Gpus(2, "nvidia-rtx-4090");
  const auto answer = [&](const std::string& recompute) {
    const auto job =
        WorkloadOf("family: gpt2, preset: xl", "kind: tokens, path: [x.bin]",
                   absl::StrCat("globalBatchSize: 64, microBatchSize: 8, sequenceLength: 1024, precision: bf16, recompute: ", recompute));
    const auto planned = PlanWorkload(*job, profiles, {.search_budget = scheduler::kQuickSearchBudget});
    EXPECT_TRUE(planned.ok()) << planned.status();
    return *planned;
  };
  const plan::PlanResult none = answer("none"), full = answer("full");
  ASSERT_TRUE(std::holds_alternative<plan::PlanError>(none));
  EXPECT_THAT(std::get<plan::PlanError>(none).message, HasSubstr("with spec.training.recompute=full"));
  ASSERT_TRUE(std::holds_alternative<plan::Plan>(full)) << std::get<plan::PlanError>(full).message;
  EXPECT_EQ(std::get<plan::Plan>(full).recompute, "full");
}

// The model is linear in ops, the arenas are not; recomputation makes it no worse.
TEST(RecomputePlan, TheSearchCountsNearlyWhatStagesTake) {
  const std::unique_ptr<workload::Workload> jobs[] = {
      WorkloadOf("family: gpt2, preset: tiny, config: {nLayer: 12, nHead: 4, nEmbd: 128, vocabSize: 512, blockSize: 128}",
                 "kind: tokens, path: [x.bin]", "globalBatchSize: 32, microBatchSize: 4, sequenceLength: 128"),
      WorkloadOf("family: resnet, preset: 18, config: {stem: cifar, numClasses: 10}",
                 "kind: shapes, shapes: {samples: 1000, imageSize: 32, numClasses: 10, seed: 1}", "globalBatchSize: 64, microBatchSize: 8"),
      WorkloadOf("family: mlp, config: {layers: [784, 256, 256, 256, 256, 256, 256, 10]}", "kind: idx, path: [x]",
                 "globalBatchSize: 512, microBatchSize: 64")};
  const Profiles profiles = Gpus(4, "nvidia-l4");
  std::vector<double> none, full;  // what a stage takes, as a share of what the search counts
  for (const auto& job : jobs) {
    for (const int stages : {1, 2, 4}) {
      job->job.spec.strategy.stages = stages;
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        const auto request = MakeRequest(*job, profiles, {}, recompute);
        ASSERT_TRUE(request.ok()) << request.status();
        const auto outcome = scheduler::MakePlan("equal-compute", request->request);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        const auto* plan = std::get_if<scheduler::PlannedPipeline>(&*outcome);
        ASSERT_NE(plan, nullptr) << std::get<plan::PlanError>(*outcome).message;
        const auto exact = StageMemoryOf(*job, profiles, *plan, recompute);
        ASSERT_TRUE(exact.ok()) << exact.status();
        for (const scheduler::PlannedStage& stage : plan->stages) {
          const double ratio = static_cast<double>((*exact)[stage.index]) / static_cast<double>(stage.memory_bytes);
          (recompute == Recompute::kFull ? full : none).push_back(ratio);
          EXPECT_GT(ratio, 0.7) << "stage " << stage.index << " of " << stages << ", " << stage.in_flight << " in flight";
          EXPECT_LT(ratio, 1.05) << "stage " << stage.index << " of " << stages << ", " << stage.in_flight << " in flight";
        }
      }
    }
  }
  const auto middle = [](std::vector<double> shares) {
    std::sort(shares.begin(), shares.end());
    return shares[shares.size() / 2];
  };
  EXPECT_GT(middle(full), 0.9);
  EXPECT_GT(middle(full), middle(none) - 0.1);
}

// Cut anywhere. Two names of the same bytes count twice in the search, and so does what only an op beside a cut would have read again.
TEST(RecomputePlan, TheSearchCountsNearlyWhatStagesOfRandomGraphsStash) {
  double model_bytes = 0, exact_bytes = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    opdag::Graph graph = opdag::testing::RandomGraph({.seed = seed, .ops = 30, .layers = true});
    ASSERT_TRUE(opdag::InferTypes(graph, 64).ok());
    const autodiff::TrainingGraph training = *autodiff::Differentiate(graph);
    const estimator::GraphCosts costs = estimator::CostsOf(training, 2);
    scheduler::PlanRequest request;
    ASSERT_TRUE(scheduler::AddGraph(training, costs, {std::vector<estimator::OpSeconds>(costs.ops.size())}, request).ok());
    request.devices = {{.name = "d", .site = "s", .memory_bytes = int64_t{1} << 40}};
    for (int op = 0; op < training.forward_ops; ++op) request.order.push_back(op);
    std::stable_partition(request.order.begin(), request.order.end(), [&](int op) { return request.ops[op].placeholder; });
    request.recompute = true;
    const auto created = scheduler::Problem::Create(request);
    ASSERT_TRUE(created.ok()) << created.status();
    const auto& problem = *std::get<std::unique_ptr<scheduler::Problem>>(*created);
    std::mt19937 draw(static_cast<uint32_t>(seed));
    const int first = problem.first_cut(), n = problem.positions();
    const int a = first + static_cast<int>(draw() % (n - first)), b = first + static_cast<int>(draw() % (n - first));
    std::vector<int> borders = {0, std::min(a, b), std::max(a, b), n};
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    const int stages = static_cast<int>(borders.size()) - 1;
    std::vector<int> stage_of(training.forward_ops, 0);
    for (int stage = 0; stage < stages; ++stage) {
      for (int p = borders[stage]; p < borders[stage + 1]; ++p) stage_of[problem.op_at(p)] = stage;
    }
    for (int stage = 0; stage < stages; ++stage) {
      const auto program =
          runtime::BuildStageProgram(training, autodiff::AssignStages(training, stage_of), stage, stages, Recompute::kFull);
      ASSERT_TRUE(program.ok()) << program.status();
      const int64_t stash = problem.StashBound(borders[stage], borders[stage + 1]);
      model_bytes += static_cast<double>(stash);
      exact_bytes += static_cast<double>(program->stash_bytes_per_slot);
    }
  }
  EXPECT_LT(model_bytes, exact_bytes * 1.05);
  EXPECT_GT(model_bytes, exact_bytes * 0.85);
}

}  // namespace
}  // namespace fusionllm::planning
