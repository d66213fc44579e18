#include "lib/runtime/stage_executor.h"

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/models/mlp/graph.h"
#include "lib/runtime/not_finite.h"
#include "lib/runtime/testing/small_networks.h"
#include "lib/runtime/testing/stored.h"

namespace fusionllm::runtime {
namespace {

using testing::ForEachStored;
using ::testing::HasSubstr;
using testing::MustRun;
using testing::PipelineOptions;
using testing::PipelineResult;
using testing::RunPipeline;
using testing::SmallGpt2;
using testing::SmallOptions;
using testing::Stored;
using testing::SyntheticSource;

TEST(StageExecutorTest, TrainingLowersTheLoss) {
  opdag::Graph graph = *models::BuildMlp({.layers = {12, 16, 4}});
  ASSERT_TRUE(opdag::InferTypes(graph, 4).ok());
  const autodiff::TrainingGraph training = *autodiff::Differentiate(graph);
  PipelineOptions options = SmallOptions(training, 2, "ref");
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
  opdag::Graph graph = *models::BuildMlp({.layers = layers});
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

void ExpectLossThatIsNotFiniteNamed(const autodiff::TrainingGraph& training) {
  for (const int stages : {1, 3}) {
    const PipelineOptions options =
        WithParameters(SmallOptions(training, stages, "ref"), [](const std::string& name, std::span<float> values) {
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

TEST(StageExecutorTest, ALossThatIsNotFiniteNamesItsOpTheStepAndWhereItBegins) { ExpectLossThatIsNotFiniteNamed(Mlp({4, 5, 5, 3})); }

TEST(StageExecutorTest, ALossThatIsNotFiniteInBf16NamesItsOpTheStepAndWhereItBegins) {
  ExpectLossThatIsNotFiniteNamed(testing::InBf16(Mlp({4, 5, 5, 3})));
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
    const absl::Status status = FailureOf(training, WithParameters(SmallOptions(training, stages, "ref"), scale));
    EXPECT_TRUE(IsNotFinite(status)) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::AllOf(HasSubstr("the gradient norm is"), HasSubstr("at step 1"),
                                                                HasSubstr("the gradient of parameter '"), HasSubstr("' of op '")));
  }
}

TEST(StageExecutorTest, AValueThatNoCodecCarriesNamesTheOpThatMadeIt) {
  for (const autodiff::TrainingGraph& training : {Mlp({4, 5, 3}), testing::InBf16(Mlp({4, 5, 3}))}) {
    PipelineOptions options = SmallOptions(training, 2, "ref");
    options.codecs = [](int stage) { return CompressedEdgeCodec(stage, {{{0, 1}, {.kind = compression::CodecKind::kInt8}}}); };
    const absl::Status status =
        FailureOf(training, WithParameters(options, [](const std::string&, std::span<float> values) { values[0] = NAN; }));
    EXPECT_TRUE(IsNotFinite(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(HasSubstr("op '"), HasSubstr("not fit to be sent to stage 1 at step 1, micro-batch 0")));
  }
}

// Bad input it is not (exit code 2): nothing that a user wrote makes two stages disagree.
TEST(StageExecutorTest, AMessageOfAnotherCodecIsADefectThatNamesOpAndSender) {
  PipelineOptions options = SmallOptions(Mlp({4, 5, 3}), 2, "ref");
  options.codecs = [](int stage) {
    if (stage == 1) return ExactEdgeCodec();
    return CompressedEdgeCodec(stage, {{{0, 1}, {.kind = compression::CodecKind::kInt8}}});
  };
  const absl::Status status = FailureOf(Mlp({4, 5, 3}), options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("op '"), HasSubstr("what stage 0 sent of it at step 1, micro-batch 0 is not"),
                               HasSubstr("bytes, expected")));
}

TEST(StageExecutorTest, AnErrorOfAKernelNamesItsOpOnce) {
  const autodiff::TrainingGraph training = SmallGpt2(true);
  for (const std::string backend : {"ref", "cpu"}) {
    const auto source = SyntheticSource(1, 1000);  // ids far beyond the vocabulary
    const absl::Status status = RunPipeline(training, SmallOptions(training, 1, backend), *source).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const std::string words(status.message());
    const size_t first = words.find("op '");
    ASSERT_NE(first, std::string::npos) << words;
    EXPECT_EQ(words.find("op '", first + 1), std::string::npos) << words;
  }
}

TEST(StageExecutorTest, AStepBeginsWhenTheEvaluationBeforeItHasEndedOnAllStages) {
  for (const int stages : {1, 2, 3}) {
    const autodiff::TrainingGraph training = Mlp({4, 5, 5, 3});
    PipelineOptions options = SmallOptions(training, stages, "ref");
    options.config.evaluate_every = 1;
    options.config.evaluation_batches = 1;
    options.steps = 2;
    std::mutex mutex;
    std::condition_variable changed;
    int64_t evaluated = 0, begun = 0;
    bool early = false;
    options.on_evaluation = [&](int64_t step, const EvaluationResult&) {
      std::unique_lock lock(mutex);
      // As long as a slow link would take: a first stage that does not wait goes on meanwhile.
      if (step < options.steps) changed.wait_for(lock, std::chrono::milliseconds(200), [&] { return begun > step; });
      evaluated = step;
    };
    options.on_step_begin = [&](int stage, int64_t step) {
      if (stage > 0) return;
      const std::lock_guard lock(mutex);
      begun = step;
      early = early || evaluated < step - 1;
      changed.notify_all();
    };
    const auto source = SyntheticSource(1, 3);
    const auto result = RunPipeline(training, options, *source);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(early) << stages << " stages";
    EXPECT_EQ(evaluated, options.steps);
  }
}

TEST(StageExecutorTest, AnEvaluationHasTheSameLossWhateverItsWindowIs) {
  const autodiff::TrainingGraph training = Mlp({4, 5, 5, 3});
  for (const int stages : {1, 2, 3}) {
    std::vector<double> losses;
    for (const int window : {0, 1, 2, 3, 5, 12}) {
      PipelineOptions options = SmallOptions(training, stages, "ref");
      options.config.evaluate_every = 1;
      options.config.evaluation_batches = 3;  // 12 micro-batches
      options.config.evaluation_window = window;
      options.steps = 2;
      options.on_evaluation = [&](int64_t, const EvaluationResult& result) { losses.push_back(result.loss); };
      const auto source = SyntheticSource(1, 3);
      const auto result = RunPipeline(training, options, *source);
      ASSERT_TRUE(result.ok()) << stages << " stages, window " << window << ": " << result.status();
    }
    ASSERT_EQ(losses.size(), 12u);
    for (size_t i = 2; i < losses.size(); ++i) EXPECT_EQ(losses[i], losses[i % 2]) << i;
  }
}

// The stage of the loss is held back until the others could have gone on without it.
TEST(StageExecutorTest, StagesThatEvaluateAreNoMoreThanTwoWindowsAheadOfTheLoss) {
  const autodiff::TrainingGraph training = Mlp({4, 5, 5, 3});
  PipelineOptions options = SmallOptions(training, 2, "ref");
  options.config.evaluate_every = 1;
  options.config.evaluation_batches = 10;  // 40 micro-batches
  options.config.evaluation_window = 4;
  options.steps = 1;
  for (opdag::OpId op = 0; op < training.forward_ops; ++op) {
    if (training.graph.op(op).attributes.Text("role") == "labels") options.stage_of_forward_op[static_cast<size_t>(op)] = 1;
  }
  std::mutex mutex;
  std::condition_variable changed;
  int read_ahead = 0, labels_read = 0, furthest = 0;
  class Source : public BatchSource {
   public:
    explicit Source(std::function<void(const opdag::Op&, int)> on_fill) : on_fill_(std::move(on_fill)) {}
    absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
      if (evaluation) on_fill_(placeholder, static_cast<int>(step) * 4 + micro_batch);
      return inner_->Fill(evaluation, step, micro_batch, placeholder, out);
    }
    std::function<void(const opdag::Op&, int)> on_fill_;
    std::unique_ptr<BatchSource> inner_ = SyntheticSource(3, 3);
  };
  const int of_loss = autodiff::AssignStages(training, options.stage_of_forward_op)[training.graph.value(training.graph.loss()).producer];
  ASSERT_EQ(of_loss, 1);
  Source source([&](const opdag::Op& placeholder, int micro_batch) {
    std::unique_lock lock(mutex);
    const bool labels = placeholder.attributes.Text("role") == "labels";
    if (labels) {
      labels_read = micro_batch;
      // As far as two windows let stage 0 go before this micro-batch is done.
      const int reachable = std::min(40, (micro_batch / 4 + 2) * 4);
      EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return read_ahead >= reachable; }))
          << micro_batch << " labels, read ahead " << read_ahead;
      furthest = std::max(furthest, read_ahead - micro_batch);
    } else {
      read_ahead = micro_batch + 1;
      changed.notify_all();
      // The last one whose labels were read may be done by now, and its window with it.
      EXPECT_LT(micro_batch, ((labels_read + 1) / 4 + 2) * 4);
    }
  });
  const auto result = RunPipeline(training, options, source);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(furthest, 8);
}

TEST(StageExecutorTest, EvaluationFollowsEachMultipleAndTheLastStepButNoStop) {
  const autodiff::TrainingGraph training = Mlp({4, 5, 5, 3});
  for (const int stages : {1, 2}) {
    PipelineOptions options = SmallOptions(training, stages, "ref");
    options.config.evaluate_every = 2;
    options.config.evaluation_batches = 1;
    options.steps = 5;
    std::vector<int64_t> evaluated;
    options.on_evaluation = [&](int64_t step, const EvaluationResult&) { evaluated.push_back(step); };
    const auto source = SyntheticSource(1, 3);
    ASSERT_TRUE(RunPipeline(training, options, *source).ok());
    EXPECT_THAT(evaluated, ::testing::ElementsAre(2, 4, 5)) << stages;
    evaluated.clear();
    options.decide = [](int64_t step) { return StageCallbacks::Decision{.stop = step == 3}; };
    ASSERT_TRUE(RunPipeline(training, options, *source).ok());
    EXPECT_THAT(evaluated, ::testing::ElementsAre(2)) << stages;
  }
}

TEST(StageExecutorTest, ACheckpointIsWrittenBeforeTheEvaluationThatFails) {
  const autodiff::TrainingGraph training = Mlp({4, 5, 5, 3});
  PipelineOptions options = SmallOptions(training, 2, "ref");
  options.config.evaluate_every = 10;
  options.config.evaluation_batches = 1;
  options.steps = 2;
  options.decide = [](int64_t step) { return StageCallbacks::Decision{.checkpoint = step == 2}; };
  std::vector<int64_t> written;
  options.checkpoint = [&](int, int, int64_t step) { written.push_back(step); };
  class WithoutValidation : public BatchSource {
   public:
    absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
      return evaluation ? absl::UnavailableError("the file is gone") : inner_->Fill(false, step, micro_batch, placeholder, out);
    }
    std::unique_ptr<BatchSource> inner_ = SyntheticSource(1, 3);
  } source;
  EXPECT_THAT(std::string(RunPipeline(training, options, source).status().message()), HasSubstr("the file is gone"));
  EXPECT_THAT(written, ::testing::Contains(2));
}

void ExpectResumedBitsWithErrorFeedback(const autodiff::TrainingGraph& training) {
  PipelineOptions options = SmallOptions(training, 3, "ref");
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

TEST(StageExecutorTest, WithErrorFeedbackAResumedRunHasTheBitsOfAnUndisturbedOne) { ExpectResumedBitsWithErrorFeedback(SmallGpt2(true)); }

TEST(StageExecutorTest, WithErrorFeedbackAResumedRunInBf16HasTheBitsOfAnUndisturbedOne) {
  ExpectResumedBitsWithErrorFeedback(testing::InBf16(SmallGpt2(true)));
}

TEST(StageExecutorTest, ACancelledInboxEndsTheRun) {
  const autodiff::TrainingGraph training = SmallGpt2(true);
  PipelineOptions options = SmallOptions(training, 2, "ref");
  options.steps = 1000;
  class FailsAtStep5 : public BatchSource {
   public:
    absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
      if (step == 5) return absl::DataLossError("the data ends here");
      return inner_->Fill(evaluation, step, micro_batch, placeholder, out);
    }
    std::unique_ptr<BatchSource> inner_ = SyntheticSource(3, testing::kSmallClasses);
  } source;
  const auto result = RunPipeline(training, options, source);
  EXPECT_EQ(result.status().message(), "the data ends here");
}

// An executor that holds all stages has no peer to wait for.
TEST(StageExecutorTest, AStageThatWaitsForNoMessageEndsWhenItsInboxIsCancelled) {
  const autodiff::TrainingGraph training = SmallGpt2(true);
  PipelineOptions options = SmallOptions(training, 1, "ref");
  options.steps = 1'000'000;
  int64_t last = 0;
  options.after_step = [&](int64_t step, Inbox& inbox) {
    last = step;
    if (step == 3) inbox.Cancel(absl::CancelledError("told to stop"));
  };
  const auto source = SyntheticSource(3, testing::kSmallClasses);
  EXPECT_EQ(RunPipeline(training, options, *source).status().message(), "told to stop");
  EXPECT_EQ(last, 3);
}

TEST(StageExecutorTest, ZeroTimeoutTimesOneMicroBatch) {
  const autodiff::TrainingGraph training = SmallGpt2(/*tied=*/false);
  PipelineOptions options = SmallOptions(training, 1, "ref");
  int impatient = 0, patient = 0;
  options.prepare = [&](int, StageExecutor& executor) {
    const auto count = [](int& asked) { return [&asked] { return ++asked < 0; }; };
    EXPECT_TRUE(executor.MeasureOps({.min_micro_batches = 4, .max_micro_batches = 4, .timeout_s = 0, .cancelled = count(impatient)}).ok());
    EXPECT_TRUE(executor.MeasureOps({.min_micro_batches = 4, .max_micro_batches = 4, .cancelled = count(patient)}).ok());
  };
  MustRun(training, options);
  EXPECT_EQ(patient, impatient + 3);
}

TEST(StageExecutorTest, OfTheTimesOfAnOpTheQuantileCounts) {
  const autodiff::TrainingGraph training = SmallGpt2(/*tied=*/false);
  PipelineOptions options = SmallOptions(training, 1, "ref");
  double least_s = 0, most_s = 0;
  options.prepare = [&](int, StageExecutor& executor) {
    const auto seconds = [&](double quantile) {
      double sum = 0;
      const auto times = executor.MeasureOps({.min_micro_batches = 40, .max_micro_batches = 40, .quantile = quantile, .thread_cpu = true});
      EXPECT_TRUE(times.ok());
      for (const OpTime& time : *times) sum += time.seconds;
      return sum;
    };
    least_s = seconds(kUncontendedQuantile);
    most_s = seconds(1);
  };
  MustRun(training, options);
  EXPECT_GT(least_s, 0);
  EXPECT_LT(least_s, most_s) << "the least of forty times of each op, and the most";
}

TEST(StageExecutorTest, MeasuringCanBeCancelled) {
  const autodiff::TrainingGraph training = SmallGpt2(/*tied=*/false);
  PipelineOptions options = SmallOptions(training, 1, "ref");
  int asked = 0;
  options.prepare = [&](int, StageExecutor& executor) {
    const auto times = executor.MeasureOps({.min_micro_batches = 100, .max_micro_batches = 100, .cancelled = [&] { return ++asked > 2; }});
    EXPECT_EQ(times.status().code(), absl::StatusCode::kCancelled);
  };
  MustRun(training, options);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace fusionllm::runtime
