#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lib/autodiff/gradient_rule.h"
#include "lib/autodiff/lower_precision.h"
#include "lib/autodiff/training_graph.h"
#include "lib/opdag/graph_builder.h"

namespace fusionllm::autodiff {
namespace {

using opdag::kBatch;
using opdag::ValueId;
using Ints = std::vector<int64_t>;

// Images in rows -> linear -> moved about in each way there is -> its sum with itself -> mean squares.
TrainingGraph Moved() {
  opdag::GraphBuilder builder("moved", 2);
  const ValueId images = builder.Placeholder("images", "images", "f32", {kBatch, 3, 4});
  const ValueId target = builder.Placeholder("target", "images", "f32", {kBatch, 12});
  ValueId x = builder.Add("rows", "reshape", {images}, {{"shape", Ints{kBatch, 3, 4}}});
  x = builder.Add("linear", "linear", {x}, {{"out", int64_t{4}}, {"layout", std::string("io")}, {"bias", true}});
  x = builder.Add("shaped", "reshape", {x}, {{"shape", Ints{kBatch, 4, 3}}});
  x = builder.Add("turned", "transpose", {x}, {{"permutation", Ints{0, 2, 1}}});
  x = builder.Add("flat", "flatten", {x});
  x = builder.Add("sum", "add", {x, builder.Add("negative", "neg", {x})});
  auto graph = builder.Finish(builder.Add("loss", "mse", {x, target}));
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(opdag::InferTypes(*graph, 2).ok());
  return *Differentiate(*graph);
}

std::vector<std::string> NamesOfViews(const TrainingGraph& training) {
  const std::vector<bool> views = ViewsOf(training);
  EXPECT_EQ(views.size(), training.graph.ops().size());
  std::vector<std::string> names;
  for (size_t id = 0; id < views.size(); ++id) {
    if (views[id]) names.push_back(training.graph.ops()[id].name);
  }
  return names;
}

TEST(ViewsTest, AreOpsThatOnlyGiveAnotherShapeOrName) {
  EXPECT_EQ(NamesOfViews(Moved()),
            (std::vector<std::string>{"rows", "shaped", "flat", "sum.grad.pass_1", "sum.grad.pass_0", "flat.grad", "shaped.grad"}));
}

// Images stay as they are given; what is made of them is rounded.
TEST(ViewsTest, WhatRoundsIsNone) {
  TrainingGraph training = Moved();
  ASSERT_TRUE(LowerPrecision(training).ok());
  EXPECT_EQ(NamesOfViews(training),
            (std::vector<std::string>{"shaped", "flat", "sum.grad.pass_1", "sum.grad.pass_0", "flat.grad", "shaped.grad"}));
}

TEST(ViewsTest, GradientsOfParametersAreNeitherShownNorViews) {
  TrainingGraph training = Moved();
  const size_t views = NamesOfViews(training).size();
  ParameterUse& use = training.uses[0];
  const auto reshape = [&](const char* name, ValueId of) {
    opdag::Op op;
    op.name = name;
    op.kind = opdag::OpKind::kReshape;
    op.inputs = {of};
    op.attributes = {{"shape", training.graph.value(of).type.shape.dims()}};
    op.forward_op = use.op;
    return training.graph.op(*AppendTyped(training.graph, op)).outputs[0];
  };
  const ValueId made = use.gradient;
  use.gradient = reshape("is_one", made);
  EXPECT_EQ(NamesOfViews(training).size(), views);
  reshape("reads_one", use.gradient);
  EXPECT_EQ(NamesOfViews(training).size(), views);
  reshape("reads_none", made);
  EXPECT_EQ(NamesOfViews(training).back(), "reads_none");
}

}  // namespace
}  // namespace fusionllm::autodiff
