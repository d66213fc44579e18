#include "lib/runtime/stage_executor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/opdag/models/gpt2.h"
#include "lib/opdag/models/mlp.h"
#include "lib/runtime/not_finite.h"
#include "lib/runtime/testing/local_pipeline.h"

namespace fusionllm::runtime {
namespace {

using testing::ContiguousStages;
using ::testing::HasSubstr;
using testing::PipelineOptions;
using testing::PipelineResult;
using testing::RunPipeline;
using testing::SyntheticSource;

constexpr int kVocabulary = 17;
constexpr int kMicroBatches = 4;

autodiff::TrainingGraph SmallGpt2(bool tied) {
  opdag::Graph graph =
      *opdag::BuildGpt2({.layers = 2, .heads = 2, .embd = 16, .vocab = kVocabulary, .positions = 8, .sequence = 8, .tied = tied});
  EXPECT_TRUE(opdag::InferTypes(graph, 2).ok());
  return *autodiff::Differentiate(graph);
}

PipelineOptions Options(const autodiff::TrainingGraph& training, int stages, const std::string& backend) {
  PipelineOptions options{.stage_of_forward_op = ContiguousStages(training, stages), .stages = stages, .backend = backend};
  options.config.micro_batches = kMicroBatches;
  options.config.in_flight = kMicroBatches;
  options.config.optimizer.learning_rate = 1e-2;
  options.config.optimizer.weight_decay = 0.1;
  options.config.gradient_clip_norm = 0.5;
  options.config.micro_batch_size = 2;
  return options;
}

std::vector<uint32_t> LossBits(const PipelineResult& result) {
  std::vector<uint32_t> bits;
  for (const StepResult& step : result.steps) bits.push_back(std::bit_cast<uint32_t>(step.loss));
  return bits;
}

PipelineResult MustRun(const autodiff::TrainingGraph& training, const PipelineOptions& options) {
  const auto source = SyntheticSource(7, kVocabulary);
  absl::StatusOr<PipelineResult> result = RunPipeline(training, options, *source);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : PipelineResult{};
}

class StagesAreBitEqual : public ::testing::TestWithParam<std::string> {};

TEST_P(StagesAreBitEqual, ForGpt2WithTiedAndFreeHead) {
  for (const bool tied : {true, false}) {
    const autodiff::TrainingGraph training = SmallGpt2(tied);
    const PipelineResult whole = MustRun(training, Options(training, 1, GetParam()));
    ASSERT_EQ(whole.steps.size(), 3u);
    EXPECT_LT(whole.steps[2].loss, whole.steps[0].loss + 1);
    EXPECT_GT(whole.steps[0].gradient_norm, 0);
    for (const int stages : {2, 4, 6}) {
      const PipelineResult cut = MustRun(training, Options(training, stages, GetParam()));
      EXPECT_EQ(LossBits(cut), LossBits(whole)) << stages << " stages, tied " << tied;
      EXPECT_EQ(cut.parameters, whole.parameters) << stages << " stages, tied " << tied;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, StagesAreBitEqual, ::testing::Values("ref"));

TEST(StageExecutorTest, ScheduleAndDepthDoNotChangeABit) {
  const autodiff::TrainingGraph training = SmallGpt2(true);
  const PipelineResult expected = MustRun(training, Options(training, 3, "ref"));
  for (const int in_flight : {1, 2, 3}) {
    PipelineOptions options = Options(training, 3, "ref");
    options.config.in_flight = in_flight;
    EXPECT_EQ(MustRun(training, options).parameters, expected.parameters) << in_flight << " in flight";
  }
  PipelineOptions gpipe = Options(training, 3, "ref");
  gpipe.config.schedule = PipelineSchedule::kGPipe;
  EXPECT_EQ(MustRun(training, gpipe).parameters, expected.parameters);
}

TEST(StageExecutorTest, RecomputationDoesNotChangeABitAndKeepsLess) {
  const autodiff::TrainingGraph training = SmallGpt2(true);
  const PipelineResult expected = MustRun(training, Options(training, 2, "ref"));
  PipelineOptions options = Options(training, 2, "ref");
  options.config.recompute = Recompute::kFull;
  EXPECT_EQ(MustRun(training, options).parameters, expected.parameters);
  const std::vector<int> placement = autodiff::Place(training, options.stage_of_forward_op);
  const auto kept = BuildStageProgram(training, placement, 0, 2, Recompute::kNone);
  const auto made_again = BuildStageProgram(training, placement, 0, 2, Recompute::kFull);
  ASSERT_TRUE(kept.ok() && made_again.ok());
  EXPECT_LT(made_again->stash_bytes_per_slot, kept->stash_bytes_per_slot / 4);
}

TEST(StageExecutorTest, TrainingLowersTheLoss) {
  opdag::Graph graph = *opdag::BuildMlp({.layers = {12, 16, 4}});
  ASSERT_TRUE(opdag::InferTypes(graph, 4).ok());
  const autodiff::TrainingGraph training = *autodiff::Differentiate(graph);
  PipelineOptions options = Options(training, 2, "ref");
  options.steps = 30;
  options.config.gradient_clip_norm = 0;

  // The same batch again and again: a network that learns must come close to it.
  class OneBatch : public BatchSource {
   public:
    absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
      return inner_->Fill(evaluation, 1, micro_batch, placeholder, out);
    }
    std::unique_ptr<BatchSource> inner_ = SyntheticSource(3, 4);
  } source;
  const auto result = RunPipeline(training, options, source);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(result->steps.back().loss, 0.7 * result->steps.front().loss);
}

autodiff::TrainingGraph Mlp(const std::vector<int64_t>& layers) {
  opdag::Graph graph = *opdag::BuildMlp({.layers = layers});
  EXPECT_TRUE(opdag::InferTypes(graph, 2).ok());
  return *autodiff::Differentiate(graph);
}

// Fills each parameter, by its name, before the first step.
PipelineOptions WithParameters(PipelineOptions options, std::function<void(const std::string&, std::span<float>)> fill) {
  options.prepare = [fill = std::move(fill)](int, StageExecutor& executor) {
    executor.store().ForEachParameter(
        [&](const std::string& name, tensor::TensorView view) {
          fill(name, {view.f32(), static_cast<size_t>(view.type.elements())});
        },
        /*owned_only=*/true);
  };
  return options;
}

absl::Status FailureOf(const autodiff::TrainingGraph& training, const PipelineOptions& options) {
  const auto source = SyntheticSource(1, 3);
  return RunPipeline(training, options, *source).status();
}

TEST(StageExecutorTest, ALossThatIsNotFiniteNamesItsOpTheStepAndWhereItBegins) {
  const autodiff::TrainingGraph training = Mlp({4, 5, 5, 3});
  for (const int stages : {1, 3}) {
    const PipelineOptions options = WithParameters(Options(training, stages, "ref"), [](const std::string& name, std::span<float> values) {
      if (name.starts_with("layers.0")) values[0] = NAN;
    });
    const absl::Status status = FailureOf(training, options);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_TRUE(IsNotFinite(status));
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(HasSubstr("the loss of op 'loss' is nan at step 1, micro-batch 0"), HasSubstr("it begins at op '")));
    if (stages > 1) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("of stage 1, whose output came in not finite"));
    }
  }
}

TEST(StageExecutorTest, AGradientThatOverflowsUnderAFiniteLossNamesParameterAndOp) {
  const autodiff::TrainingGraph training = Mlp({12, 16, 16, 3});
  // Small, large, large: what comes forward is moderate, what comes back to the first layer is above any float.
  const auto scale = [](const std::string& name, std::span<float> values) {
    const bool bias = name.ends_with("bias");
    const bool first = name.starts_with("layers.0");
    for (float& x : values) x = bias ? 0 : first ? 1e-37f : 1e20f;
  };
  for (const int stages : {1, 2, 3}) {
    const absl::Status status = FailureOf(training, WithParameters(Options(training, stages, "ref"), scale));
    EXPECT_TRUE(IsNotFinite(status)) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::AllOf(HasSubstr("the gradient norm is"), HasSubstr("at step 1"),
                                                                HasSubstr("the gradient of parameter '"), HasSubstr("' of op '")));
  }
}

TEST(StageExecutorTest, AValueThatNoCodecCarriesNamesTheOpThatMadeIt) {
  const autodiff::TrainingGraph training = Mlp({4, 5, 3});
  PipelineOptions options = Options(training, 2, "ref");
  options.codecs = [](int stage) { return CompressedEdgeCodec(stage, {{{0, 1}, {.kind = compression::CodecKind::kInt8}}}); };
  const absl::Status status =
      FailureOf(training, WithParameters(options, [](const std::string&, std::span<float> values) { values[0] = NAN; }));
  EXPECT_TRUE(IsNotFinite(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("op '"), HasSubstr("not fit to be sent to stage 1 at step 1, micro-batch 0")));
}

// What a checkpoint holds, by name.
using Stored = std::map<std::string, std::vector<std::byte>>;

void ForEachStored(StageExecutor& executor, const std::function<void(const std::string&, tensor::TensorView)>& visit) {
  executor.store().ForEachParameter(visit, /*owned_only=*/false);
  executor.store().ForEachState(visit, /*owned_only=*/false);
  for (const std::string& name : executor.residual_names()) visit(name, executor.residual(name));
}

TEST(StageExecutorTest, WithErrorFeedbackAResumedRunHasTheBitsOfAnUndisturbedOne) {
  const autodiff::TrainingGraph training = SmallGpt2(true);
  PipelineOptions options = Options(training, 3, "ref");
  options.config.evaluate_every = 2;
  options.config.evaluation_batches = 1;
  options.steps = 6;
  options.codecs = [](int stage) {
    const compression::CodecSpec int4{.kind = compression::CodecKind::kInt4, .error_feedback = true};
    compression::CodecSpec top_k = compression::TopK(5);
    top_k.error_feedback = true;
    return CompressedEdgeCodec(stage, {{{0, 1}, int4}, {{1, 2}, top_k}, {{0, 2}, int4}});
  };
  const PipelineResult undisturbed = MustRun(training, options);

  Stored stored;
  PipelineOptions first_half = options;
  first_half.steps = 3;
  first_half.finish = [&stored](int, StageExecutor& executor) {
    ForEachStored(executor, [&](const std::string& name, tensor::TensorView view) {
      const auto bytes = view.bytes();
      stored[name].assign(bytes.begin(), bytes.end());
    });
  };
  MustRun(training, first_half);
  const auto is_residual = [](const auto& entry) { return entry.first.starts_with("residual:"); };
  EXPECT_GE(std::count_if(stored.begin(), stored.end(), is_residual), 2);
  EXPECT_TRUE(stored.contains("residual:block.0.attn.add:0->block.0.mlp.add:2x8x16")) << "names:" << ::testing::PrintToString([&] {
    std::vector<std::string> names;
    for (const auto& entry : stored) {
      if (is_residual(entry)) names.push_back(entry.first);
    }
    return names;
  }());

  PipelineOptions second_half = options;
  second_half.first_step = 4;
  const auto restore = [&stored](bool with_residuals) {
    return [&stored, with_residuals](int, StageExecutor& executor) {
      ForEachStored(executor, [&](const std::string& name, tensor::TensorView view) {
        if (!with_residuals && name.starts_with("residual:")) return;
        std::memcpy(view.data, stored.at(name).data(), view.type.bytes());
      });
    };
  };
  second_half.prepare = restore(true);
  EXPECT_EQ(MustRun(training, second_half).parameters, undisturbed.parameters);
  second_half.prepare = restore(false);
  EXPECT_NE(MustRun(training, second_half).parameters, undisturbed.parameters)
      << "the residuals made no difference: this test says nothing";
}

TEST(StageExecutorTest, ACancelledInboxEndsTheRun) {
  const autodiff::TrainingGraph training = SmallGpt2(true);
  PipelineOptions options = Options(training, 2, "ref");
  options.steps = 1000;
  class FailsAtStep5 : public BatchSource {
   public:
    absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
      if (step == 5) return absl::DataLossError("the data ends here");
      return inner_->Fill(evaluation, step, micro_batch, placeholder, out);
    }
    std::unique_ptr<BatchSource> inner_ = SyntheticSource(3, kVocabulary);
  } source;
  const auto result = RunPipeline(training, options, source);
  EXPECT_EQ(result.status().message(), "the data ends here");
}

TEST(StageExecutor, MeasuringTimesEveryOpAndLeavesParametersAlone) {
  const autodiff::TrainingGraph training = SmallGpt2(/*tied=*/true);
  PipelineOptions options = Options(training, 2, "ref");
  std::vector<std::set<opdag::OpId>> timed(2);
  const auto measure_first = [&](int stage, StageExecutor& executor) {
    const auto times = executor.MeasureOps({.least = 2, .most = 2});
    ASSERT_TRUE(times.ok()) << times.status();
    opdag::OpId before = opdag::kNone;
    for (const OpTime& time : *times) {
      EXPECT_GT(time.op, before) << "ascending, each once";
      EXPECT_GE(time.seconds, 0);
      EXPECT_LT(time.seconds, 10);
      timed[stage].insert(before = time.op);
    }
  };
  const PipelineResult plain = MustRun(training, options);
  options.prepare = measure_first;
  const PipelineResult measured = MustRun(training, options);
  EXPECT_EQ(LossBits(plain), LossBits(measured));
  EXPECT_EQ(plain.parameters, measured.parameters);
  EXPECT_EQ(timed[0].size() + timed[1].size(), training.graph.ops().size());
}

TEST(StageExecutor, MeasuringCanBeCancelled) {
  const autodiff::TrainingGraph training = SmallGpt2(/*tied=*/false);
  PipelineOptions options = Options(training, 1, "ref");
  int asked = 0;
  options.prepare = [&](int, StageExecutor& executor) {
    const auto times = executor.MeasureOps({.least = 100, .most = 100, .cancelled = [&] { return ++asked > 2; }});
    EXPECT_EQ(times.status().code(), absl::StatusCode::kCancelled);
  };
  MustRun(training, options);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace fusionllm::runtime
