#include "lib/runtime/fused_ops.h"

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/prepared_op.h"
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

using Types = std::vector<std::string>;

// Has kernels for the rows of op types in `rows`, which run in place where it says.
class FakeBackend : public kernels::Backend {
 public:
  absl::string_view name() const override { return "fake"; }
  std::string Describe() const override { return "fake"; }
  bool Supports(opdag::OpKind) const override { return true; }
  absl::StatusOr<std::unique_ptr<kernels::Kernel>> Prepare(const opdag::Graph&, const opdag::Op&) override {
    return absl::UnimplementedError("none");
  }
  absl::StatusOr<std::unique_ptr<kernels::Kernel>> PrepareFused(const opdag::Graph& graph, std::span<const kernels::FusedOp> row) override {
    if (!error.ok()) return error;
    EXPECT_TRUE(kernels::PrepareFusedOps(graph, row).ok()) << "each reads the one before by its name";
    Types types;
    for (const kernels::FusedOp& op : row) types.emplace_back(opdag::Name(op.op.kind));
    const auto found = rows.find(types);
    if (found == rows.end()) return nullptr;
    wanted.clear();
    for (const kernels::FusedOp& op : row) wanted.push_back(op.keeps_output);
    return std::make_unique<FakeKernel>(found->second);
  }
  std::map<Types, std::set<std::pair<int, int>>> rows;  // outputs and inputs of all
  std::vector<bool> wanted;                             // of the last kernel made
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

  absl::StatusOr<std::map<size_t, FusedRow>> Fuse(std::vector<BoundOp> bound) {
    std::vector<std::vector<BoundOp>> slots;
    slots.push_back(std::move(bound));
    return FusePass(graph_, pass_, slots, backend_);
  }
  std::vector<size_t> Found() {
    const auto rows = Fuse(Bound());
    EXPECT_TRUE(rows.ok()) << rows.status();
    std::vector<size_t> positions;
    for (const auto& [position, row] : *rows) positions.push_back(position);
    return positions;
  }
  // The one row there is.
  BoundOp OnlyRow(std::vector<BoundOp> bound) {
    auto rows = Fuse(std::move(bound));
    EXPECT_TRUE(rows.ok() && rows->size() == 1);
    return std::move(rows->begin()->second.bound.at(0));
  }

  opdag::Graph graph_;
  Pass pass_;
  FakeBackend backend_;
  std::vector<std::byte> arena_ = std::vector<std::byte>(64 * kBytes);
};

constexpr char kTanh[] = "tanh", kExp[] = "exp", kAdd[] = "add", kMul[] = "mul";

TEST_F(FusedOpsTest, NeighboursThatTheBackEndHasAKernelForAreFound) {
  backend_.rows = {{{kTanh, kExp}, {}}, {{kExp, kTanh}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}, {kTanh, {2}}, {"neg", {3}}, {kExp, {4}}, {kTanh, {5}}});
  EXPECT_THAT(Found(), ElementsAre(0, 4)) << "an op is in one row, and the first wins";
  backend_.rows = {{{kExp, kTanh}, {}}};
  EXPECT_THAT(Found(), ElementsAre(1, 4));
}

TEST_F(FusedOpsTest, TheSecondMustReadTheFirstOnce) {
  backend_.rows = {{{kTanh, kAdd}, {}}};
  Build({{kTanh, {0}}, {kAdd, {0, 0}}});
  EXPECT_THAT(Found(), IsEmpty()) << "neighbours only";
  Build({{kTanh, {0}}, {kAdd, {0, 1}}});
  EXPECT_THAT(Found(), ElementsAre(0));
  Build({{kTanh, {0}}, {kAdd, {1, 1}}});
  EXPECT_THAT(Found(), IsEmpty()) << "the other addend is what the kernel has yet to make";
}

TEST_F(FusedOpsTest, WhatIsSentStandsAlone) {
  backend_.rows = {{{kTanh, kExp}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}});
  pass_.ops[0].sends = {{.value = 1, .peer = 1}};
  EXPECT_THAT(Found(), IsEmpty());
  pass_.ops[0].sends = {};
  pass_.ops[1].sends = {{.value = 2, .peer = 1}};
  EXPECT_THAT(Found(), ElementsAre(0)) << "the second's outputs leave after both";
}

TEST_F(FusedOpsTest, AnOpThatIsRunAgainGoesWithItsLike) {
  backend_.rows = {{{kTanh, kExp}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}});
  pass_.ops[0].recompute = true;
  EXPECT_THAT(Found(), IsEmpty());
  pass_.ops[1].recompute = true;
  EXPECT_THAT(Found(), ElementsAre(0));
}

TEST_F(FusedOpsTest, TheSecondMayLieWhereTheFirstReadsIfTheKernelAllowsThat) {
  Build({{kTanh, {0}}, {kExp, {1}}});
  const Types types{kTanh, kExp};
  At(2, 0);  // where value 0 is
  backend_.rows = {{types, {}}};
  EXPECT_THAT(Found(), IsEmpty());
  backend_.rows = {{types, {{0, 0}}}};
  EXPECT_THAT(Found(), IsEmpty()) << "leave for another output";
  backend_.rows = {{types, {{1, 1}}}};
  EXPECT_THAT(Found(), IsEmpty()) << "leave for another input";
  backend_.rows = {{types, {{1, 0}}}};
  EXPECT_THAT(Found(), ElementsAre(0));
  for (const size_t beside : {kBytes / 2, kBytes - 1}) {
    At(0, 10 * kBytes);
    At(2, 10 * kBytes + beside);
    EXPECT_THAT(Found(), IsEmpty()) << "a part of it, " << beside << " bytes on";
    At(2, 10 * kBytes - beside);
    EXPECT_THAT(Found(), IsEmpty()) << "a part of it, " << beside << " bytes back";
  }
  backend_.rows = {{types, {}}};
  for (const size_t apart : {9 * kBytes, 11 * kBytes}) {
    At(2, apart);
    EXPECT_THAT(Found(), ElementsAre(0)) << "next to it";
  }
}

TEST_F(FusedOpsTest, MemoryOfEverySlotCounts) {
  Build({{kTanh, {0}}, {kExp, {1}}});
  backend_.rows = {{{kTanh, kExp}, {}}};
  std::vector<std::vector<BoundOp>> slots;
  slots.push_back(Bound());
  At(2, 7 * kBytes);
  slots.push_back(Bound());
  auto rows = FusePass(graph_, pass_, slots, backend_);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 1);
  EXPECT_EQ(rows->at(0).bound[0].outputs[1].data, arena_.data() + 2 * kBytes);
  EXPECT_EQ(rows->at(0).bound[1].outputs[1].data, arena_.data() + 7 * kBytes);
  At(2, 0);
  slots.push_back(Bound());
  rows = FusePass(graph_, pass_, slots, backend_);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(*rows, IsEmpty());
}

TEST_F(FusedOpsTest, UnreadOutputsAreOmitted) {
  backend_.rows = {{{kTanh, kExp}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}, {"neg", {2}}});
  EXPECT_EQ(OnlyRow(Bound()).outputs[0].data, nullptr);
  At(1, kBytes, Arena::kStash);
  EXPECT_EQ(OnlyRow(Bound()).outputs[0].data, arena_.data() + kBytes) << "the backward pass wants it";
  At(1, kBytes, Arena::kPerUseGradient);
  EXPECT_EQ(OnlyRow(Bound()).outputs[0].data, arena_.data() + kBytes) << "the optimizer wants it";
  Build({{kTanh, {0}}, {kExp, {1}}, {"neg", {1}}});
  EXPECT_EQ(OnlyRow(Bound()).outputs[0].data, arena_.data() + kBytes) << "a later op wants it";
}

TEST_F(FusedOpsTest, ArgumentsAreTheFirstOnesThenTheSecondOnes) {
  backend_.rows = {{{kMul, kAdd}, {}}};
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
  const BoundOp both = OnlyRow(std::move(bound));
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
  backend_.rows = {{{kTanh, kExp}, {}}, {{"reshape", kExp}, {}}, {{kTanh, "reshape"}, {}}};
  Build({{kTanh, {0}}, {kView, {1}}, {kView, {0}}, {kView, {2}}, {kExp, {4}}});
  const auto rows = Fuse(Bound());
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 1);
  EXPECT_EQ(rows->at(0).ops, 5) << "the views are behind them with the second";
  EXPECT_EQ(rows->at(0).bound[0].outputs[0].data, nullptr) << "views alone want nothing";
  EXPECT_EQ(rows->at(0).bound[0].inputs[1].data, arena_.data() + kBytes);
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {0}}});
  EXPECT_THAT(Found(), IsEmpty()) << "what nobody reads is handed on to nobody";
  Build({{kTanh, {0}}, {kReshape, {1}}, {kExp, {2}}});
  EXPECT_THAT(Found(), IsEmpty()) << "the kernel would be made for another shape";
  Build({{kView, {0}}, {kTanh, {1}}, {kExp, {2}}, {kView, {3}}});
  EXPECT_THAT(Found(), ElementsAre(1));
}

TEST_F(FusedOpsTest, WhatIsReadByAnotherNameIsWanted) {
  backend_.rows = {{{kTanh, kExp}, {}}};
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {1}}, {"neg", {2}}});
  EXPECT_EQ(OnlyRow(Bound()).outputs[0].data, arena_.data() + kBytes);
  Build({{kTanh, {0}}, {kReshape, {1}}, {kExp, {1}}, {kView, {2}}, {"neg", {4}}});
  EXPECT_EQ(OnlyRow(Bound()).outputs[0].data, arena_.data() + kBytes) << "of another shape, twice removed";
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {2}}, {"neg", {1}}});
  EXPECT_EQ(OnlyRow(Bound()).outputs[0].data, arena_.data() + kBytes) << "by its first";
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {2}}, {"neg", {2}}});
  EXPECT_EQ(OnlyRow(Bound()).outputs[0].data, arena_.data() + kBytes) << "by none but a view's";
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {2}}});
  graph_.set_loss(2);
  EXPECT_EQ(OnlyRow(Bound()).outputs[0].data, arena_.data() + kBytes) << "the loss is read when the pass is over";
}

TEST_F(FusedOpsTest, WhatIsReadByTwoNamesIsReadTwice) {
  backend_.rows = {{{kTanh, kAdd}, {}}};
  Build({{kTanh, {0}}, {kView, {1}}, {kAdd, {1, 2}}});
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(FusedOpsTest, AMessageOfAViewLeavesBetweenTheTwo) {
  backend_.rows = {{{kTanh, kExp}, {}}};
  Build({{kTanh, {0}}, {kView, {1}}, {kExp, {2}}});
  pass_.ops[1].sends.resize(1);
  EXPECT_THAT(Found(), IsEmpty());
}

// ---- Rows of three ----------------------------------------------------------------------------------------------------------------------

TEST_F(FusedOpsTest, TheLongestRowWins) {
  backend_.rows = {{{kTanh, kExp}, {}}, {{kExp, "neg"}, {}}, {{kTanh, kExp, "neg"}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}, {"neg", {2}}, {kTanh, {3}}, {kExp, {4}}, {kExp, {5}}, {"neg", {6}}});
  const auto rows = Fuse(Bound());
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(Found(), ElementsAre(0, 3, 5));
  EXPECT_EQ(rows->at(0).ops, 3);
  EXPECT_EQ(rows->at(3).ops, 2);
  At(3, 0);  // where value 0 is
  EXPECT_THAT(Found(), ElementsAre(0, 3, 5));
  EXPECT_EQ(Fuse(Bound())->at(0).ops, 2) << "memory allows the two of them";
  backend_.rows.erase({kTanh, kExp});
  EXPECT_THAT(Found(), ElementsAre(1, 5));
}

TEST_F(FusedOpsTest, WhatIsWantedIsKnownOfEachOfARow) {
  backend_.rows = {{{kTanh, kExp, "neg"}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}, {"neg", {2}}});
  const auto expect_wanted = [&](bool first, bool second, const char* why) {
    const BoundOp row = OnlyRow(Bound());
    EXPECT_THAT(backend_.wanted, ElementsAre(first, second, true)) << why;
    EXPECT_EQ(row.outputs[0].data, first ? arena_.data() + kBytes : nullptr) << why;
    EXPECT_EQ(row.outputs[1].data, second ? arena_.data() + 2 * kBytes : nullptr) << why;
    EXPECT_EQ(row.outputs[2].data, arena_.data() + 3 * kBytes) << why;
  };
  expect_wanted(false, false, "by the next alone");
  At(1, kBytes, Arena::kStash);
  expect_wanted(true, false, "the first in the backward pass");
  At(2, 2 * kBytes, Arena::kStash);
  expect_wanted(true, true, "both");
  At(1, kBytes);
  expect_wanted(false, true, "the second in the backward pass");
  Build({{kTanh, {0}}, {kExp, {1}}, {"neg", {2}}, {kAdd, {1, 3}}});
  expect_wanted(true, false, "the first by a later op");
}

TEST_F(FusedOpsTest, ARowReadsNothingElseOfItself) {
  backend_.rows = {{{kTanh, kExp, kAdd}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}, {kAdd, {0, 2}}});
  EXPECT_THAT(Found(), ElementsAre(0));
  Build({{kTanh, {0}}, {kExp, {1}}, {kAdd, {1, 2}}});
  EXPECT_THAT(Found(), IsEmpty()) << "what the first makes is not there yet";
  Build({{kTanh, {0}}, {kExp, {1}}, {kView, {1}}, {kAdd, {3, 2}}});
  EXPECT_THAT(Found(), IsEmpty()) << "nor by another name";
  Build({{kTanh, {0}}, {kExp, {1}}, {kAdd, {0, 1}}});
  EXPECT_THAT(Found(), IsEmpty()) << "neighbours only";
}

TEST_F(FusedOpsTest, LaterOpsOfARowMayLieWhereEarlierOnesReadIfTheKernelAllowsThat) {
  const Types types{kTanh, kAdd, kExp};  // inputs: 0; 1 and 2; 3
  Build({{"neg", {0}}, {kTanh, {0}}, {kAdd, {1, 2}}, {kExp, {3}}});
  const auto fuses = [&](std::set<std::pair<int, int>> in_place) {
    backend_.rows = {{types, std::move(in_place)}};
    return !Found().empty();
  };
  EXPECT_TRUE(fuses({}));
  At(4, 0);
  EXPECT_FALSE(fuses({})) << "the third where the first reads";
  EXPECT_FALSE(fuses({{1, 0}}));
  EXPECT_FALSE(fuses({{2, 1}}));
  EXPECT_TRUE(fuses({{2, 0}}));
  At(4, kBytes);
  EXPECT_FALSE(fuses({})) << "the third where the second reads";
  EXPECT_FALSE(fuses({{2, 0}}));
  EXPECT_TRUE(fuses({{2, 1}}));
  At(4, 2 * kBytes);
  EXPECT_TRUE(fuses({})) << "where nobody writes what the first makes";
  At(4, 4 * kBytes);
  At(3, 0);
  EXPECT_TRUE(fuses({})) << "the second where the first reads, but nobody writes it";
  Build({{"neg", {0}}, {kTanh, {0}}, {kAdd, {1, 2}}, {kExp, {3}}, {"neg", {3}}});
  At(3, 0);
  EXPECT_FALSE(fuses({})) << "the second where the first reads";
  EXPECT_TRUE(fuses({{1, 0}}));
}

TEST_F(FusedOpsTest, NothingLeavesOrIsRunAgainWithinARow) {
  backend_.rows = {{{kTanh, kExp, "neg"}, {}}};
  Build({{kTanh, {0}}, {kExp, {1}}, {kView, {2}}, {"neg", {3}}});
  EXPECT_THAT(Found(), ElementsAre(0));
  EXPECT_EQ(Fuse(Bound())->at(0).ops, 4) << "with the view";
  for (const size_t op : {0, 1, 2}) {
    pass_.ops[op].sends.resize(1);
    EXPECT_THAT(Found(), IsEmpty()) << op;
    pass_.ops[op].sends.clear();
  }
  pass_.ops[3].sends.resize(1);
  EXPECT_THAT(Found(), ElementsAre(0));
  pass_.ops[3].recompute = true;
  EXPECT_THAT(Found(), IsEmpty());
}

// A sum passes the relu's gradient on to the norms before it: nothing stands between them but views.
TEST_F(FusedOpsTest, AResidualBlocksGradientsAreNeighbours) {
  const autodiff::TrainingGraph training = testing::SmallResidualNetwork();
  const std::vector<int> one_stage(training.graph.ops().size(), 0);
  const auto found = [&](const Types& types, Reshapes reshapes, Pass StageProgram::*pass) {
    backend_.rows = {{types, {}}};
    const auto program = BuildStageProgram(training, one_stage, 0, 1, Recompute::kNone, reshapes);
    EXPECT_TRUE(program.ok()) << program.status();
    const auto rows = FusePass(training.graph, (*program).*pass, {}, backend_);
    EXPECT_TRUE(rows.ok()) << rows.status();
    Types names;
    for (const auto& [position, row] : *rows) names.push_back(training.graph.op(((*program).*pass).ops[position].op).name);
    return names;
  };
  const Types pair{"relu_grad", "batch_norm_grad"}, row{"add", "relu_grad", "batch_norm_grad"};
  EXPECT_THAT(found(pair, Reshapes::kCopies, &StageProgram::backward), ElementsAre("stem.relu.grad"));
  EXPECT_THAT(found(pair, Reshapes::kViews, &StageProgram::backward),
              ElementsAre("block2.relu.grad", "block1.relu.grad", "stem.relu.grad"));
  EXPECT_THAT(found(row, Reshapes::kViews, &StageProgram::backward), ElementsAre("stem.relu.grad.sum"));
  EXPECT_THAT(found({"batch_norm", "add", "relu"}, Reshapes::kViews, &StageProgram::forward),
              ElementsAre("block1.norm", "block2.shortcut.norm"));
}

TEST_F(FusedOpsTest, ReturnsBackEndErrors) {
  Build({{kTanh, {0}}, {kExp, {1}}});
  backend_.error = absl::UnimplementedError("no such thing");
  EXPECT_EQ(Fuse(Bound()).status(), backend_.error);
}

}  // namespace
}  // namespace fusionllm::runtime
