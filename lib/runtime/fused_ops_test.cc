#include "lib/runtime/fused_ops.h"

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/opdag/graph_builder.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FakeKernel : public kernels::Kernel {
 public:
  explicit FakeKernel(std::set<std::pair<int, int>> in_place) : in_place_(std::move(in_place)) {}
  bool CanRunInPlace(int output, int input) const override { return in_place_.contains({output, input}); }
  absl::Status Run(const kernels::KernelArguments&) override { return absl::OkStatus(); }

 private:
  const std::set<std::pair<int, int>> in_place_;
};

// Has kernels for the pairs of op types in `pairs`, which run in place where it says.
class FakeBackend : public kernels::Backend {
 public:
  absl::string_view name() const override { return "fake"; }
  std::string Describe() const override { return "fake"; }
  bool Supports(absl::string_view) const override { return true; }
  absl::StatusOr<std::unique_ptr<kernels::Kernel>> Prepare(const opdag::Graph&, const opdag::Op&) override {
    return absl::UnimplementedError("none");
  }
  absl::StatusOr<std::unique_ptr<kernels::Kernel>> PrepareFused(const opdag::Graph&, const opdag::Op& first, const opdag::Op& second,
                                                                bool handed_on_wanted) override {
    if (!error.ok()) return error;
    const auto found = pairs.find({first.type, second.type});
    if (found == pairs.end()) return nullptr;
    return std::make_unique<FakeKernel>(found->second);
  }
  std::map<std::pair<std::string, std::string>, std::set<std::pair<int, int>>> pairs;  // outputs and inputs of both
  absl::Status error;
};

constexpr size_t kBytes = 64;  // of each value: f32[4, 4]
constexpr char kView[] = "view", kReshape[] = "reshape";

// Ops over values of 64 bytes, each in a place of its own in an arena of scratch memory that tests move them about in.
class FusedOpsTest : public ::testing::Test {
 protected:
  // By type and inputs: value 0 is a placeholder's, the i-th op gives value i + 1. All ops but the placeholder are the pass's. "view" is a
  // reshape to the same shape that is not run, "reshape" one to another shape that is not.
  void Build(const std::vector<std::pair<std::string, std::vector<opdag::ValueId>>>& ops) {
    opdag::GraphBuilder builder("test");
    builder.Placeholder("images", "images", "f32", {4, 4});
    const auto is_view = [](const std::string& type) { return type == kView || type == kReshape; };
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto& [type, inputs] = ops[i];
      if (is_view(type)) {
        builder.Add(absl::StrCat("op", i + 1), "reshape", inputs, {{"shape", std::vector<int64_t>{type == kView ? 4 : 2, -1}}});
      } else {
        builder.Add(absl::StrCat("op", i + 1), type, inputs);
      }
    }
    ASSERT_TRUE(builder.status().ok()) << builder.status();
    graph_ = builder.graph();
    pass_ = {};
    pass_.location.resize(graph_.values().size());
    for (size_t v = 0; v < graph_.values().size(); ++v) At(static_cast<opdag::ValueId>(v), v * kBytes);
    for (size_t i = 1; i < graph_.ops().size(); ++i) {
      pass_.ops.push_back({.op = static_cast<opdag::OpId>(i), .view = is_view(ops[i - 1].first)});
      if (pass_.ops.back().view) pass_.location[i] = pass_.location[ops[i - 1].second[0]];
    }
  }

  void At(opdag::ValueId value, size_t offset, Arena arena = Arena::kScratch) {
    pass_.location[value] = {.arena = arena, .offset = offset};
  }

  // One slot's arguments, as the pass says that values lie.
  std::vector<BoundOp> Bound() {
    std::vector<BoundOp> bound;
    for (const ProgramOp& program_op : pass_.ops) {
      const opdag::Op& op = graph_.op(program_op.op);
      BoundOp& out = bound.emplace_back();
      for (const opdag::ValueId input : op.inputs) out.inputs.emplace_back(View(input));
      for (const opdag::ValueId output : op.outputs) out.outputs.push_back(View(output));
      out.accumulate = std::make_unique<bool[]>(out.outputs.size());
    }
    return bound;
  }
  tensor::TensorView View(opdag::ValueId value) { return {graph_.value(value).type, arena_.data() + pass_.location[value].offset}; }

  absl::StatusOr<std::map<size_t, FusedPair>> Fuse(std::vector<BoundOp> bound) {
    std::vector<std::vector<BoundOp>> slots;
    slots.push_back(std::move(bound));
    return FusePass(graph_, pass_, slots, backend_);
  }
  std::vector<size_t> Found() {
    const auto pairs = Fuse(Bound());
    EXPECT_TRUE(pairs.ok()) << pairs.status();
    std::vector<size_t> positions;
    for (const auto& [position, pair] : *pairs) positions.push_back(position);
    return positions;
  }
  // The one pair there is.
  BoundOp OnlyPair(std::vector<BoundOp> bound) {
    auto pairs = Fuse(std::move(bound));
    EXPECT_TRUE(pairs.ok() && pairs->size() == 1);
    return std::move(pairs->begin()->second.bound.at(0));
  }

  opdag::Graph graph_;
  Pass pass_;
  FakeBackend backend_;
  std::vector<std::byte> arena_ = std::vector<std::byte>(64 * kBytes);
};

constexpr char kTanh[] = "tanh", kExp[] = "exp", kAdd[] = "add", kMul[] = "mul";

TEST_F(FusedOpsTest, NeighboursThatTheBackEndHasAKernelForAreFound) {
  backend_.pairs = {{{kTanh, kExp}, {}}, {{kExp, kTanh}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}, {kTanh, {2}}, {"neg", {3}}, {kExp, {4}}, {kTanh, {5}}});
  EXPECT_THAT(Found(), ElementsAre(0, 4)) << "an op is in one pair, and the first wins";
  backend_.pairs = {{{kExp, kTanh}, {}}};
  EXPECT_THAT(Found(), ElementsAre(1, 4));
}

TEST_F(FusedOpsTest, TheSecondMustReadTheFirstOnce) {
  backend_.pairs = {{{kTanh, kAdd}, {}}};
  Build({{kTanh, {0}}, {kAdd, {0, 0}}});
  EXPECT_THAT(Found(), IsEmpty()) << "neighbours only";
  Build({{kTanh, {0}}, {kAdd, {0, 1}}});
  EXPECT_THAT(Found(), ElementsAre(0));
  Build({{kTanh, {0}}, {kAdd, {1, 1}}});
  EXPECT_THAT(Found(), IsEmpty()) << "the other addend is what the kernel has yet to make";
}

TEST_F(FusedOpsTest, WhatIsSentStandsAlone) {
  backend_.pairs = {{{kTanh, kExp}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}});
  pass_.ops[0].sends = {{.value = 1, .peer = 1}};
  EXPECT_THAT(Found(), IsEmpty());
  pass_.ops[0].sends = {};
  pass_.ops[1].sends = {{.value = 2, .peer = 1}};
  EXPECT_THAT(Found(), ElementsAre(0)) << "the second's outputs leave after both";
}

TEST_F(FusedOpsTest, AnOpThatIsRunAgainGoesWithItsLike) {
  backend_.pairs = {{{kTanh, kExp}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}});
  pass_.ops[0].recompute = true;
  EXPECT_THAT(Found(), IsEmpty());
  pass_.ops[1].recompute = true;
  EXPECT_THAT(Found(), ElementsAre(0));
}

TEST_F(FusedOpsTest, TheSecondMayLieWhereTheFirstReadsIfTheKernelAllowsThat) {
  Build({{kTanh, {0}}, {kExp, {1}}});
  const std::pair<std::string, std::string> types{kTanh, kExp};
  At(2, 0);  // where value 0 is
  backend_.pairs = {{types, {}}};
  EXPECT_THAT(Found(), IsEmpty());
  backend_.pairs = {{types, {{0, 0}}}};
  EXPECT_THAT(Found(), IsEmpty()) << "leave for another output";
  backend_.pairs = {{types, {{1, 1}}}};
  EXPECT_THAT(Found(), IsEmpty()) << "leave for another input";
  backend_.pairs = {{types, {{1, 0}}}};
  EXPECT_THAT(Found(), ElementsAre(0));
  for (const size_t beside : {kBytes / 2, kBytes - 1}) {
    At(0, 10 * kBytes);
    At(2, 10 * kBytes + beside);
    EXPECT_THAT(Found(), IsEmpty()) << "a part of it, " << beside << " bytes on";
    At(2, 10 * kBytes - beside);
    EXPECT_THAT(Found(), IsEmpty()) << "a part of it, " << beside << " bytes back";
  }
  backend_.pairs = {{types, {}}};
  for (const size_t apart : {9 * kBytes, 11 * kBytes}) {
    At(2, apart);
    EXPECT_THAT(Found(), ElementsAre(0)) << "next to it";
  }
}

TEST_F(FusedOpsTest, MemoryOfEverySlotCounts) {
  Build({{kTanh, {0}}, {kExp, {1}}});
  backend_.pairs = {{{kTanh, kExp}, {}}};
  std::vector<std::vector<BoundOp>> slots;
  slots.push_back(Bound());
  At(2, 7 * kBytes);
  slots.push_back(Bound());
  auto pairs = FusePass(graph_, pass_, slots, backend_);
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  ASSERT_EQ(pairs->size(), 1);
  EXPECT_EQ(pairs->at(0).bound[0].outputs[1].data, arena_.data() + 2 * kBytes);
  EXPECT_EQ(pairs->at(0).bound[1].outputs[1].data, arena_.data() + 7 * kBytes);
  At(2, 0);
  slots.push_back(Bound());
  pairs = FusePass(graph_, pass_, slots, backend_);
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_THAT(*pairs, IsEmpty());
}

TEST_F(FusedOpsTest, WhatNobodyElseWantsIsLeftOut) {
  backend_.pairs = {{{kTanh, kExp}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}, {"neg", {2}}});
  EXPECT_EQ(OnlyPair(Bound()).outputs[0].data, nullptr);
  At(1, kBytes, Arena::kStash);
  EXPECT_EQ(OnlyPair(Bound()).outputs[0].data, arena_.data() + kBytes) << "the backward pass wants it";
  At(1, kBytes, Arena::kUseGradient);
  EXPECT_EQ(OnlyPair(Bound()).outputs[0].data, arena_.data() + kBytes) << "the optimizer wants it";
  Build({{kTanh, {0}}, {kExp, {1}}, {"neg", {1}}});
  EXPECT_EQ(OnlyPair(Bound()).outputs[0].data, arena_.data() + kBytes) << "a later op wants it";
}

TEST_F(FusedOpsTest, ArgumentsAreTheFirstOnesThenTheSecondOnes) {
  backend_.pairs = {{{kMul, kAdd}, {}}};
  Build({{kTanh, {0}}, {kMul, {0, 1}}, {kAdd, {1, 2}}, {"neg", {2}}});
  std::vector<BoundOp> bound = Bound();
  std::vector<std::byte> parameters(3);
  bound[1].parameters = {{{}, &parameters[0]}};
  bound[2].parameters = {{{}, &parameters[1]}, {{}, &parameters[2]}};
  // More outputs than these ops have.
  for (const size_t op : {1, 2}) {
    bound[op].outputs.push_back({graph_.value(0).type, arena_.data() + (20 + op) * kBytes});
    bound[op].accumulate = std::make_unique<bool[]>(2);
  }
  bound[1].accumulate[1] = bound[2].accumulate[0] = true;
  const BoundOp both = OnlyPair(std::move(bound));
  const auto places = [&](const auto& views) {
    std::vector<std::ptrdiff_t> of;
    for (const auto& view : views) of.push_back((static_cast<const std::byte*>(view.data) - arena_.data()) / static_cast<int>(kBytes));
    return of;
  };
  EXPECT_THAT(places(both.inputs), ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(places(both.outputs), ElementsAre(2, 21, 3, 22));
  ASSERT_EQ(both.parameters.size(), 3);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(both.parameters[i].data, &parameters[i]);
  EXPECT_THAT(std::vector<bool>(both.accumulate.get(), both.accumulate.get() + 4), ElementsAre(false, true, true, false));
}

TEST_F(FusedOpsTest, ViewsAreLookedThrough) {
  backend_.pairs = {{{kTanh, kExp}, {}}, {{"reshape", kExp}, {}}, {{kTanh, "reshape"}, {}}};
  Build({{kTanh, {0}}, {kView, {1}}, {kView, {0}}, {kView, {2}}, {kExp, {4}}});
  const auto pairs = Fuse(Bound());
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  ASSERT_EQ(pairs->size(), 1);
  EXPECT_EQ(pairs->at(0).ops, 5) << "the views are behind them with the second";
  EXPECT_EQ(pairs->at(0).bound[0].outputs[0].data, nullptr) << "views alone want nothing";
  EXPECT_EQ(pairs->at(0).bound[0].inputs[1].data, arena_.data() + kBytes);
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {0}}});
  EXPECT_THAT(Found(), IsEmpty()) << "what nobody reads is handed on to nobody";
  Build({{kTanh, {0}}, {kReshape, {1}}, {kExp, {2}}});
  EXPECT_THAT(Found(), IsEmpty()) << "the kernel would be made for another shape";
  Build({{kView, {0}}, {kTanh, {1}}, {kExp, {2}}, {kView, {3}}});
  EXPECT_THAT(Found(), ElementsAre(1));
}

TEST_F(FusedOpsTest, WhatIsReadByAnotherNameIsWanted) {
  backend_.pairs = {{{kTanh, kExp}, {}}};
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {1}}, {"neg", {2}}});
  EXPECT_EQ(OnlyPair(Bound()).outputs[0].data, arena_.data() + kBytes);
  Build({{kTanh, {0}}, {kReshape, {1}}, {kExp, {1}}, {kView, {2}}, {"neg", {4}}});
  EXPECT_EQ(OnlyPair(Bound()).outputs[0].data, arena_.data() + kBytes) << "of another shape, twice removed";
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {2}}, {"neg", {1}}});
  EXPECT_EQ(OnlyPair(Bound()).outputs[0].data, arena_.data() + kBytes) << "by its first";
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {2}}, {"neg", {2}}});
  EXPECT_EQ(OnlyPair(Bound()).outputs[0].data, arena_.data() + kBytes) << "by none but a view's";
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {2}}});
  graph_.set_loss(2);
  EXPECT_EQ(OnlyPair(Bound()).outputs[0].data, arena_.data() + kBytes) << "the loss is read when the pass is over";
}

TEST_F(FusedOpsTest, WhatIsReadByTwoNamesIsReadTwice) {
  backend_.pairs = {{{kTanh, kAdd}, {}}};
  Build({{kTanh, {0}}, {kView, {1}}, {kAdd, {1, 2}}});
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(FusedOpsTest, AMessageOfAViewLeavesBetweenTheTwo) {
  backend_.pairs = {{{kTanh, kExp}, {}}};
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {2}}});
  pass_.ops[1].sends.resize(1);
  EXPECT_THAT(Found(), IsEmpty());
}

// A sum passes the relu's gradient on to the norms before it: nothing stands between them but views.
TEST_F(FusedOpsTest, AResidualBlocksGradientsAreNeighbours) {
  const autodiff::TrainingGraph training = testing::SmallResidualNetwork();
  const std::vector<int> one_stage(training.graph.ops().size(), 0);
  backend_.pairs = {{{"relu_grad", "batch_norm_grad"}, {}}};
  std::map<Reshapes, std::vector<std::string>> found;
  for (const Reshapes reshapes : {Reshapes::kCopies, Reshapes::kViews}) {
    const auto program = BuildStageProgram(training, one_stage, 0, 1, Recompute::kNone, reshapes);
    ASSERT_TRUE(program.ok()) << program.status();
    const auto pairs = FusePass(training.graph, program->backward, {}, backend_);
    ASSERT_TRUE(pairs.ok()) << pairs.status();
    for (const auto& [position, pair] : *pairs) found[reshapes].push_back(training.graph.op(program->backward.ops[position].op).name);
  }
  EXPECT_THAT(found[Reshapes::kCopies], ElementsAre("stem.relu.grad"));
  EXPECT_THAT(found[Reshapes::kViews], ElementsAre("block2.relu.grad", "block1.relu.grad", "stem.relu.grad"));
}

TEST_F(FusedOpsTest, ErrorsOfTheBackEndAreTold) {
  Build({{kTanh, {0}}, {kExp, {1}}});
  backend_.error = absl::UnimplementedError("no such thing");
  EXPECT_EQ(Fuse(Bound()).status(), backend_.error);
}

}  // namespace
}  // namespace fusionllm::runtime
