// Losses, gradients and evaluations are means over all targets that count, however the batch, or the set, is cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/philox.h"
#include "lib/opdag/target_weights.h"
#include "lib/opdag/text.h"
#include "lib/runtime/stage_executor.h"
#include "lib/runtime/testing/local_pipeline.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

using testing::PipelineOptions;
using testing::PipelineResult;

constexpr int kSamples = 8;  // of a global batch
constexpr int kSampleTokens = 5, kVocabulary = 11;
constexpr int kCounted[kSamples] = {5, 1, 0, 0, 4, 2, 5, 0};  // targets of each sample that are not ignored

constexpr char kGraph[] = R"(graph "lm" {
  tokens = placeholder() {role="tokens", dtype="i32", shape=[b, 5]}
  next = placeholder() {role="labels", dtype="i32", shape=[b, 5]}
  embed = embedding(tokens; @wte, @wpe) {vocab=11, dim=8, positions=5}
  attn_in = linear(embed) {out=24}
  attn = attention(attn_in) {heads=2}
  sum = add(embed, attn)
  logits = linear(sum) {out=11}
  loss = cross_entropy(logits, next) {ignore_index=0}
  param @wte f32[11, 8] normal(1.0)
  param @wpe f32[5, 8] normal(1.0)
  return loss
})";

// Logits that are greatest at the token itself.
constexpr char kPerfect[] = R"(graph "echo" {
  tokens = placeholder() {role="tokens", dtype="i32", shape=[b, 5]}
  next = placeholder() {role="labels", dtype="i32", shape=[b, 5]}
  logits = embedding(tokens; @wte, @wpe) {vocab=11, dim=11, positions=5}
  loss = cross_entropy(logits, next) {ignore_index=0}
  param @wte f32[11, 11] zeros
  param @wpe f32[5, 11] zeros
  return loss
})";

// The same model with a loss that other ops make, of terms with different targets each.
const std::map<std::string, std::string> kComposites = {
    {"scaled", "ce = cross_entropy(logits, next) {ignore_index=0}\n loss = scale(ce) {factor=1.0}"},
    {"of two",
     "ce = cross_entropy(logits, next) {ignore_index=0}\n hidden = linear(embed) {out=11}\n"
     "early = cross_entropy(hidden, next) {ignore_index=3}\n part = scale(early) {factor=0.3, shift=0.1}\n loss = add(ce, part)"},
    {"with a penalty",
     "ce = cross_entropy(logits, next) {ignore_index=0}\n squares = square(attn)\n"
     "mean = reduce(squares) {kind=\"mean\", axes=[0, 1, 2]}\n part = scale(mean) {factor=0.5}\n loss = add(part, ce)"},
};

std::string Composite(const std::string& kind) {
  return absl::StrReplaceAll(kGraph, {{"loss = cross_entropy(logits, next) {ignore_index=0}", kComposites.at(kind)}});
}

autodiff::TrainingGraph TrainingOf(const std::string& text, int64_t micro_batch_size, bool weighs = true) {
  absl::StatusOr<opdag::Graph> parsed = opdag::ParseGraph(text, "test.dag");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  absl::StatusOr<opdag::Graph> graph = weighs ? opdag::AddTargetWeights(*parsed) : parsed;
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(opdag::InferTypes(*graph, micro_batch_size).ok());
  absl::StatusOr<autodiff::TrainingGraph> training = autodiff::Differentiate(*graph);
  EXPECT_TRUE(training.ok()) << training.status();
  return *std::move(training);
}

// The same samples in every step, and a set of its own for evaluations; what a sample is does not depend on how a batch is cut.
class UnevenlyPadded : public BatchSource {
 public:
  UnevenlyPadded(int64_t micro_batch_size, int64_t set_samples, bool labels_are_tokens = false)
      : size_(micro_batch_size), set_(set_samples), echo_(labels_are_tokens) {}

  std::optional<int64_t> EvaluationSamples() const override { return set_; }

  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
    const int64_t index = evaluation ? step * (kSamples / size_) + micro_batch : micro_batch;
    const std::optional<EvaluationPass> pass = evaluation ? EvaluationPassAt(set_, size_, index) : EvaluationPass{index * size_, size_};
    if (!pass.has_value()) return absl::OutOfRangeError("behind the end of the set");
    for (int64_t i = 0; i < size_; ++i) Write(pass->first + i % pass->samples, placeholder, out.as<int32_t>() + i * kSampleTokens);
    return absl::OkStatus();
  }

 private:
  void Write(int64_t sample, const opdag::Op& placeholder, int32_t* out) const {
    const bool labels = placeholder.name == "next";
    const base::CounterRng rng(5, absl::StrCat(labels && !echo_ ? "labels" : "tokens", sample));
    for (int64_t t = 0; t < kSampleTokens; ++t) {
      const bool ignored = labels && t >= kCounted[sample % kSamples];
      out[t] = ignored ? 0 : 1 + static_cast<int32_t>(rng.Below(static_cast<uint64_t>(t), kVocabulary - 1));
    }
  }

  const int64_t size_, set_;
  const bool echo_;
};

struct Cut {
  int64_t micro_batch_size;
  int stages = 1;
  std::vector<int> shares = {};  // micro-batches of each replica; empty: one replica
  schedule::PipelineSchedule schedule = schedule::k1F1B;
  std::string backend = "ref";
  bool loss_apart = false;  // the op that makes it has the last stage to itself
};

std::string Describe(const Cut& cut) {
  return absl::StrCat(cut.backend, ", micro-batches of ", cut.micro_batch_size, ", ", cut.stages, " stages, ", cut.shares.size(),
                      " replicas, ", cut.schedule.name());
}

PipelineOptions OptionsOf(const autodiff::TrainingGraph& training, const Cut& cut) {
  PipelineOptions options = testing::SmallOptions(training, cut.stages, cut.backend);
  options.config.micro_batch_size = cut.micro_batch_size;
  options.config.micro_batches = static_cast<int>(kSamples / cut.micro_batch_size);
  options.config.in_flight = options.config.micro_batches;
  options.config.schedule = cut.schedule;
  options.config.optimizer = {.kind = kernels::OptimizerConfig::Kind::kSgd, .learning_rate = 0.5};
  options.config.gradient_clip_norm = 1.0;
  options.shares = cut.shares;
  if (!cut.shares.empty()) options.config.replicas = static_cast<int>(cut.shares.size());
  options.steps = 3;
  if (cut.loss_apart) {
    std::vector<int>& stages = options.stage_of_forward_op;
    for (int& stage : stages) stage = std::min(stage, cut.stages - 2);
    stages[static_cast<size_t>(training.graph.value(training.graph.loss()).producer)] = cut.stages - 1;
  }
  return options;
}

PipelineResult RunCut(const Cut& cut, const std::string& graph = kGraph, bool weighs = true) {
  const autodiff::TrainingGraph training = TrainingOf(graph, cut.micro_batch_size, weighs);
  UnevenlyPadded source(cut.micro_batch_size, 1);
  absl::StatusOr<PipelineResult> result = testing::RunPipeline(training, OptionsOf(training, cut), source);
  EXPECT_TRUE(result.ok()) << Describe(cut) << ": " << result.status();
  return result.ok() ? *std::move(result) : PipelineResult{};
}

void ExpectNear(const PipelineResult& a, const PipelineResult& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, 1e-6 * std::abs(b.steps[i].loss)) << "step " << i + 1;
    EXPECT_NEAR(a.steps[i].gradient_norm, b.steps[i].gradient_norm, 2e-6 * b.steps[i].gradient_norm) << "step " << i + 1;
    EXPECT_DOUBLE_EQ(a.steps[i].counted, b.steps[i].counted);
  }
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (const auto& [name, bytes] : b.parameters) {
    const std::vector<std::byte>& others = a.parameters.at(name);
    for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      float x = 0, y = 0;
      std::memcpy(&x, others.data() + at, sizeof(x));
      std::memcpy(&y, bytes.data() + at, sizeof(y));
      ASSERT_NEAR(x, y, 1e-6 * std::max(1.0f, std::abs(y))) << name << " at " << at / sizeof(float);
    }
  }
}

TEST(CountedTargetsTest, LossAndGradientsOfABatchAreTheSameHoweverItIsCut) {
  for (const std::string backend : {"ref", "cpu"}) {
    const PipelineResult whole = RunCut({.micro_batch_size = kSamples, .backend = backend});
    EXPECT_DOUBLE_EQ(whole.steps[0].counted, 17.0 / 40);
    for (const int64_t size : {4, 2, 1}) {
      const auto of_all = static_cast<int>(kSamples / size);
      std::vector<Cut> cuts;
      for (const int stages : {1, 2, 4}) {
        for (const schedule::PipelineSchedule schedule : {schedule::k1F1B, schedule::kGPipe}) {
          cuts.push_back({size, stages, {}, schedule, backend});
        }
      }
      cuts.push_back({size, 2, {1, of_all - 1}, schedule::k1F1B, backend});
      if (of_all >= 4) cuts.push_back({size, 1, {1, 1, of_all - 2}, schedule::k1F1B, backend});
      for (const Cut& cut : cuts) {
        SCOPED_TRACE(Describe(cut));
        ExpectNear(RunCut(cut), whole);
      }
    }
  }
}

// A small step along the gradient lowers the loss by the rate times the squared norm, if both are of the mean over the targets that count.
TEST(CountedTargetsTest, UpdateFollowsTheGradientOfTheReportedLoss) {
  constexpr double kRate = 1e-3;
  for (const Cut& cut : {Cut{8}, Cut{2, 2}, Cut{1, 1, {3, 5}}}) {
    SCOPED_TRACE(Describe(cut));
    const autodiff::TrainingGraph training = TrainingOf(kGraph, cut.micro_batch_size);
    UnevenlyPadded source(cut.micro_batch_size, 1);
    PipelineOptions options = OptionsOf(training, cut);
    options.steps = 2;
    options.config.optimizer.learning_rate = kRate;
    options.config.gradient_clip_norm = 0;
    const absl::StatusOr<PipelineResult> result = testing::RunPipeline(training, options, source);
    ASSERT_TRUE(result.ok()) << result.status();
    const StepResult &first = result->steps[0], &second = result->steps[1];
    EXPECT_NEAR((first.loss - second.loss) / (kRate * first.gradient_norm * first.gradient_norm), 1, 0.03);
  }
}

TEST(CountedTargetsTest, LossesOfOneCutAreTheSameBitsOnAnyNumberOfStages) {
  for (const std::string backend : {"ref", "cpu"}) {
    const PipelineResult one = RunCut({.micro_batch_size = 2, .backend = backend});
    for (const int stages : {2, 4}) {
      const PipelineResult several = RunCut({.micro_batch_size = 2, .stages = stages, .backend = backend});
      EXPECT_EQ(testing::LossBits(several), testing::LossBits(one)) << stages;
      EXPECT_EQ(several.parameters, one.parameters) << stages;
    }
  }
}

// The cuts of one batch in all the ways that a plan may choose.
std::vector<Cut> CutsOfComposites(const std::string& backend) {
  return {{4, 1, {}, schedule::k1F1B, backend},          {2, 2, {}, schedule::kGPipe, backend},
          {1, 4, {}, schedule::k1F1B, backend},          {1, 3, {}, schedule::k1F1B, backend, true},
          {2, 2, {1, 3}, schedule::k1F1B, backend},      {1, 1, {1, 2, 5}, schedule::k1F1B, backend},
          {2, 2, {3, 1}, schedule::k1F1B, backend, true}};
}

TEST(CountedTargetsTest, CompositeLossAndItsGradientsAreTheSameHoweverABatchIsCut) {
  for (const std::string backend : {"ref", "cpu"}) {
    for (const auto& [kind, statements] : kComposites) {
      const std::string graph = Composite(kind);
      // Each cross_entropy has all of the batch then, and needs no weight.
      const PipelineResult whole = RunCut({.micro_batch_size = kSamples, .backend = backend}, graph, /*weighs=*/false);
      for (const Cut& cut : CutsOfComposites(backend)) {
        SCOPED_TRACE(absl::StrCat(kind, ": ", Describe(cut)));
        ExpectNear(RunCut(cut, graph), whole);
      }
    }
  }
}

TEST(CountedTargetsTest, ScaledCrossEntropyTrainsAsItDoesAlone) {
  const PipelineResult alone = RunCut({.micro_batch_size = kSamples});
  for (const int64_t size : {8, 2}) {
    const PipelineResult scaled = RunCut({.micro_batch_size = size}, Composite("scaled"));
    ExpectNear(scaled, alone);
    EXPECT_DOUBLE_EQ(scaled.steps[0].counted, 17.0 / 40);
  }
}

TEST(CountedTargetsTest, CompositeLossesOfOneCutAreTheSameBitsOnAnyNumberOfStages) {
  for (const auto& [kind, statements] : kComposites) {
    const std::string graph = Composite(kind);
    const PipelineResult one = RunCut({.micro_batch_size = 2, .backend = "cpu"}, graph);
    for (const Cut& cut :
         {Cut{2, 2, {}, schedule::k1F1B, "cpu"}, Cut{2, 4, {}, schedule::kGPipe, "cpu"}, Cut{2, 2, {}, schedule::k1F1B, "cpu", true}}) {
      SCOPED_TRACE(absl::StrCat(kind, ": ", Describe(cut)));
      const PipelineResult several = RunCut(cut, graph);
      EXPECT_EQ(testing::LossBits(several), testing::LossBits(one));
      EXPECT_EQ(several.parameters, one.parameters);
    }
  }
}

EvaluationResult Evaluated(const std::string& graph, int64_t set_samples, const Cut& cut, bool labels_are_tokens = false) {
  const autodiff::TrainingGraph training = TrainingOf(graph, cut.micro_batch_size);
  UnevenlyPadded source(cut.micro_batch_size, set_samples, labels_are_tokens);
  PipelineOptions options = OptionsOf(training, cut);
  options.steps = 1;
  options.config.optimizer.learning_rate = 0;
  options.config.evaluate_every = 1;
  options.config.evaluation_batches = 100;
  if (labels_are_tokens) {
    options.prepare = [](int, StageExecutor& stage) {
      stage.store().ForEachParameter(
          [](const std::string& name, tensor::TensorView view) {
            for (int64_t i = 0; name == "wte" && i < kVocabulary; ++i) view.f32()[i * kVocabulary + i] = 50;
          },
          /*owned_only=*/false);
    };
  }
  std::optional<EvaluationResult> evaluated;
  options.on_evaluation = [&](int64_t, const EvaluationResult& result) { evaluated = result; };
  const absl::StatusOr<PipelineResult> result = testing::RunPipeline(training, options, source);
  EXPECT_TRUE(result.ok()) << result.status();
  return evaluated.value_or(EvaluationResult{});
}

TEST(CountedTargetsTest, AnEvaluationIsTheMeanOverTheSetWhateverItsSizeAndTheCut) {
  for (const int64_t set : {1, 2, 3, 5, 7, 8, 13}) {
    const EvaluationResult whole = Evaluated(kGraph, set, {.micro_batch_size = 1});
    int64_t counted = 0;
    for (int64_t i = 0; i < set; ++i) counted += kCounted[i % kSamples];
    EXPECT_EQ(whole.samples, set);
    EXPECT_DOUBLE_EQ(whole.counted, static_cast<double>(counted) / static_cast<double>(set * kSampleTokens));
    for (const Cut& cut : {Cut{2}, Cut{4, 2}, Cut{8}, Cut{8, 4}, Cut{4, 2, {1, 1}}}) {
      SCOPED_TRACE(absl::StrCat(set, " samples, ", Describe(cut)));
      const EvaluationResult result = Evaluated(kGraph, set, cut);
      EXPECT_NEAR(result.loss, whole.loss, 1e-6 * whole.loss);
      EXPECT_NEAR(*result.accuracy, *whole.accuracy, 1e-12);
      EXPECT_EQ(result.samples, set);
      EXPECT_NEAR(result.counted, whole.counted, 1e-12);
    }
  }
}

TEST(CountedTargetsTest, EvaluationOfACompositeLossIsTheMeanOverTheSetWhateverItsSizeAndTheCut) {
  for (const auto& [kind, statements] : kComposites) {
    for (const int64_t set : {1, 3, 7, 8, 13}) {
      const EvaluationResult whole = Evaluated(Composite(kind), set, {.micro_batch_size = 1});
      EXPECT_EQ(whole.accuracy.has_value(), kind != "of two") << kind;
      for (const Cut& cut : {Cut{2}, Cut{4, 2}, Cut{8}, Cut{4, 2, {1, 1}}, Cut{2, 2, {}, schedule::k1F1B, "ref", true}}) {
        SCOPED_TRACE(absl::StrCat(kind, ", ", set, " samples, ", Describe(cut)));
        const EvaluationResult result = Evaluated(Composite(kind), set, cut);
        EXPECT_NEAR(result.loss, whole.loss, 1e-6 * whole.loss);
        EXPECT_EQ(result.accuracy.has_value(), whole.accuracy.has_value());
        EXPECT_NEAR(result.accuracy.value_or(-1), whole.accuracy.value_or(-1), 1e-12);
        EXPECT_NEAR(result.counted, whole.counted, 1e-12);
      }
    }
  }
  const EvaluationResult alone = Evaluated(kGraph, 7, {.micro_batch_size = 1});
  const EvaluationResult scaled = Evaluated(Composite("scaled"), 7, {.micro_batch_size = 4});
  EXPECT_NEAR(scaled.loss, alone.loss, 1e-6 * alone.loss);
  EXPECT_DOUBLE_EQ(*scaled.accuracy, *alone.accuracy);
}

TEST(CountedTargetsTest, AModelThatIsAlwaysRightHasAnAccuracyOfOne) {
  for (const int64_t set : {1, 3, 8, 11}) {
    for (const Cut& cut : {Cut{1}, Cut{4}, Cut{8}}) {
      EXPECT_DOUBLE_EQ(*Evaluated(kPerfect, set, cut, /*labels_are_tokens=*/true).accuracy, 1) << set << " samples, " << Describe(cut);
    }
  }
}

TEST(CountedTargetsTest, ASetWithoutATargetThatCountsHasNoAccuracy) {
  class AllIgnored : public BatchSource {
   public:
    std::optional<int64_t> EvaluationSamples() const override { return 3; }
    absl::Status Fill(bool, int64_t, int, const opdag::Op& placeholder, tensor::TensorView out) override {
      std::fill_n(out.as<int32_t>(), out.type.elements(), placeholder.name == "next" ? 0 : 1);
      return absl::OkStatus();
    }
  } source;
  const autodiff::TrainingGraph training = TrainingOf(kGraph, 2);
  PipelineOptions options = OptionsOf(training, {.micro_batch_size = 2, .stages = 2});
  options.config.evaluate_every = 1;
  options.config.evaluation_batches = 1;
  std::optional<EvaluationResult> evaluated;
  options.on_evaluation = [&](int64_t, const EvaluationResult& result) { evaluated = result; };
  const absl::StatusOr<PipelineResult> result = testing::RunPipeline(training, options, source);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const StepResult& step : result->steps) {
    EXPECT_EQ(step.loss, 0);
    EXPECT_EQ(step.counted, 0);
    EXPECT_EQ(step.gradient_norm, 0);
  }
  ASSERT_TRUE(evaluated.has_value());
  EXPECT_EQ(evaluated->loss, 0);
  EXPECT_FALSE(evaluated->accuracy.has_value());
}

TEST(EvaluationPassTest, EverySampleIsInOnePassAndFillsItAsOftenAsTheOthers) {
  for (int64_t size = 1; size <= 12; ++size) {
    for (int64_t set = 0; set <= 40; ++set) {
      int64_t next = 0, index = 0;
      for (;; ++index) {
        const std::optional<EvaluationPass> pass = EvaluationPassAt(set, size, index);
        if (!pass.has_value()) break;
        EXPECT_EQ(pass->first, next);
        ASSERT_GT(pass->samples, 0);
        EXPECT_EQ(size % pass->samples, 0);
        next += pass->samples;
      }
      EXPECT_EQ(next, set) << "micro-batches of " << size;
      EXPECT_LE(index, set / size + size);
    }
  }
}

TEST(EvaluationPassTest, AnEvaluationReadsTheSetOrItsFirstBatches) {
  EXPECT_EQ(*SamplesToEvaluate(100, std::nullopt, 4), 100);
  EXPECT_EQ(*SamplesToEvaluate(100, 8, 4), 32);
  EXPECT_EQ(*SamplesToEvaluate(3, 8, 4), 3);
  EXPECT_EQ(*SamplesToEvaluate(std::nullopt, 8, 4), 32);
  EXPECT_TRUE(absl::IsFailedPrecondition(SamplesToEvaluate(std::nullopt, std::nullopt, 4).status()));
}

}  // namespace
}  // namespace fusionllm::runtime
