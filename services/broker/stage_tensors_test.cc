#include "services/broker/stage_tensors.h"

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/parse.h"
#include "lib/opdag/graph_builder.h"
#include "lib/plan/plan.h"
#include "lib/wire/plan_json.h"
#include "lib/workload/forward_graph.h"
#include "services/broker/testing/held_tensors.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;

constexpr char kJobTemplate[] = R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: small}
spec:
  model: MODEL
  data: DATA
  training: {steps: 2, globalBatchSize: 8, microBatchSize: 2}
)";

opdag::Graph GraphOf(const std::string& model, const std::string& data) {
  const auto job = job::ParseFusionJob(absl::StrReplaceAll(kJobTemplate, {{"MODEL", model}, {"DATA", data}}), "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return *workload::BuildForwardGraph(*job, "");
}

// The first `first` ops make stage 0, the others stage 1.
StageTensors InTwo(const opdag::Graph& graph, size_t first) {
  plan::Plan plan;
  plan.stages.resize(2);
  for (size_t s = 0; s < 2; ++s) {
    plan.stages[s].index = static_cast<int>(s);
    plan.stages[s].devices = {s == 0 ? "a" : "b"};
  }
  for (size_t op = 0; op < graph.ops().size(); ++op) plan.stages[op < first ? 0 : 1].ops.push_back(graph.ops()[op].name);
  const auto tensors = StageTensors::Of(graph, wire::PrintPlan(plan));
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  return *tensors;
}

TEST(StageTensorsTest, AParameterAndItsStateBelongToTheStageThatUsesIt) {
  const StageTensors tensors = Held({{"a.weight", "a.bias"}, {"b.weight"}});
  for (const char* name : {"a.weight", "a.bias", "a.weight.exp_avg", "a.weight.exp_avg_sq", "a.bias.momentum_buffer"}) {
    EXPECT_TRUE(tensors.Holds(0, name)) << name;
    EXPECT_FALSE(tensors.Holds(1, name)) << name;
  }
  EXPECT_TRUE(tensors.HoldsParameter(1, "b.weight"));
  EXPECT_FALSE(tensors.HoldsParameter(1, "b.weight.exp_avg")) << "of a start there is no state";
  for (const char* name : {"", ".", "a", "weight", "a.weight.", "a.weight.exp_avg.more", "residual:", "residual:s0.p0@", "residual:@"}) {
    EXPECT_EQ(tensors.Holds(0, name), std::string(name) == "a.weight.") << name;  // which no file has
    EXPECT_FALSE(tensors.Holds(1, name)) << name;
  }
  for (const int stage : {-1, 2}) EXPECT_FALSE(tensors.Holds(stage, "a.weight")) << stage;
  EXPECT_FALSE(StageTensors().Holds(0, "a.weight"));
}

TEST(StageTensorsTest, AParameterWhoseNameLooksLikeAnothersStateIsItsOwnStages) {
  const StageTensors tensors = Held({{"w"}, {"w.exp_avg"}});
  EXPECT_FALSE(tensors.Holds(0, "w.exp_avg"));
  EXPECT_TRUE(tensors.Holds(1, "w.exp_avg"));
}

TEST(StageTensorsTest, ATiedParameterAndItsStateBelongToEveryStageThatUsesIt) {
  const opdag::Graph graph = GraphOf("{family: gpt2, preset: tiny}", "{kind: text, path: x}");
  const StageTensors tensors = InTwo(graph, graph.ops().size() / 2);
  for (const int stage : {0, 1}) {
    EXPECT_TRUE(tensors.Holds(stage, "transformer.wte.weight")) << stage;
    EXPECT_TRUE(tensors.Holds(stage, "transformer.wte.weight.exp_avg")) << stage;
  }
  EXPECT_TRUE(tensors.Holds(1, "transformer.ln_f.weight"));
  EXPECT_FALSE(tensors.Holds(0, "transformer.ln_f.weight"));
  EXPECT_FALSE(tensors.Holds(1, "transformer.wpe.weight"));
}

TEST(StageTensorsTest, StatisticsOfBatchNormsAreHeldAndHaveNoState) {
  const opdag::Graph graph =
      GraphOf("{family: resnet, preset: 18, config: {stem: cifar, numClasses: 10, imageSize: 32}}", "{kind: shapes}");
  const StageTensors tensors = InTwo(graph, graph.ops().size() / 2);
  for (const char* name : {"bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"}) {
    EXPECT_TRUE(tensors.HoldsParameter(0, name)) << name;
    EXPECT_FALSE(tensors.Holds(1, name)) << name;
  }
  EXPECT_FALSE(tensors.Holds(0, "bn1.running_mean.exp_avg"));
  EXPECT_TRUE(tensors.Holds(0, "bn1.weight.exp_avg"));
}

TEST(StageTensorsTest, AResidualBelongsToTheStageThatSendsWhatItIsOf) {
  const StageTensors tensors = Held({{"a", "tied"}, {"b", "tied"}});
  EXPECT_TRUE(tensors.Holds(0, "residual:s0.p0:0->s1.p0:2x8x16"));
  EXPECT_FALSE(tensors.Holds(1, "residual:s0.p0:0->s1.p0:2x8x16"));
  EXPECT_TRUE(tensors.Holds(1, "residual:tied@s1.p1"));
  EXPECT_FALSE(tensors.Holds(0, "residual:tied@s1.p1"));
  EXPECT_FALSE(tensors.Holds(1, "residual:a@s1.p1")) << "a parameter of another stage";
}

TEST(StageTensorsTest, PlansOfOtherGraphsAreRefused) {
  opdag::GraphBuilder builder("g");
  builder.Placeholder("x", "images", "f32", {opdag::kBatch, 4});
  plan::Plan plan;
  plan.stages.resize(1);
  plan.stages[0].devices = {"a"};
  plan.stages[0].ops = {"y"};
  const opdag::Graph graph = *builder.Finish(opdag::kNone);
  EXPECT_THAT(std::string(StageTensors::Of(graph, wire::PrintPlan(plan)).status().message()), HasSubstr("unknown op 'y'"));
  EXPECT_FALSE(StageTensors::Of(graph, wire::PrintPlan(plan::PlanError{.reason = "No"})).ok());
  EXPECT_FALSE(StageTensors::Of(graph, "{}").ok());
}

}  // namespace
}  // namespace fusionllm::services
