#include <algorithm>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/autodiff/gradient_rule.h"
#include "lib/autodiff/training_graph.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/mlp/graph.h"
#include "lib/opdag/graph_builder.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::autodiff {
namespace {

using opdag::Graph;
using opdag::GraphBuilder;
using opdag::kBatch;
using opdag::kNone;
using opdag::Op;
using opdag::ValueId;
using ::testing::HasSubstr;

Graph Typed(absl::StatusOr<Graph> graph, int64_t batch = 2) {
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(opdag::InferTypes(*graph, batch).ok());
  return *std::move(graph);
}

Graph TinyGpt2(int64_t layers, bool tied = true) {
  return Typed(models::BuildGpt2({.layers = layers, .heads = 2, .embd = 8, .vocab = 11, .positions = 6, .sequence = 4, .tied = tied}));
}

int CountOps(const Graph& graph, opdag::OpKind kind) {
  return static_cast<int>(std::count_if(graph.ops().begin(), graph.ops().end(), [kind](const Op& op) { return op.kind == kind; }));
}

TEST(DifferentiateTest, KeepsTheForwardOpsAndReachesEveryParameter) {
  for (const Graph& forward : {TinyGpt2(3), TinyGpt2(2, false), Typed(models::BuildMlp({}))}) {
    const auto training = Differentiate(forward);
    ASSERT_TRUE(training.ok()) << training.status();
    const Graph& graph = training->graph;
    EXPECT_TRUE(opdag::Verify(graph).ok()) << opdag::Verify(graph);
    ASSERT_EQ(training->forward_ops, static_cast<int>(forward.ops().size()));
    for (int i = 0; i < training->forward_ops; ++i) EXPECT_EQ(graph.op(i).name, forward.op(i).name);
    EXPECT_EQ(graph.op(training->forward_ops).attributes.Text("role"), "loss_gradient");
    for (size_t i = training->forward_ops; i < graph.ops().size(); ++i) EXPECT_NE(graph.op(i).forward_op, kNone);
    for (const ParameterUse& use : training->uses) {
      EXPECT_EQ(graph.value(use.gradient).type, graph.parameter(use.parameter).type);
      EXPECT_EQ(graph.op(use.op).parameters[use.slot], use.parameter);
      EXPECT_TRUE(graph.value(use.gradient).consumers.empty()) << "gradients of uses are never summed in the graph";
    }
    for (size_t value = 0; value < graph.values().size(); ++value) {
      const ValueId of = training->differentiates[value];
      if (of != kNone) {
        EXPECT_EQ(graph.value(value).type, graph.value(of).type);
      }
      const ValueId gradient = training->gradient_of[value];
      if (gradient != kNone) {
        EXPECT_EQ(training->differentiates[gradient], static_cast<ValueId>(value));
      }
    }
  }
}

TEST(DifferentiateTest, BackwardOpsVisitForwardOpsInReverse) {
  const TrainingGraph training = *Differentiate(TinyGpt2(2));
  opdag::OpId last = training.forward_ops;
  for (size_t i = training.forward_ops; i < training.graph.ops().size(); ++i) {
    EXPECT_LE(training.graph.op(i).forward_op, last);
    last = training.graph.op(i).forward_op;
  }
}

TEST(DifferentiateTest, ATiedParameterHasOneGradientForEachUse) {
  const TrainingGraph training = *Differentiate(TinyGpt2(1));
  const auto wte = training.graph.FindParameter("transformer.wte.weight");
  std::vector<std::string> users;
  for (const ParameterUse& use : training.uses) {
    if (use.parameter == wte) users.push_back(training.graph.op(use.op).name);
  }
  EXPECT_THAT(users, ::testing::ElementsAre("embed", "lm_head"));
  for (size_t i = 1; i < training.uses.size(); ++i) {
    EXPECT_LE(training.graph.parameter(training.uses[i - 1].parameter).name, training.graph.parameter(training.uses[i].parameter).name);
  }
}

TEST(DifferentiateTest, ComputesNoGradientForDataAndLabels) {
  const TrainingGraph training = *Differentiate(Typed(models::BuildMlp({.layers = {4, 3, 2}})));
  EXPECT_EQ(CountOps(training.graph, opdag::OpKind::kLinearGradInput), 1) << "the first layer reads images";
  EXPECT_EQ(CountOps(training.graph, opdag::OpKind::kLinearGradWeight), 2);
  EXPECT_EQ(training.gradient_of[training.graph.op(training.graph.FindOp("images")).outputs[0]], kNone);
}

TEST(DifferentiateTest, FanOutFoldsInDescendingOrderOfConsumers) {
  GraphBuilder builder("g");
  const ValueId x = builder.Placeholder("x", "images", "f32", {kBatch, 3});
  const ValueId h = builder.Add("h", "linear", {x}, {{"out", int64_t{3}}});
  const ValueId a = builder.Add("a", "relu", {h});
  const ValueId b = builder.Add("b", "tanh", {h});
  const ValueId c = builder.Add("c", "mul", {a, b});
  const ValueId d = builder.Add("d", "mul", {c, h});
  const TrainingGraph training = *Differentiate(Typed(builder.Finish(builder.Add("loss", "mse", {d, x}))));
  const Graph& graph = training.graph;
  const Op& outer = graph.op(graph.value(training.gradient_of[h]).producer);
  ASSERT_EQ(outer.kind, opdag::OpKind::kAdd);
  const Op& inner = graph.op(graph.value(outer.inputs[0]).producer);
  ASSERT_EQ(inner.kind, opdag::OpKind::kAdd);
  const auto consumer = [&](ValueId term) { return graph.op(graph.op(graph.value(term).producer).forward_op).name; };
  EXPECT_EQ(consumer(inner.inputs[0]), "d");
  EXPECT_EQ(consumer(inner.inputs[1]), "b");
  EXPECT_EQ(consumer(outer.inputs[1]), "a");
}

TEST(DifferentiateTest, RefusesWhatItCannotTrain) {
  GraphBuilder no_loss("g");
  no_loss.Placeholder("x", "images", "f32", {kBatch, 3});
  EXPECT_THAT(std::string(Differentiate(Typed(no_loss.Finish(kNone))).status().message()), HasSubstr("no loss"));

  GraphBuilder unused("g");
  const ValueId x = unused.Placeholder("x", "images", "f32", {kBatch, 3});
  unused.Add("side", "linear", {x}, {{"out", int64_t{3}}});
  const ValueId y = unused.Add("main", "linear", {x}, {{"out", int64_t{3}}});
  const auto refused = Differentiate(Typed(unused.Finish(unused.Add("loss", "mse", {y, x}))));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("parameter 'side.weight' is trainable"));

  GraphBuilder statistics("g");
  const ValueId z = statistics.Placeholder("x", "images", "f32", {kBatch, 3});
  const ValueId norm = statistics.Add("norm", "layer_norm", {statistics.Add("fc", "linear", {z}, {{"out", int64_t{3}}})});
  const ValueId mean = statistics.Output(norm, 1);
  const auto no_rule = Differentiate(Typed(statistics.Finish(statistics.Add("loss", "mse", {mean, mean}))));
  EXPECT_THAT(std::string(no_rule.status().message()), HasSubstr("output 'norm:mean', which has no gradient rule"));

  EXPECT_FALSE(Differentiate(*models::BuildMlp({})).ok()) << "untyped";
}

TEST(DifferentiateTest, AFrozenParameterGetsNoGradient) {
  GraphBuilder builder("g");
  const ValueId x = builder.Placeholder("x", "images", "f32", {kBatch, 3});
  const ValueId h = builder.Add("frozen", "linear", {x}, {{"out", int64_t{3}}}, {{"w", {}, false}, {"b", {}, false}});
  const ValueId y = builder.Add("free", "linear", {h}, {{"out", int64_t{3}}});
  const TrainingGraph training = *Differentiate(Typed(builder.Finish(builder.Add("loss", "mse", {y, x}))));
  EXPECT_EQ(training.uses.size(), 2u);
  EXPECT_EQ(CountOps(training.graph, opdag::OpKind::kLinearGradWeight), 1);
  EXPECT_EQ(CountOps(training.graph, opdag::OpKind::kLinearGradInput), 0) << "nothing below the free layer learns";
}

TEST(PlaceTest, BackwardRunsWhereForwardRunsAndEachCutSendsOneGradientBack) {
  const Graph forward = TinyGpt2(4);
  const TrainingGraph training = *Differentiate(forward);
  const Graph& graph = training.graph;
  for (int cut_seed = 1; cut_seed < 12; ++cut_seed) {
    std::vector<int> forward_stage;
    for (size_t i = 0; i < forward.ops().size(); ++i) forward_stage.push_back(static_cast<int>(i) / (3 * cut_seed));
    forward_stage[1] = forward_stage.back();  // targets live with the loss
    const std::vector<int> stage = AssignStages(training, forward_stage);
    ASSERT_EQ(stage.size(), graph.ops().size());
    for (ValueId value = 0; value < static_cast<ValueId>(graph.values().size()); ++value) {
      const ValueId of = training.differentiates[value];
      if (of == kNone || of == value) continue;
      const int produced = stage[graph.value(value).producer];
      for (const opdag::OpId consumer : graph.value(value).consumers) {
        if (stage[consumer] == produced) continue;
        EXPECT_EQ(stage[consumer], stage[graph.value(of).producer]) << "a gradient crosses only towards its value's producer";
      }
    }
    // A stage sends at most one gradient of a value.
    std::map<std::pair<ValueId, int>, int> sent;
    for (ValueId value = 0; value < static_cast<ValueId>(graph.values().size()); ++value) {
      const ValueId of = training.differentiates[value];
      if (of == kNone) continue;
      const int produced = stage[graph.value(value).producer];
      bool crosses = false;
      for (const opdag::OpId consumer : graph.value(value).consumers) crosses = crosses || stage[consumer] != produced;
      if (crosses) {
        EXPECT_EQ(++sent[std::make_pair(of, produced)], 1) << graph.value(of).name;
      }
    }
  }
}

TEST(RuleTest, EveryForwardOpHasARuleOrIsASource) {
  for (const opdag::OpSchema* schema : opdag::AllSchemas()) {
    const bool source = schema->kind == opdag::OpKind::kPlaceholder || schema->kind == opdag::OpKind::kConstant;
    EXPECT_EQ(FindRule(schema->kind) != nullptr, !schema->backward_only && !source) << schema->name();
  }
}

}  // namespace
}  // namespace fusionllm::autodiff
