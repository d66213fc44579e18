#include "lib/autodiff/recompute_blocks.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/autodiff/testing/block_graphs.h"
#include "lib/opdag/testing/random_graph.h"

namespace fusionllm::autodiff {
namespace {

using opdag::kNone;
using opdag::OpId;
using opdag::ValueId;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Names = std::vector<std::string>;

constexpr int64_t kMicroBatch = 2;
constexpr int64_t kBytes = kMicroBatch * testing::kBlockWidth * 4;  // of what goes from part to part

TrainingGraph Training(opdag::Graph graph) {
  EXPECT_TRUE(opdag::InferTypes(graph, kMicroBatch).ok());
  return *Differentiate(graph);
}

RecomputeBlocks BlocksOf(const TrainingGraph& training) { return RecomputeBlocksOf(training, ViewsOf(training)); }

// The first op of each block but the first.
Names Beginnings(const TrainingGraph& training, const RecomputeBlocks& blocks) {
  Names names;
  for (OpId op = 1; op < training.forward_ops; ++op) {
    if (blocks.of_op[op] != blocks.of_op[op - 1]) names.push_back(training.graph.op(op).name);
  }
  return names;
}

// Ops whose outputs cross; placeholders, which are kept anyway, aside.
Names Crossing(const TrainingGraph& training, const RecomputeBlocks& blocks) {
  Names names;
  for (OpId op = 0; op < training.forward_ops; ++op) {
    const opdag::Op& node = training.graph.op(op);
    if (node.kind != opdag::OpKind::kPlaceholder && blocks.crosses[node.outputs[0]]) names.push_back(node.name);
  }
  return names;
}

Names RunOnce(const TrainingGraph& training, const RecomputeBlocks& blocks) {
  Names names;
  for (OpId op = 0; op < training.forward_ops; ++op) {
    if (training.graph.op(op).kind != opdag::OpKind::kPlaceholder && !blocks.runs_again[op]) names.push_back(training.graph.op(op).name);
  }
  return names;
}

// Of each forward value, by the value that views of it show: who reads it last, as one of the ops that are divided, and whether it is for
// a gradient.
struct Reading {
  OpId producer = kNone, last = kNone;
  bool kept = false;
  int64_t bytes = 0;
};

std::vector<Reading> ReadingsOf(const TrainingGraph& training) {
  const std::vector<bool> views = ViewsOf(training);
  const opdag::Graph& graph = training.graph;
  std::vector<Reading> readings(graph.values().size());
  const auto shown = [&](ValueId value) {
    while (views[graph.value(value).producer]) value = graph.op(graph.value(value).producer).inputs[0];
    return value;
  };
  for (OpId id = 0; id < static_cast<OpId>(graph.ops().size()); ++id) {
    const bool forward = id < training.forward_ops;
    if (forward && views[id]) continue;
    for (const ValueId input : graph.op(id).inputs) {
      if (graph.value(input).producer >= training.forward_ops) continue;
      const ValueId value = shown(input);
      const OpId producer = graph.value(value).producer;
      if (graph.op(producer).kind == opdag::OpKind::kPlaceholder) continue;
      Reading& reading = readings[value];
      reading.producer = producer;
      reading.last = std::max(reading.last, forward ? id : graph.op(id).forward_op);
      reading.kept = reading.kept || !forward;
      reading.bytes = static_cast<int64_t>(graph.value(value).type.bytes());
    }
  }
  return readings;
}

// What recompute_blocks.h wants little of: what is alive at each beginning, and the most that a block keeps.
int64_t BytesOfDivision(const std::vector<Reading>& readings, const std::vector<int>& block_of_op) {
  std::vector<int64_t> inside(block_of_op.size());
  int64_t crossing = 0;
  for (const Reading& reading : readings) {
    if (reading.producer == kNone) continue;
    crossing += reading.bytes * (block_of_op[reading.last] - block_of_op[reading.producer]);
    if (reading.kept) inside[block_of_op[reading.producer]] += reading.bytes;
  }
  return crossing + *std::max_element(inside.begin(), inside.end());
}

int64_t BytesOf(const TrainingGraph& training) { return BytesOfDivision(ReadingsOf(training), BlocksOf(training).of_op); }

TEST(RecomputeBlocksTest, AChainIsCutIntoAsManyBlocksAsEachHasOps) {
  const TrainingGraph training = Training(testing::Chain(16));
  const RecomputeBlocks blocks = BlocksOf(training);
  EXPECT_THAT(Beginnings(training, blocks), ElementsAre("linear.5", "linear.9", "linear.13"));
  EXPECT_THAT(Crossing(training, blocks), ElementsAre("linear.4", "linear.8", "linear.12"));
  EXPECT_THAT(RunOnce(training, blocks), ElementsAre("linear.4", "linear.8", "linear.12", "loss"));
  EXPECT_EQ(blocks.count(), 4);
}

// Chen et al., section 4.1: of n values 2 sqrt(n) are alive, one less here, as nothing crosses behind the last block.
TEST(RecomputeBlocksTest, AChainTakesAboutTwiceTheRootOfItsLength) {
  for (int root = 2; root <= 12; ++root) {
    const int64_t bytes = BytesOf(Training(testing::Chain(root * root)));
    EXPECT_GE(bytes, (2 * root - 1) * kBytes) << root;
    EXPECT_LE(bytes, (2 * root - 1) * kBytes * 11 / 10) << root;
  }
}

TEST(RecomputeBlocksTest, ResidualBlocksEndBehindTheirSums) {
  const TrainingGraph training = Training(testing::ResidualBlocks(6));
  const RecomputeBlocks blocks = BlocksOf(training);
  EXPECT_THAT(Beginnings(training, blocks), ElementsAre("up.2", "up.3", "up.4", "up.5", "up.6"));
  EXPECT_THAT(Crossing(training, blocks), ElementsAre("sum.1", "sum.2", "sum.3", "sum.4", "sum.5"));
  // The last projection before a sum that is kept is not read on the way back. The loss reads the last sum.
  EXPECT_THAT(RunOnce(training, blocks),
              ElementsAre("down.1", "sum.1", "down.2", "sum.2", "down.3", "sum.3", "down.4", "sum.4", "down.5", "sum.5", "loss"));
  EXPECT_EQ(BytesOf(training), (5 + 9) * kBytes);
}

TEST(RecomputeBlocksTest, BranchesAreCutWhereTheyMeet) {
  const TrainingGraph training = Training(testing::Diamonds(12));
  const RecomputeBlocks blocks = BlocksOf(training);
  EXPECT_THAT(Beginnings(training, blocks), ElementsAre("left.3", "left.5", "left.7", "left.9", "left.11"));
  EXPECT_THAT(Crossing(training, blocks), ElementsAre("product.2", "product.4", "product.6", "product.8", "product.10"));
  EXPECT_EQ(BytesOf(training), (5 + 6) * kBytes);
}

// No backward op reads it, and every op that adds it runs again.
TEST(RecomputeBlocksTest, ATensorThatEveryBlockReadsCrossesAndIsNotMadeAgain) {
  const TrainingGraph training = Training(testing::WithSharedTable(16));
  const RecomputeBlocks blocks = BlocksOf(training);
  ASSERT_GT(blocks.count(), 2);
  EXPECT_THAT(Crossing(training, blocks), Contains("table"));
  EXPECT_THAT(RunOnce(training, blocks), Contains("table"));
  EXPECT_EQ(Crossing(training, blocks).size(), static_cast<size_t>(blocks.count())) << "besides one for each block but the last";
}

TEST(RecomputeBlocksTest, AParameterThatIsUsedTwiceChangesNothing) {
  const TrainingGraph own = Training(testing::Chain(16)), shared = Training(testing::Chain(16, testing::Weights::kShared));
  ASSERT_EQ(shared.graph.parameters().size(), 1u);
  ASSERT_EQ(shared.uses.size(), own.uses.size());
  EXPECT_EQ(BlocksOf(shared).of_op, BlocksOf(own).of_op);
  EXPECT_EQ(BlocksOf(shared).runs_again, BlocksOf(own).runs_again);
}

TEST(RecomputeBlocksTest, WhereNothingIsSavedThereIsOneBlock) {
  const TrainingGraph training = Training(testing::Chain(2));
  const RecomputeBlocks blocks = BlocksOf(training);
  EXPECT_EQ(blocks.count(), 1);
  EXPECT_THAT(Crossing(training, blocks), IsEmpty());
}

// Caps on a block rise by a quarter, so that a division is no more than that above the best there is.
TEST(RecomputeBlocksTest, NoDivisionOfRandomGraphsTakesMuchLess) {
  int64_t tried = 0, divided = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const TrainingGraph training = Training(opdag::testing::RandomGraph({.seed = seed, .ops = 3, .layers = true}));
    if (training.forward_ops > 13) continue;  // 4,096 divisions
    const std::vector<Reading> readings = ReadingsOf(training);
    int64_t best = std::numeric_limits<int64_t>::max();
    for (uint32_t cuts = 0; cuts < 1u << (training.forward_ops - 1); ++cuts) {
      std::vector<int> block_of_op(training.forward_ops);
      for (OpId op = 1; op < training.forward_ops; ++op) block_of_op[op] = block_of_op[op - 1] + static_cast<int>(cuts >> (op - 1) & 1);
      best = std::min(best, BytesOfDivision(readings, block_of_op));
    }
    const RecomputeBlocks blocks = BlocksOf(training);
    const int64_t taken = BytesOfDivision(readings, blocks.of_op);
    EXPECT_GE(taken, best);
    EXPECT_LE(static_cast<double>(taken), 1.25 * static_cast<double>(best));
    for (size_t value = 0; value < readings.size(); ++value) {
      if (readings[value].producer == kNone) continue;
      EXPECT_EQ(blocks.crosses[value], blocks.of_op[readings[value].last] > blocks.of_op[readings[value].producer]);
    }
    ++tried;
    divided += blocks.count() > 1;
  }
  EXPECT_GT(tried, 100);
  EXPECT_GT(divided, 25);
}

}  // namespace
}  // namespace fusionllm::autodiff
