// Where values lie when some are views of others: that every op finds what it reads, and how much less memory that takes.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/opdag/graph_builder.h"
#include "lib/opdag/testing/random_graph.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

using opdag::kBatch;
using opdag::kNone;
using opdag::ValueId;
using testing::Differentiated;
using Ints = std::vector<int64_t>;

StageProgram OneStageProgram(const autodiff::TrainingGraph& training, Reshapes reshapes, Recompute recompute = Recompute::kNone) {
  const std::vector<int> one_stage(training.graph.ops().size(), 0);
  return *BuildStageProgram(training, one_stage, 0, 1, recompute, reshapes);
}

size_t AlignedBytes(size_t bytes) { return (bytes + tensor::kAlignment - 1) / tensor::kAlignment * tensor::kAlignment; }

// Of one pass, what StageProgram::scratch_bytes is the greatest of.
size_t ScratchBytes(const autodiff::TrainingGraph& training, const Pass& pass) {
  size_t bytes = 0;
  for (size_t v = 0; v < pass.location.size(); ++v) {
    if (pass.location[v].arena != Arena::kScratch) continue;
    bytes = std::max(bytes, pass.location[v].offset + AlignedBytes(training.graph.values()[v].type.bytes()));
  }
  return bytes;
}

// Carries passes out on memory that holds nothing but whose bytes they are.
class Memory {
 public:
  Memory(const autodiff::TrainingGraph& training, const StageProgram& program)
      : training_(training), program_(program), shown_(training.graph.values().size()) {
    arenas_[Arena::kStash].resize(program.stash_bytes_per_slot / tensor::kAlignment, kNone);
    for (size_t v = 0; v < shown_.size(); ++v) shown_[v] = static_cast<ValueId>(v);
  }

  void Run(const Pass& pass) {
    arenas_[Arena::kScratch].assign(program_.scratch_bytes / tensor::kAlignment, kNone);  // what other passes left there is lost
    for (const CutEdge& edge : pass.receives) Write(pass, edge.value);
    for (const CutEdge& edge : pass.receives) ExpectFound(pass, edge.value, "as it arrived");
    for (const ProgramOp& program_op : pass.ops) {
      const opdag::Op& op = training_.graph.op(program_op.op);
      for (const ValueId input : op.inputs) ExpectFound(pass, input, op.name);
      if (program_op.view) {
        shown_[op.outputs[0]] = shown_[op.inputs[0]];
      } else {
        for (const ValueId output : op.outputs) Write(pass, output);
        for (const ValueId input : op.inputs) ExpectFound(pass, input, op.name + " when it had written");
      }
      for (const CutEdge& edge : program_op.sends) ExpectFound(pass, edge.value, op.name + "'s message");
    }
    if (!program_.owns_loss || &pass == &program_.backward) return;
    for (const ValueId output : training_.graph.op(training_.graph.value(training_.graph.loss()).producer).outputs) {
      ExpectFound(pass, output, "the end of the pass");
    }
  }

 private:
  template <typename Visit>
  void ForEachUnit(const Pass& pass, ValueId value, Visit visit) {
    const Location& location = pass.location[value];
    ASSERT_NE(location.arena, Arena::kNone) << training_.graph.value(value).name;
    if (location.arena == Arena::kPerUseGradient) return;
    std::vector<ValueId>& units = arenas_[location.arena];
    const size_t begin = location.offset / tensor::kAlignment;
    const size_t end = begin + AlignedBytes(training_.graph.value(value).type.bytes()) / tensor::kAlignment;
    ASSERT_LE(end, units.size());
    for (size_t unit = begin; unit < end; ++unit) visit(units[unit]);
  }
  void Write(const Pass& pass, ValueId value) {
    ForEachUnit(pass, value, [&](ValueId& unit) { unit = value; });
  }
  void ExpectFound(const Pass& pass, ValueId value, const std::string& by) {
    bool found = true;
    ForEachUnit(pass, value, [&](ValueId& unit) { found = found && unit == shown_[value]; });
    EXPECT_TRUE(found) << training_.graph.value(value).name << " is not where " << by << " looks";
  }

  const autodiff::TrainingGraph& training_;
  const StageProgram& program_;
  std::map<Arena, std::vector<ValueId>> arenas_;
  std::vector<ValueId> shown_;  // by value: whose bytes it is
};

// Every stage of the placement. Counts views.
int ExpectAllFound(const autodiff::TrainingGraph& training, const std::vector<int>& forward_stage_of, int stages, Recompute recompute) {
  int views = 0;
  const std::vector<int> placement = autodiff::AssignStages(training, forward_stage_of);
  for (int stage = 0; stage < stages; ++stage) {
    const auto program = BuildStageProgram(training, placement, stage, stages, recompute);
    EXPECT_TRUE(program.ok()) << program.status();
    Memory memory(training, *program);
    memory.Run(program->forward);
    memory.Run(program->backward);
    Memory(training, *program).Run(program->evaluate);
    for (const Pass* pass : {&program->forward, &program->backward}) {
      views += static_cast<int>(std::count_if(pass->ops.begin(), pass->ops.end(), [](const ProgramOp& op) { return op.view; }));
    }
  }
  return views;
}

TEST(ViewMemoryTest, EveryReadFindsItsValueInRandomGraphs) {
  int views = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    autodiff::TrainingGraph training = Differentiated(opdag::testing::RandomGraph({.seed = seed, .ops = 25, .layers = true}));
    if (seed % 3 == 0) training = testing::InBf16(std::move(training));
    for (const int stages : {1, 2, 3}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        views += ExpectAllFound(training, testing::ContiguousStages(training, stages), stages, recompute);
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(views, 4'000);
}

TEST(ViewMemoryTest, EveryReadFindsItsValueInSmallNetworks) {
  for (const autodiff::TrainingGraph& training :
       {testing::SmallGpt2(true), testing::SmallResidualNetwork(), testing::InBf16(testing::SmallResidualNetwork())}) {
    for (const int stages : {1, 2, 4, 6}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        EXPECT_GT(ExpectAllFound(training, testing::ContiguousStages(training, stages), stages, recompute), 0);
      }
    }
  }
}

// linear -> + 1 -> + 1 .. -> mean squares: each sum passes its gradient on as it is.
autodiff::TrainingGraph Sums(int sums) {
  opdag::GraphBuilder builder("sums", 2);
  const ValueId images = builder.Placeholder("images", "images", "f32", {kBatch, 64});
  const ValueId target = builder.Placeholder("target", "images", "f32", {kBatch, 64});
  ValueId x = builder.Add("linear", "linear", {images}, {{"out", int64_t{64}}, {"layout", std::string("io")}, {"bias", false}});
  for (int i = 0; i < sums; ++i) {
    const ValueId one = builder.Add(absl::StrCat("one", i), "constant", {}, {{"value", 1.0}, {"shape", Ints{kBatch, 64}}});
    x = builder.Add(absl::StrCat("sum", i), "add", {x, one});
  }
  return Differentiated(builder.Finish(builder.Add("loss", "mse", {x, target})));
}

TEST(ViewMemoryTest, AChainOfSumsPassesItsGradientOnInOnePlace) {
  constexpr size_t kTensor = sizeof(float) * 2 * 64;
  constexpr size_t kSeed = tensor::kAlignment;  // the gradient that the loss starts from
  for (const int sums : {1, 2, 5}) {
    const autodiff::TrainingGraph training = Sums(sums);
    EXPECT_EQ(ScratchBytes(training, OneStageProgram(training, Reshapes::kCopies).backward), 2 * kTensor) << sums;
    EXPECT_EQ(ScratchBytes(training, OneStageProgram(training, Reshapes::kViews).backward), kTensor + kSeed) << sums;
  }
}

// The first block of a ResNet-50, whose shortcut is a convolution too: what comes back to its sum goes two ways, and each is a copy, or
// none.
TEST(ViewMemoryTest, TheBackwardOfABottleneckBlockTakesLess) {
  opdag::GraphBuilder builder("bottleneck", 2);
  const auto conv_norm = [&](const std::string& name, ValueId x, int64_t out, int64_t kernel) {
    x = builder.Add(name, "conv2d", {x}, {{"out", out}, {"kernel", Ints{kernel, kernel}}, {"padding", Ints{kernel / 2, kernel / 2}}});
    return builder.Add(name + ".norm", "batch_norm", {x});
  };
  const auto relu = [&](ValueId x) { return builder.Add(absl::StrCat("relu", x), "relu", {x}); };
  const ValueId images = builder.Placeholder("images", "images", "f32", {kBatch, 8, 8, 3});
  const ValueId target = builder.Placeholder("target", "images", "f32", {kBatch, 8, 8, 64});
  const ValueId in = relu(conv_norm("stem", images, 16, 3));
  ValueId x = relu(conv_norm("conv1", in, 16, 1));
  x = relu(conv_norm("conv2", x, 16, 3));
  x = conv_norm("conv3", x, 64, 1);
  x = relu(builder.Add("sum", "add", {x, conv_norm("shortcut", in, 64, 1)}));
  const autodiff::TrainingGraph training = Differentiated(builder.Finish(builder.Add("loss", "mse", {x, target})));
  const StageProgram copies = OneStageProgram(training, Reshapes::kCopies), views = OneStageProgram(training, Reshapes::kViews);
  const size_t wide = sizeof(float) * 2 * 8 * 8 * 64;
  EXPECT_GE(ScratchBytes(training, copies.backward), 3 * wide) << "both copies and what they are of";
  EXPECT_LE(ScratchBytes(training, views.backward), 5 * wide / 2) << "with what a norm makes of it, and what a convolution makes of that";
  EXPECT_LE(views.scratch_bytes, copies.scratch_bytes) << "an evaluation's sums, with what they add up, are as large";
  EXPECT_EQ(views.stash_bytes_per_slot, copies.stash_bytes_per_slot) << "forwards there are no reshapes";
}

// tanh's result is kept for its gradient, and so is its reshape, for that of the product.
TEST(ViewMemoryTest, WhatIsKeptUnderTwoNamesIsKeptOnce) {
  opdag::GraphBuilder builder("kept", 2);
  const ValueId images = builder.Placeholder("images", "images", "f32", {kBatch, 64});
  const ValueId target = builder.Placeholder("target", "images", "f32", {kBatch, 8, 8});
  ValueId x = builder.Add("linear", "linear", {images}, {{"out", int64_t{64}}, {"layout", std::string("io")}, {"bias", false}});
  const ValueId tanh = builder.Add("tanh", "tanh", {x});
  const ValueId shaped = builder.Add("shaped", "reshape", {tanh}, {{"shape", Ints{kBatch, 8, 8}}});
  x = builder.Add("product", "mul", {shaped, builder.Add("negative", "neg", {shaped})});
  const autodiff::TrainingGraph training = Differentiated(builder.Finish(builder.Add("loss", "mse", {x, target})));
  const StageProgram copies = OneStageProgram(training, Reshapes::kCopies), views = OneStageProgram(training, Reshapes::kViews);
  EXPECT_EQ(views.stash_bytes_per_slot + sizeof(float) * 2 * 64, copies.stash_bytes_per_slot);
  for (const Pass* pass : {&views.forward, &views.backward}) {
    for (const ValueId value : {tanh, shaped}) {
      EXPECT_EQ(pass->location[value].arena, Arena::kStash);
      EXPECT_EQ(pass->location[value].offset, views.forward.location[tanh].offset);
    }
  }
}

// Metrics that are not differentiated come after the loss, which is a view of what they no longer need.
TEST(ViewMemoryTest, ALossThatIsAViewLastsToTheEndOfThePass) {
  opdag::GraphBuilder builder("late", 2);
  const ValueId images = builder.Placeholder("images", "images", "f32", {kBatch, 8});
  const ValueId x = builder.Add("linear", "linear", {images}, {{"out", int64_t{8}}, {"layout", std::string("io")}, {"bias", false}});
  const ValueId squares = builder.Add("squares", "square", {x});
  const ValueId mean = builder.Add("mean", "reduce", {squares}, {{"kind", std::string("mean")}, {"axes", Ints{0, 1}}, {"keep_dims", true}});
  const ValueId loss = builder.Add("loss", "reshape", {mean}, {{"shape", Ints{}}});
  ValueId metric = builder.Add("metric0", "reduce", {images}, {{"kind", std::string("mean")}, {"axes", Ints{0, 1}}, {"keep_dims", true}});
  for (int i = 1; i < 4; ++i) metric = builder.Add(absl::StrCat("metric", i), "neg", {metric});
  const autodiff::TrainingGraph training = Differentiated(builder.Finish(loss));
  EXPECT_GT(ExpectAllFound(training, std::vector<int>(training.forward_ops, 0), 1, Recompute::kNone), 0);
}

}  // namespace
}  // namespace fusionllm::runtime
