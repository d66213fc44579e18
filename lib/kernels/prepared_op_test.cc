#include "lib/kernels/prepared_op.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/opdag/graph_builder.h"

namespace fusionllm::kernels {
namespace {

using ::testing::HasSubstr;

class PreparedRowTest : public ::testing::Test {
 protected:
  void SetUp() override {
    opdag::GraphBuilder builder("test");
    builder.Placeholder("images", "images", "f32", {4, 4});
    builder.Add("tanh", "tanh", {0});
    builder.Add("add", "add", {0, 1});
    builder.Add("exp", "exp", {2});
    ASSERT_TRUE(builder.status().ok()) << builder.status();
    graph_ = builder.graph();
  }
  FusedOp Link(opdag::OpId op, bool wanted) const { return {.op = graph_.op(op), .keeps_output = wanted}; }

  opdag::Graph graph_;
};

TEST_F(PreparedRowTest, EachOpKnowsWhereItReadsTheOneBefore) {
  const auto row = PrepareFusedOps(graph_, std::vector<FusedOp>{Link(1, false), Link(2, true), Link(3, true)});
  ASSERT_TRUE(row.ok()) << row.status();
  ASSERT_EQ(row->size(), 3);
  const std::vector<PreparedFusedOp>& ops = *row;
  EXPECT_EQ(ops[0].op.kind, OpKind::kTanh);
  EXPECT_EQ(ops[1].through, 1) << "the second addend";
  EXPECT_EQ(ops[2].through, 0);
  EXPECT_FALSE(ops[0].keeps_output);
  EXPECT_TRUE(ops[1].keeps_output);
  EXPECT_EQ(ops[1].op.inputs.size(), 2);
}

TEST_F(PreparedRowTest, OpsThatReadSomethingElseAreRefused) {
  const auto row = PrepareFusedOps(graph_, std::vector<FusedOp>{Link(1, true), Link(3, true)});
  EXPECT_EQ(row.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(row.status().message(), HasSubstr("op 'exp' (exp): does not read output 0 of 'tanh'"));
}

TEST_F(PreparedRowTest, ValuesThatTheGraphDoesNotHaveAreRefused) {
  FusedOp strange = Link(2, true);
  strange.op.inputs[0] = 1000;
  EXPECT_EQ(PrepareFusedOps(graph_, std::vector<FusedOp>{Link(1, true), strange}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fusionllm::kernels
