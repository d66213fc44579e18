// Activation checkpointing by blocks: what a stage keeps, what it runs again and when, and that it does not change a bit.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/autodiff/recompute_blocks.h"
#include "lib/autodiff/testing/block_graphs.h"
#include "lib/models/gpt2/graph.h"
#include "lib/opdag/testing/random_graph.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

using opdag::OpId;
using opdag::ValueId;
using testing::Differentiated;
using testing::PipelineOptions;

constexpr int64_t kSequence = 64, kWidth = 64, kMicroBatch = 2;
constexpr size_t kResidualBytes = kMicroBatch * kSequence * kWidth * sizeof(float);

autodiff::TrainingGraph Gpt2(int64_t layers, int64_t vocab = 64) {
  return Differentiated(
      models::BuildGpt2(
          {.layers = layers, .heads = 4, .embd = kWidth, .vocab = vocab, .positions = kSequence, .sequence = kSequence, .tied = false}),
      kMicroBatch);
}

StageProgram ProgramOf(const autodiff::TrainingGraph& training, const std::vector<int>& forward_stage, int stage, int stages,
                       Recompute recompute) {
  auto program = BuildStageProgram(training, autodiff::AssignStages(training, forward_stage), stage, stages, recompute);
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

StageProgram WholeProgram(const autodiff::TrainingGraph& training, Recompute recompute) {
  return ProgramOf(training, std::vector<int>(training.forward_ops, 0), 0, 1, recompute);
}

std::vector<OpId> OpsAgain(const StageProgram& program) {
  std::vector<OpId> ops;
  for (const ProgramOp& op : program.backward.ops) {
    if (op.recompute && !op.view) ops.push_back(op.op);
  }
  return ops;
}

size_t ActivationBytes(const StageProgram& program, size_t slots) { return slots * program.stash_bytes_per_slot + program.scratch_bytes; }

TEST(RecomputeTest, AGptGrowsByBoundariesOfBlocksAlone) {
  std::vector<size_t> none, full;
  for (const int64_t layers : {6, 12, 24}) {
    const autodiff::TrainingGraph training = Gpt2(layers);
    const StageProgram made_again = WholeProgram(training, Recompute::kFull);
    none.push_back(ActivationBytes(WholeProgram(training, Recompute::kNone), 1));
    full.push_back(ActivationBytes(made_again, 1));
    EXPECT_LE(made_again.stash_bytes_per_slot, (2 * layers + 1) * kResidualBytes) << "the stream before or after a sum";
  }
  EXPECT_GT(none[2] - none[1], 12 * 10 * kResidualBytes) << "all that a layer keeps";
  EXPECT_LT(full[1] - full[0], 6 * 2 * kResidualBytes);
  EXPECT_LT(full[2] - full[1], 12 * 2 * kResidualBytes);
  EXPECT_LT(full[2], none[2] / 4);
}

namespace graphs = autodiff::testing;
constexpr size_t kPart = kMicroBatch * graphs::kBlockWidth * sizeof(float);  // what goes from part to part of those

// What is kept of n parts is what crosses, and what is made again is a block of them: as recompute_blocks_test tells by hand.
TEST(RecomputeTest, PeaksOfEqualPartsFallAsTheirBlocksSay) {
  struct Case {
    const char* name;
    opdag::Graph graph;
    size_t kept, crossing, largest;  // in parts: without recomputation, across blocks, in one block
  };
  const Case cases[] = {{"chain", graphs::Chain(16), 16, 3, 4},
                        {"long chain", graphs::Chain(49), 49, 6, 7},
                        {"one weight", graphs::Chain(16, graphs::Weights::kShared), 16, 3, 4},
                        {"residual blocks", graphs::ResidualBlocks(12), 12 * 9, 11, 9},
                        {"diamonds", graphs::Diamonds(12), 12 * 3, 5, 6}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const autodiff::TrainingGraph training = Differentiated(c.graph, kMicroBatch);
    const StageProgram none = WholeProgram(training, Recompute::kNone), full = WholeProgram(training, Recompute::kFull);
    constexpr size_t kGiven = 2;  // images and target
    EXPECT_EQ(none.stash_bytes_per_slot, (kGiven + c.kept) * kPart);
    EXPECT_EQ(full.stash_bytes_per_slot, (kGiven + c.crossing) * kPart);
    // The block that is made again lies beside the gradients under way, which either program has; what it reads of them may not be needed
    // any more when the last of the block is there, and a residual block makes what only its sum reads.
    EXPECT_LE(full.scratch_bytes, none.scratch_bytes + c.largest * kPart);
    EXPECT_GE(full.scratch_bytes, (c.largest - 1) * kPart) << "of the others what crosses out of the block is kept";
    for (const size_t in_flight : {1, 4}) {
      EXPECT_LT(ActivationBytes(full, in_flight), ActivationBytes(none, in_flight));
    }
  }
}

TEST(RecomputeTest, ForwardOpsThatNoBackwardOpReadsAreNotRecomputed) {
  for (const autodiff::TrainingGraph& training : {Gpt2(4), testing::SmallResidualNetwork()}) {
    const StageProgram program = WholeProgram(training, Recompute::kFull);
    const std::vector<OpId> again = OpsAgain(program);
    EXPECT_LE(again.size(), program.forward.ops.size() * 7 / 8);
    std::set<ValueId> read;
    for (auto op = program.backward.ops.rbegin(); op != program.backward.ops.rend(); ++op) {
      const opdag::Op& node = training.graph.op(op->op);
      if (op->recompute) {
        EXPECT_TRUE(std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) { return read.contains(output); }))
            << node.name;
      }
      read.insert(node.inputs.begin(), node.inputs.end());
    }
  }
}

// What a block makes again is there just before its first reader, and the blocks come from the last to the first.
TEST(RecomputeTest, BlocksAreMadeAgainFromTheLastToTheFirst) {
  for (const autodiff::TrainingGraph& training : {Gpt2(6), testing::SmallResidualNetwork()}) {
    const auto blocks = autodiff::RecomputeBlocksOf(training, autodiff::ViewsOf(training));
    ASSERT_GT(blocks.count(), 1);
    const StageProgram program = WholeProgram(training, Recompute::kFull);
    int last = blocks.count(), changes = 0;
    for (const ProgramOp& op : program.backward.ops) {
      const int block = op.op < training.forward_ops ? blocks.of_op[op.op] : blocks.of_op[training.graph.op(op.op).forward_op];
      EXPECT_LE(block, last) << training.graph.op(op.op).name;
      changes += block != last;
      last = block;
    }
    EXPECT_GE(changes, blocks.count() - 1);
  }
}

// Each op in the stage of what it reads or one further on, at random.
std::vector<int> RandomStages(const autodiff::TrainingGraph& training, uint32_t seed, int* stages) {
  std::mt19937 draw(seed);
  std::vector<int> stage_of(training.forward_ops, 0);
  for (OpId op = 0; op < training.forward_ops; ++op) {
    if (training.graph.op(op).kind == opdag::OpKind::kPlaceholder) continue;
    for (const ValueId input : training.graph.op(op).inputs) {
      stage_of[op] = std::max(stage_of[op], stage_of[training.graph.value(input).producer]);
    }
    stage_of[op] += draw() % 6 == 0 ? 1 : 0;
  }
  std::vector<int> used = stage_of;
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (int& stage : stage_of) stage = static_cast<int>(std::lower_bound(used.begin(), used.end(), stage) - used.begin());
  *stages = static_cast<int>(used.size());
  return stage_of;
}

autodiff::TrainingGraph RandomLongTraining(uint64_t seed) {
  return Differentiated(opdag::testing::RandomGraph({.seed = seed, .ops = 30, .layers = true}), 2);
}

// The planner prices the ops that run again by the graph alone.
TEST(RecomputeTest, AStageRunsAgainWhatTheWholeGraphDoesAtMost) {
  int again_in_stages = 0, again_in_graphs = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const autodiff::TrainingGraph training = RandomLongTraining(seed);
    const std::vector<bool> views = autodiff::ViewsOf(training);
    const auto blocks = autodiff::RecomputeBlocksOf(training, views);
    std::vector<OpId> of_graph;
    for (OpId op = 0; op < training.forward_ops; ++op) {
      if (blocks.runs_again[op] && !views[op]) of_graph.push_back(op);
    }
    std::vector<OpId> whole = OpsAgain(WholeProgram(training, Recompute::kFull));
    std::sort(whole.begin(), whole.end());
    EXPECT_EQ(whole, of_graph);
    int stages = 0;
    const std::vector<int> stage_of = RandomStages(training, seed, &stages);
    for (int stage = 0; stage < stages; ++stage) {
      for (const OpId op : OpsAgain(ProgramOf(training, stage_of, stage, stages, Recompute::kFull))) {
        EXPECT_TRUE(blocks.runs_again[op]) << training.graph.op(op).name;
        ++again_in_stages;
      }
    }
    again_in_graphs += static_cast<int>(of_graph.size());
    if (HasFailure()) return;
  }
  EXPECT_GT(again_in_stages, again_in_graphs * 2 / 3);
}

// Chains, sums, branches, a tensor that all blocks read, and a parameter that all use: the gradients are the same bits, in stages that end
// where blocks do and elsewhere.
TEST(RecomputeTest, EqualPartsTrainWithTheSameBits) {
  for (const opdag::Graph& graph : {graphs::Chain(16), graphs::Chain(16, graphs::Weights::kShared), graphs::ResidualBlocks(4),
                                    graphs::Diamonds(5), graphs::WithSharedTable(8)}) {
    const autodiff::TrainingGraph training = Differentiated(graph, 2);
    SCOPED_TRACE(training.graph.op(2).name);
    ASSERT_GT(autodiff::RecomputeBlocksOf(training, autodiff::ViewsOf(training)).count(), 1);
    const auto run = [&](Recompute recompute, int stages) {
      PipelineOptions options = testing::SmallOptions(training, stages, "cpu");
      options.config.recompute = recompute;
      return testing::MustRun(training, options);
    };
    const testing::PipelineResult none = run(Recompute::kNone, 1);
    EXPECT_NE(testing::LossBits(none).front(), testing::LossBits(none).back()) << "nothing was learnt: this test says nothing";
    for (const int stages : {1, 2, 3, 5}) {
      const testing::PipelineResult full = run(Recompute::kFull, stages);
      EXPECT_EQ(testing::LossBits(full), testing::LossBits(none)) << stages;
      EXPECT_EQ(full.parameters, none.parameters) << stages;
    }
  }
}

// Branches, dropout and batch norm among them; stages cut anywhere.
TEST(RecomputeTest, RandomGraphsTrainWithTheSameBits) {
  int blocks = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const autodiff::TrainingGraph training = RandomLongTraining(seed);
    blocks = std::max(blocks, autodiff::RecomputeBlocksOf(training, autodiff::ViewsOf(training)).count());
    const auto run = [&](Recompute recompute, int stages, std::vector<int> stage_of) {
      PipelineOptions options = testing::SmallOptions(training, stages, "cpu");
      options.config.recompute = recompute;
      options.stage_of_forward_op = std::move(stage_of);
      const auto source = testing::SyntheticSource(11, opdag::testing::kRandomGraphVocabulary);
      auto result = testing::RunPipeline(training, options, *source);
      EXPECT_TRUE(result.ok()) << result.status();
      return result.ok() ? *std::move(result) : testing::PipelineResult();
    };
    const testing::PipelineResult none = run(Recompute::kNone, 1, std::vector<int>(training.forward_ops, 0));
    int stages = 0;
    const std::vector<int> stage_of = RandomStages(training, seed, &stages);
    for (const testing::PipelineResult& full :
         {run(Recompute::kFull, 1, std::vector<int>(training.forward_ops, 0)),
          run(Recompute::kFull, 2, testing::ContiguousStages(training, 2)), run(Recompute::kFull, stages, stage_of)}) {
      EXPECT_EQ(testing::LossBits(full), testing::LossBits(none));
      EXPECT_EQ(full.parameters, none.parameters);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(blocks, 2);
}

}  // namespace
}  // namespace fusionllm::runtime
