#include "lib/estimator/graph_cost.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/opdag/models/gpt2.h"
#include "lib/opdag/models/mlp.h"

namespace fusionllm::estimator {
namespace {

using autodiff::TrainingGraph;
using ::testing::HasSubstr;

TrainingGraph Train(absl::StatusOr<opdag::Graph> graph, int64_t batch) {
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(opdag::InferTypes(*graph, batch).ok());
  auto training = autodiff::Differentiate(*graph);
  EXPECT_TRUE(training.ok()) << training.status();
  return *std::move(training);
}

TrainingGraph SmallGpt(bool tied) {
  return Train(opdag::BuildGpt2({.layers = 2, .heads = 2, .embd = 32, .vocab = 64, .positions = 16, .sequence = 16, .tied = tied}), 4);
}

TrainingGraph SmallMlp() { return Train(opdag::BuildMlp({.layers = {20, 30, 10}}), 8); }

DeviceProfile Uniform() {
  DeviceProfile device;
  for (OpRate& rate : device.rates) rate = {.overhead_s = 1e-6, .seconds_per_flop = 1e-10, .seconds_per_byte = 1e-9, .samples = 1};
  return device;
}

TEST(GraphCostTest, AnMlpCostsWhatArithmeticSays) {
  const TrainingGraph training = SmallMlp();
  const GraphCosts costs = CostsOf(training, 2);
  int64_t parameters = 0, gradients = 0, optimizer = 0;
  double forward = 0, backward = 0;
  for (const OpCosts& op : costs.ops) {
    parameters += op.parameter_bytes;
    gradients += op.gradient_bytes;
    optimizer += op.optimizer_bytes;
    if (training.graph.op(op.op).type == "linear") {
      forward += op.forward_flops;
      backward += op.backward_flops;
    }
  }
  const int64_t weights = 4 * (20 * 30 + 30 + 30 * 10 + 10);
  EXPECT_EQ(parameters, weights);
  EXPECT_EQ(gradients, weights);
  EXPECT_EQ(optimizer, 2 * weights);
  const double products = 2.0 * 8 * (20 * 30 + 30 * 10);
  EXPECT_NEAR(forward, products, 0.05 * products);
  // The first layer needs no gradient of its input.
  EXPECT_NEAR(backward, 2 * products - 2.0 * 8 * 20 * 30, 0.05 * products);
}

TEST(GraphCostTest, EveryBackwardOpHasOneHost) {
  const TrainingGraph training = SmallGpt(true);
  std::multiset<opdag::OpId> hosted;
  for (const OpCosts& op : CostsOf(training, 2).ops) hosted.insert(op.backward_ops.begin(), op.backward_ops.end());
  EXPECT_EQ(hosted.size(), training.graph.ops().size() - training.forward_ops);
  for (opdag::OpId id = training.forward_ops; id < static_cast<opdag::OpId>(training.graph.ops().size()); ++id)
    EXPECT_EQ(hosted.count(id), 1u) << id;
}

TEST(GraphCostTest, ActivationsAreDifferentiableAndIdsAreLossless) {
  const TrainingGraph training = SmallGpt(true);
  int differentiable = 0, lossless = 0;
  for (const ValueCosts& value : CostsOf(training, 2).values) {
    EXPECT_FALSE(value.differentiable && value.lossless_only);
    differentiable += value.differentiable;
    lossless += value.lossless_only;
    for (opdag::OpId consumer : value.consumers) EXPECT_GT(consumer, value.producer);
  }
  EXPECT_GT(differentiable, 10);
  EXPECT_EQ(lossless, 2) << "tokens and targets";
}

TEST(GraphCostTest, ATiedEmbeddingIsSharedByItsTwoOps) {
  const GraphCosts tied = CostsOf(SmallGpt(true), 2);
  ASSERT_EQ(tied.shared.size(), 1u);
  EXPECT_EQ(tied.shared[0].ops.size(), 2u);
  EXPECT_EQ(tied.shared[0].bytes, 4 * 64 * 32);
  EXPECT_EQ(tied.shared[0].optimizer_bytes, 2 * tied.shared[0].bytes);
  EXPECT_TRUE(CostsOf(SmallGpt(false), 2).shared.empty());
}

TEST(GraphCostTest, SgdWithoutMomentumKeepsNoOptimizerState) {
  for (const OpCosts& op : CostsOf(SmallMlp(), 0).ops) EXPECT_EQ(op.optimizer_bytes, 0);
}

TEST(GraphCostTest, EqualOpsOfEqualBlocksShareASignature) {
  const TrainingGraph training = SmallGpt(true);
  const std::vector<CalibrationTask> tasks = CalibrationTasks(training);
  std::set<std::string> signatures;
  int occurrences = 0;
  for (const CalibrationTask& task : tasks) {
    EXPECT_TRUE(signatures.insert(task.signature).second) << task.signature;
    EXPECT_EQ(task.signature, OpSignature(training.graph, training.graph.op(task.example)));
    occurrences += task.occurrences;
  }
  EXPECT_GT(occurrences, static_cast<int>(tasks.size()) * 3 / 2) << "two blocks, most ops twice";
  EXPECT_THAT(tasks[0].signature, HasSubstr("embedding{"));
  EXPECT_THAT(tasks[0].signature, HasSubstr("i32[4, 16]; f32[64, 32]"));
}

TEST(GraphCostTest, SecondsAddUpAndScaleWithTheDevice) {
  const TrainingGraph training = SmallGpt(true);
  const GraphCosts costs = CostsOf(training, 2);
  DeviceProfile device = Uniform();
  const std::vector<OpSeconds> full = SecondsByOp(costs, training, device);
  device.compute_scale = 0.25;
  const std::vector<OpSeconds> quarter = SecondsByOp(costs, training, device);
  double forward_s = 0, backward_s = 0, task_s = 0;
  for (size_t op = 0; op < full.size(); ++op) {
    forward_s += full[op].forward_s;
    backward_s += full[op].backward_s;
    EXPECT_DOUBLE_EQ(quarter[op].forward_s, 4 * full[op].forward_s);
    EXPECT_DOUBLE_EQ(quarter[op].backward_s, 4 * full[op].backward_s);
    EXPECT_DOUBLE_EQ(quarter[op].update_s, 4 * full[op].update_s);
  }
  device.compute_scale = 1;
  for (const CalibrationTask& task : CalibrationTasks(training)) {
    task_s += task.occurrences * SecondsOf(device, task.op_class, task.signature, task.flops, task.bytes);
  }
  EXPECT_NEAR(forward_s + backward_s, task_s, 1e-9 * task_s);
  EXPECT_GT(backward_s, 1.5 * forward_s);
}

TEST(GraphCostTest, AMeasuredSignatureReplacesTheFit) {
  const TrainingGraph training = SmallMlp();
  const GraphCosts costs = CostsOf(training, 2);
  DeviceProfile device = Uniform();
  const std::vector<OpSeconds> before = SecondsByOp(costs, training, device);
  const opdag::OpId fc = training.graph.FindOp("loss");
  device.exact[OpSignature(training.graph, training.graph.op(fc))] = 42;
  const std::vector<OpSeconds> after = SecondsByOp(costs, training, device);
  EXPECT_EQ(after[fc].forward_s, 42);
  EXPECT_EQ(after[fc].backward_s, before[fc].backward_s);
}

}  // namespace
}  // namespace fusionllm::estimator
