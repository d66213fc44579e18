#include "lib/runtime/graph_capture.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

// Records by keeping the function; counts what it was asked for.
class KeepingBackend : public kernels::Backend {
 public:
  absl::string_view name() const override { return "keeping"; }
  std::string Describe() const override { return "keeping"; }
  bool Supports(opdag::OpKind) const override { return false; }
  absl::StatusOr<std::unique_ptr<kernels::Kernel>> Prepare(const opdag::Graph&, const opdag::Op&) override {
    return absl::UnimplementedError("none");
  }
  absl::StatusOr<std::unique_ptr<kernels::CapturedGraph>> CaptureGraph(absl::FunctionRef<absl::Status()> run) override {
    ++records;
    if (refuses) return absl::UnimplementedError("not this one");
    class Counting : public kernels::CapturedGraph {
     public:
      explicit Counting(int& replays) : replays_(replays) {}
      absl::Status Replay() override {
        ++replays_;
        return absl::OkStatus();
      }

     private:
      int& replays_;
    };
    if (const absl::Status status = run(); !status.ok()) return status;
    return std::make_unique<Counting>(replays);
  }
  bool refuses = false;
  int records = 0, replays = 0;
};

TEST(GraphCaptureCacheTest, RunsFirstThenRecordsOnceForEachKeyAndReplays) {
  KeepingBackend backend;
  GraphCaptureCache captures;
  const Pass pass;
  int runs = 0;
  const auto run = [&] {
    ++runs;
    return absl::OkStatus();
  };
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(captures.Run({.pass = &pass, .slot = 0, .accumulate = false, .begin = 0}, backend, run).ok());
  EXPECT_EQ(runs, 2) << "once as it is, once to be recorded";
  EXPECT_EQ(backend.records, 1);
  EXPECT_EQ(backend.replays, 3);
  EXPECT_EQ(captures.replays(), 3);
  // Another slot has other addresses; the first micro-batch of a step adds nothing up.
  for (const GraphCaptureCache::Key& key : {GraphCaptureCache::Key{&pass, 1, false, 0}, {&pass, 0, true, 0}, {&pass, 0, false, 7}}) {
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(captures.Run(key, backend, run).ok());
  }
  EXPECT_EQ(backend.records, 4);
}

TEST(GraphCaptureCacheTest, WhatCannotBeRecordedIsRunAsItIs) {
  KeepingBackend backend;
  backend.refuses = true;
  GraphCaptureCache captures;
  const Pass pass;
  int runs = 0;
  const auto run = [&] {
    ++runs;
    return absl::OkStatus();
  };
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(captures.Run({.pass = &pass}, backend, run).ok());
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(backend.records, 1) << "asked again and again";
  EXPECT_EQ(captures.replays(), 0);
}

TEST(GraphCaptureCacheTest, ReturnsErrorsOfCapturedRun) {
  KeepingBackend backend;
  GraphCaptureCache captures;
  const Pass pass;
  ASSERT_TRUE(captures.Run({.pass = &pass}, backend, [] { return absl::OkStatus(); }).ok());
  const absl::Status status = captures.Run({.pass = &pass}, backend, [] { return absl::InternalError("op 'x' failed"); });
  EXPECT_EQ(status.message(), "op 'x' failed");
}

struct StageOf {
  explicit StageOf(const autodiff::TrainingGraph& training, int stages, int stage)
      : program(*BuildStageProgram(training, autodiff::AssignStages(training, testing::ContiguousStages(training, stages)), stage, stages,
                                   Recompute::kNone)),
        backend(*kernels::CreateBackend("ref", {})),
        kernels(training.graph.ops().size()) {
    for (size_t id = 0; id < kernels.size(); ++id) {
      const opdag::Op& op = training.graph.op(static_cast<opdag::OpId>(id));
      if (op.kind != opdag::OpKind::kPlaceholder) kernels[id] = *backend->Prepare(training.graph, op);
    }
  }
  StageProgram program;
  std::unique_ptr<kernels::Backend> backend;
  std::vector<std::unique_ptr<kernels::Kernel>> kernels;
};

TEST(CaptureRegionsTest, CoverThePassInOrderAndEndWhereSomethingLeavesOrTheHostFillsIn) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  for (const int stage : {0, 1, 2}) {
    const StageOf s(training, 3, stage);
    for (const Pass* pass : {&s.program.forward, &s.program.backward, &s.program.evaluate}) {
      size_t next = 0;
      for (const CaptureRegion& segment : CaptureRegionsOf(*pass, kernels::Mode::kTrain, training.graph, s.kernels)) {
        ASSERT_EQ(segment.begin, next);
        ASSERT_LT(segment.begin, segment.end);
        next = segment.end;
        for (size_t i = segment.begin; i < segment.end; ++i) {
          EXPECT_TRUE(i + 1 == segment.end || pass->ops[i].sends.empty());
          EXPECT_EQ(segment.is_replayable, training.graph.op(pass->ops[i].op).kind != opdag::OpKind::kPlaceholder);
        }
      }
      EXPECT_EQ(next, pass->ops.size());
    }
  }
}

TEST(CaptureRegionsTest, ViewsEndNoStretchAndAreNoRuns) {
  const autodiff::TrainingGraph training = testing::SmallResidualNetwork();
  StageOf s(training, 1, 0);
  std::vector<ProgramOp> runs, views;
  for (const ProgramOp& op : s.program.backward.ops) {
    (op.view ? views : runs).push_back(op);
    if (op.view) s.kernels[op.op] = nullptr;
  }
  ASSERT_FALSE(views.empty());
  const auto segments = CaptureRegionsOf(s.program.backward, kernels::Mode::kTrain, training.graph, s.kernels);
  size_t counted = 0, stretches = 1;
  for (const CaptureRegion& segment : segments) counted += segment.runs;
  EXPECT_EQ(counted, runs.size());
  const auto is_apart = [&](const ProgramOp& op) {
    return s.kernels[op.op] == nullptr || s.kernels[op.op]->IsRandom(kernels::Mode::kTrain);
  };
  for (size_t i = 1; i < runs.size(); ++i) stretches += is_apart(runs[i]) || is_apart(runs[i - 1]);
  EXPECT_EQ(segments.size(), stretches) << "as if there were none";

  Pass alone;
  alone.ops = {views[0], views[0]};
  const auto of_views = CaptureRegionsOf(alone, kernels::Mode::kTrain, training.graph, s.kernels);
  ASSERT_EQ(of_views.size(), 1u);
  EXPECT_EQ(of_views[0].end, 2u);
  EXPECT_EQ(of_views[0].runs, 0u) << "nothing to record";
}

}  // namespace
}  // namespace fusionllm::runtime
