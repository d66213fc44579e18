#include "lib/scheduler/graph_request.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/models/gpt2/graph.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

// A small GPT-2 on two sites of two devices, one of them slow.
PlanRequest SmallGpt() {
  auto graph = models::BuildGpt2({.layers = 4, .heads = 2, .embd = 64, .vocab = 256, .positions = 32, .sequence = 32});
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(opdag::InferTypes(*graph, 4).ok());
  const auto training = autodiff::Differentiate(*graph);
  EXPECT_TRUE(training.ok()) << training.status();
  const estimator::GraphCosts costs = estimator::CostsOf(*training, 2);
  estimator::CostModel machine;
  for (estimator::OpRate& rate : machine.rates)
    rate = {.overhead_s = 2e-6, .seconds_per_flop = 2e-11, .seconds_per_byte = 2e-10, .samples = 1};
  PlanRequest request;
  request.micro_batches = 8;
  EXPECT_TRUE(AddGraph(*training, costs, {estimator::SecondsByOp(costs, *training, machine)}, request).ok());
  for (double scale : {3.0, 3.0}) testing::AddDevice(request, "paris", scale);
  for (double scale : {3.0, 30.0}) testing::AddDevice(request, "tokyo", scale);
  testing::LinkSites(request, 125e6, 1e-4, 12.5e6, 0.002);
  return request;
}

TEST(GraphRequestTest, EveryPlannerPlansARealModel) {
  const PlanRequest request = SmallGpt();
  ASSERT_TRUE(Validate(request).ok()) << Validate(request);
  for (absl::string_view planner : {"op-fence", "equal-ops", "equal-compute"}) {
    const auto outcome = MakePlan(planner, request);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_TRUE(std::holds_alternative<PlannedPipeline>(*outcome)) << std::get<PlanError>(*outcome).message;
    const PlannedPipeline& plan = std::get<PlannedPipeline>(*outcome);
    EXPECT_GE(plan.gap, 0);
    EXPECT_THAT(plan.stages[0].op_names, ::testing::IsSupersetOf({"tokens", "targets"}));
    size_t ops = 0;
    for (const PlannedStage& stage : plan.stages) ops += stage.ops.size();
    EXPECT_EQ(ops, request.ops.size());
  }
}

TEST(GraphRequestTest, OnlyTheResidualStreamAndTargetsCrossBetweenBlocks) {
  const PlanRequest request = SmallGpt();
  const auto outcome = MakePlan("op-fence", request);
  ASSERT_TRUE(outcome.ok());
  const PlannedPipeline& plan = std::get<PlannedPipeline>(*outcome);
  ASSERT_GT(plan.stages.size(), 1u);
  const int64_t residual = 4 * 32 * 64 * 4;
  for (const PlannedLink& link : plan.links) {
    EXPECT_LE(link.backward_bytes, residual) << "link " << link.src_stage << " -> " << link.dst_stage;
  }
}

TEST(GraphRequestTest, ATiedHeadInAnotherStageIsExchanged) {
  PlanRequest request = SmallGpt();
  request.stages = 2;
  const auto outcome = MakePlan("equal-ops", request);
  ASSERT_TRUE(outcome.ok());
  const PlannedPipeline& plan = std::get<PlannedPipeline>(*outcome);
  ASSERT_EQ(plan.tied.size(), 1u);
  EXPECT_EQ(plan.tied[0].parameter, "transformer.wte.weight");
  EXPECT_EQ(plan.tied[0].bytes, 256 * 64 * 4);
}

TEST(GraphRequestTest, AClassMustPriceEveryOp) {
  PlanRequest request;
  estimator::GraphCosts costs;
  costs.ops.resize(3);
  EXPECT_EQ(AddGraph(autodiff::TrainingGraph(), costs, {std::vector<estimator::OpSeconds>(2)}, request).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fusionllm::scheduler
