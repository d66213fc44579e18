#include "lib/estimator/graph_cost.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/autodiff/lower_precision.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/mlp/graph.h"
#include "lib/opdag/graph_builder.h"

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
  return Train(models::BuildGpt2({.layers = 2, .heads = 2, .embd = 32, .vocab = 64, .positions = 16, .sequence = 16, .tied = tied}), 4);
}

TrainingGraph SmallMlp() { return Train(models::BuildMlp({.layers = {20, 30, 10}}), 8); }

CostModel Uniform() {
  CostModel model{.update_seconds_per_element = 1e-9, .data_seconds_per_byte = 1e-8};
  for (OpRate& rate : model.rates) {
    rate = {.overhead_s = 1e-6, .seconds_per_flop = 1e-10, .seconds_per_byte = 1e-9, .relative_error = 0.1, .samples = 7};
  }
  return model;
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
    if (training.graph.op(op.op).kind == opdag::OpKind::kLinear) {
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

TEST(GraphCostTest, AnOpInBf16HasAnotherSignatureAndHalfTheBytes) {
  const TrainingGraph in_fp32 = SmallGpt(true);
  TrainingGraph in_bf16 = in_fp32;
  ASSERT_TRUE(autodiff::LowerPrecision(in_bf16).ok());
  int lowered = 0;
  for (opdag::OpId id = 0; id < static_cast<opdag::OpId>(in_fp32.graph.ops().size()); ++id) {
    const opdag::Op& op = in_bf16.graph.op(id);
    bool any = false;
    for (const auto* values : {&op.inputs, &op.outputs}) {
      for (const opdag::ValueId v : *values) any = any || in_bf16.graph.value(v).type.dtype == tensor::DType::kBF16;
    }
    EXPECT_EQ(OpSignature(in_bf16.graph, op) != OpSignature(in_fp32.graph, in_fp32.graph.op(id)), any) << op.name;
    lowered += any;
  }
  EXPECT_GT(lowered, 10);
  EXPECT_THAT(OpSignature(in_bf16.graph, in_bf16.graph.op(in_bf16.graph.FindOp("embed"))), HasSubstr("f32[64, 32], f32[16, 32]) -> bf16"));
  const GraphCosts wide = CostsOf(in_fp32, 2), narrow = CostsOf(in_bf16, 2);
  ASSERT_EQ(wide.values.size(), narrow.values.size());
  for (size_t v = 0; v < wide.values.size(); ++v) {
    const bool halved = narrow.values[v].dtype == tensor::DType::kBF16;
    EXPECT_EQ(narrow.values[v].bytes, wide.values[v].bytes / (halved ? 2 : 1));
    EXPECT_EQ(halved, narrow.values[v].differentiable);
  }
  for (size_t op = 0; op < wide.ops.size(); ++op) {
    EXPECT_EQ(narrow.ops[op].parameter_bytes, wide.ops[op].parameter_bytes);
    EXPECT_EQ(narrow.ops[op].gradient_bytes, wide.ops[op].gradient_bytes);
  }
}

TEST(GraphCostTest, EqualOpsOfEqualBlocksShareASignature) {
  const TrainingGraph training = SmallGpt(true);
  std::map<std::string, int> times;
  for (const opdag::Op& op : training.graph.ops()) ++times[OpSignature(training.graph, op)];
  const auto signature = [&](const std::string& name) {
    return OpSignature(training.graph, training.graph.op(training.graph.FindOp(name)));
  };
  EXPECT_EQ(signature("block.0.attn"), signature("block.1.attn"));
  EXPECT_EQ(times.at(signature("block.0.attn")), 2);
  EXPECT_THAT(signature("embed"), HasSubstr("embedding{"));
  EXPECT_THAT(signature("embed"), HasSubstr("i32[4, 16]; f32[64, 32]"));
}

TEST(GraphCostTest, GradientsOfWeightsAreAPartOfTheBackward) {
  const TrainingGraph training = SmallMlp();
  const GraphCosts costs = CostsOf(training, 2);
  const std::vector<OpSeconds> seconds = SecondsByOp(costs, training, Uniform());
  int with_weights = 0;
  for (const OpCosts& op : costs.ops) {
    EXPECT_LE(seconds[op.op].weights_s, seconds[op.op].backward_s * (1 + 1e-12));
    EXPECT_EQ(seconds[op.op].weights_s > 0, op.trainable_bytes > 0) << training.graph.op(op.op).name;
    with_weights += op.trainable_bytes > 0;
  }
  EXPECT_GT(with_weights, 1);
  // The first layer's backward is nothing else: no gradient of the images is wanted.
  const auto first = std::find_if(costs.ops.begin(), costs.ops.end(), [](const OpCosts& op) { return op.trainable_bytes > 0; });
  EXPECT_DOUBLE_EQ(seconds[first->op].weights_s, seconds[first->op].backward_s);
}

TEST(GraphCostTest, SecondsOfAllOpsAddUp) {
  const TrainingGraph training = SmallGpt(true);
  const GraphCosts costs = CostsOf(training, 2);
  const CostModel model = Uniform();
  double forward_s = 0, backward_s = 0, update_s = 0, expected_s = 0, expected_data_s = 0;
  for (const OpSeconds& op : SecondsByOp(costs, training, model)) {
    forward_s += op.forward_s;
    backward_s += op.backward_s;
    update_s += op.update_s;
  }
  const std::vector<bool> views = autodiff::ViewsOf(training);
  EXPECT_EQ(std::count(views.begin(), views.end(), true), 8) << "two sums in each of two blocks pass on what came to them";
  for (size_t id = 0; id < views.size(); ++id) {
    const opdag::Op& op = training.graph.ops()[id];
    const opdag::OpClass op_class = opdag::FindSchema(op.kind)->op_class;
    if (op_class == opdag::OpClass::kFree || views[id]) continue;
    const opdag::OpCost cost = opdag::CostOf(training.graph, op);
    expected_s += 1e-6 + cost.flops * 1e-10 + static_cast<double>(cost.bytes_read + cost.bytes_written) * 1e-9;
  }
  for (const char* data : {"tokens", "targets"}) {
    expected_data_s +=
        1e-8 * static_cast<double>(training.graph.value(training.graph.op(training.graph.FindOp(data)).outputs[0]).type.bytes());
  }
  EXPECT_NEAR(forward_s + backward_s, expected_s + expected_data_s, 1e-9 * expected_s);
  EXPECT_GT(backward_s, 1.5 * forward_s);
  int64_t elements = 0;
  for (const opdag::Parameter& parameter : training.graph.parameters()) elements += parameter.type.elements();
  EXPECT_NEAR(update_s, 1e-9 * static_cast<double>(elements), 1e-15) << "a tied parameter once";
}

// Sums pass on what comes to them under another name for each addend; a profile may be of a time when that was a copy.
TEST(GraphCostTest, ViewsTakeNeitherTimeNorMemory) {
  opdag::GraphBuilder builder("sums", 2);
  const opdag::ValueId images = builder.Placeholder("images", "images", "f32", {opdag::kBatch, 16});
  const opdag::ValueId x =
      builder.Add("linear", "linear", {images}, {{"out", int64_t{16}}, {"layout", std::string("io")}, {"bias", false}});
  opdag::ValueId sum = builder.Add("tanh", "tanh", {x});
  for (const char* name : {"a", "b", "c", "d"}) {
    sum = builder.Add(absl::StrCat("sum_", name), "add", {sum, builder.Add(name, "neg", {x})});
  }
  const opdag::ValueId target = builder.Placeholder("target", "images", "f32", {opdag::kBatch, 16});
  const TrainingGraph training = Train(builder.Finish(builder.Add("loss", "mse", {sum, target})), 2);
  const GraphCosts costs = CostsOf(training, 2);
  constexpr int64_t kTensor = sizeof(float) * 2 * 16;
  const opdag::OpId first = training.graph.FindOp("sum_a");
  EXPECT_EQ(costs.ops[first].workspace_bytes, 4 * kTensor) << "x, both addends and the sum; backwards six copies, or none";
  EXPECT_EQ(costs.ops[training.graph.FindOp("b")].workspace_bytes, 4 * kTensor)
      << "two gradients of x, their sum, and what came to the sums, which tanh reads by the last of its names";

  CostModel model = Uniform();
  const OpSeconds before = SecondsByOp(costs, training, model)[first];
  EXPECT_GT(before.forward_s, 0);
  EXPECT_EQ(before.backward_s, 0) << "its backward is two views";
  model.measured[OpSignature(training.graph, training.graph.op(training.graph.FindOp("sum_a.grad.pass_0")))] = 42;
  EXPECT_EQ(SecondsByOp(costs, training, model)[first].backward_s, 0);
}

TEST(GraphCostTest, AMeasuredSignatureReplacesTheFit) {
  const TrainingGraph training = SmallMlp();
  const GraphCosts costs = CostsOf(training, 2);
  CostModel model = Uniform();
  const opdag::OpId loss = training.graph.FindOp("loss");
  const OpSeconds before = SecondsByOp(costs, training, model)[loss];
  EXPECT_DOUBLE_EQ(before.fitted_s, before.forward_s + before.backward_s);
  EXPECT_DOUBLE_EQ(before.uncertain_s, 0.1 * before.fitted_s);
  EXPECT_TRUE(before.fitted_classes.test(static_cast<size_t>(opdag::OpClass::kReduction)));
  model.measured[OpSignature(training.graph, training.graph.op(loss))] = 42;
  const OpSeconds after = SecondsByOp(costs, training, model)[loss];
  EXPECT_EQ(after.forward_s, 42);
  EXPECT_EQ(after.backward_s, before.backward_s);
  EXPECT_DOUBLE_EQ(after.fitted_s, after.backward_s);
}

}  // namespace
}  // namespace fusionllm::estimator
