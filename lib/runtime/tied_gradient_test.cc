// Gradients of parameters that several stages use: what crosses between them, and that all copies of a parameter stay the same.
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/autodiff/training_graph.h"
#include "lib/compression/spec.h"
#include "lib/kernels/testing/isolated_memory.h"
#include "lib/opdag/graph_builder.h"
#include "lib/runtime/not_finite.h"
#include "lib/runtime/stage_executor.h"
#include "lib/runtime/testing/small_networks.h"
#include "lib/runtime/testing/stored.h"

namespace fusionllm::runtime {
namespace {

using opdag::ValueId;
using ::testing::ElementsAre;
using testing::ForEachStored;
using testing::kSmallClasses;
using testing::LossBits;
using testing::MustRun;
using testing::PipelineOptions;
using testing::PipelineResult;
using testing::SmallOptions;

constexpr int64_t kTableWidth = 16, kPositions = 8;

// The head is the embedding, and behind the cut two layers are one: `turn.weight` is used twice by one stage alone.
autodiff::TrainingGraph TwiceTied() {
  opdag::GraphBuilder builder("twice_tied", 2);
  const ValueId tokens = builder.Placeholder("tokens", "tokens", "i32", {opdag::kBatch, kPositions});
  const ValueId targets = builder.Placeholder("targets", "labels", "i32", {opdag::kBatch, kPositions});
  const opdag::Attributes square{{"out", kTableWidth}, {"layout", std::string("io")}, {"bias", false}};
  const auto shared = [](std::string name) {
    return opdag::ParameterOverride{std::move(name), opdag::Initializer{opdag::Initializer::Kind::kNormal, 0.1}, {}};
  };
  ValueId x =
      builder.Add("embed", "embedding", {tokens}, {{"vocab", int64_t{kSmallClasses}}, {"dim", kTableWidth}, {"positions", kPositions}},
                  {shared("wte"), shared("wpe")});
  x = builder.Add("first", "linear", {x}, square);
  x = builder.Add("turn.0", "gelu", {builder.Add("turn.0.linear", "linear", {x}, square, {shared("turn.weight")})},
                  {{"approximate", std::string("tanh")}});
  x = builder.Add("turn.1", "linear", {x}, square, {shared("turn.weight")});
  x = builder.Add("head", "linear", {x}, {{"out", int64_t{kSmallClasses}}, {"layout", std::string("oi")}, {"bias", false}},
                  {shared("wte")});
  absl::StatusOr<opdag::Graph> graph = builder.Finish(builder.Add("loss", "cross_entropy", {x, targets}));
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(opdag::InferTypes(*graph, 2).ok());
  return *autodiff::Differentiate(*graph);
}

// Stage 0 is `embed` and `first`, so that stage 1 reports before it has stage 0's gradient of wte, but after turn.weight's are added up.
TEST(TiedGradientTest, AParameterUsedTwiceByOneStageIsReportedWhole) {
  const autodiff::TrainingGraph training = TwiceTied();
  const PipelineResult whole = MustRun(training, SmallOptions(training, 1, "ref"));
  PipelineOptions options = SmallOptions(training, 2, "ref");
  for (int op = 0; op < training.forward_ops; ++op) {
    const std::string& name = training.graph.op(op).name;
    options.stage_of_forward_op[op] = name == "tokens" || name == "targets" || name == "embed" || name == "first" ? 0 : 1;
  }
  const PipelineResult cut = MustRun(training, options);
  ASSERT_EQ(cut.steps.size(), whole.steps.size());
  for (size_t i = 0; i < whole.steps.size(); ++i) EXPECT_EQ(cut.steps[i].gradient_norm, whole.steps[i].gradient_norm) << i;
  EXPECT_EQ(LossBits(cut), LossBits(whole));
  EXPECT_EQ(cut.parameters, whole.parameters);
}

constexpr char kShared[] = "transformer.wte.weight";

PipelineOptions Compressed(const autodiff::TrainingGraph& training, int stages, const std::string& codec) {
  PipelineOptions options = SmallOptions(training, stages, "ref");
  options.steps = 12;
  options.config.tied_codecs = {{kShared, *compression::ParseCodecSpec(codec)}};
  return options;
}

// What a checkpoint holds of all stages, by stage and name.
using StoredByStage = std::map<std::pair<int, std::string>, std::vector<std::byte>>;

StoredByStage MustRunAndStore(const autodiff::TrainingGraph& training, PipelineOptions options, PipelineResult* result = nullptr) {
  StoredByStage stored;
  options.finish = [&stored](int stage, StageExecutor& executor) {
    ForEachStored(executor, [&](const std::string& name, tensor::TensorView view) {
      const auto bytes = view.bytes();
      stored[{stage, name}].assign(bytes.begin(), bytes.end());
    });
  };
  PipelineResult ran = MustRun(training, options);
  if (result != nullptr) *result = std::move(ran);
  return stored;
}

std::vector<int> StagesWith(const StoredByStage& stored, const std::string& name) {
  std::vector<int> stages;
  for (const auto& [key, bytes] : stored) {
    if (key.second == name) stages.push_back(key.first);
  }
  return stages;
}

TEST(TiedGradientTest, CopiesOfTheParameterStayTheSameUnderEveryCodec) {
  for (const autodiff::TrainingGraph& training : {testing::SmallGpt2(true), testing::InBf16(testing::SmallGpt2(true))}) {
    const PipelineResult exact = MustRun(training, Compressed(training, 2, "fp32"));
    for (const char* codec : {"bf16", "int8", "int4"}) {
      for (const int stages : {2, 4}) {
        PipelineResult result;
        const StoredByStage stored = MustRunAndStore(training, Compressed(training, stages, codec), &result);
        for (const std::string& name : {std::string(kShared), absl::StrCat(kShared, ".exp_avg"), absl::StrCat(kShared, ".exp_avg_sq")}) {
          ASSERT_THAT(StagesWith(stored, name), ElementsAre(0, stages - 1)) << name;
          EXPECT_EQ(stored.at({0, name}), stored.at({stages - 1, name})) << name << " by " << codec << " over " << stages << " stages";
        }
        EXPECT_NE(result.parameters.at(kShared), exact.parameters.at(kShared)) << codec << " lost nothing: this test says nothing";
        EXPECT_NEAR(result.steps.back().loss, exact.steps.back().loss, 0.05) << codec << " over " << stages << " stages";
      }
    }
  }
}

TEST(TiedGradientTest, AnOrderedLimitHoldsForTheirCodecsToo) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  const auto parameters_of = [&](const std::string& codec, const std::string& limit) {
    PipelineOptions options = Compressed(training, 2, codec);
    if (!limit.empty()) {
      const auto ordered = std::make_shared<CodecLimit>();
      ordered->Set(*compression::ParseCodecSpec(limit));
      options.config.codec_limit = ordered;
    }
    return MustRun(training, options).parameters;
  };
  const auto int8 = parameters_of("int8", ""), exact = parameters_of("fp32", "");
  EXPECT_NE(int8, exact) << "int8 lost nothing: this test says nothing";
  EXPECT_EQ(parameters_of("int4", "int8"), int8);
  EXPECT_EQ(parameters_of("int4", "fp32"), exact);
  EXPECT_EQ(parameters_of("int8", "topk@10:int8"), int8) << "gentler than the limit already";
}

// Stages hear of it at different steps; copies of the parameter stay the same all the same.
TEST(TiedGradientTest, SendersNeedNotFollowALimitAtTheSameStep) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = Compressed(training, 2, "int4");
  const auto ordered = std::make_shared<CodecLimit>();
  options.config.codec_limit = ordered;
  options.after_step = [ordered](int64_t step, Inbox&) {
    if (step == 4) ordered->Set({.kind = compression::CodecKind::kInt8});
  };
  const StoredByStage stored = MustRunAndStore(training, options);
  EXPECT_EQ(stored.at({0, kShared}), stored.at({1, kShared}));
  EXPECT_NE(stored, MustRunAndStore(training, Compressed(training, 2, "int4"))) << "nobody followed: this test says nothing";
}

TEST(TiedGradientTest, OnADeviceCompressedGradientsHaveTheBitsThatTheyHaveOnTheHost) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions apart = Compressed(training, 2, "int8");
  const PipelineResult on_host = MustRun(training, apart);
  apart.make_backend = [] { return kernels::testing::IsolatedMemoryBackend("ref"); };
  const PipelineResult on_device = MustRun(training, apart);
  EXPECT_EQ(LossBits(on_device), LossBits(on_host));
  EXPECT_EQ(on_device.parameters, on_host.parameters);
}

TEST(TiedGradientTest, ReplicasKeepTheSameParametersAndResiduals) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = Compressed(training, 2, "int4");
  options.config.replicas = 2;
  const PipelineResult result = MustRun(training, options);
  ASSERT_EQ(result.of_replica.size(), 2u);
  EXPECT_EQ(result.of_replica[0], result.of_replica[1]) << "a residual of its own would have parted them";
}

TEST(TiedGradientTest, ACodecOfAParameterThatOneStageUsesChangesNothing) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  EXPECT_EQ(MustRun(training, Compressed(training, 1, "int4")).parameters, MustRun(training, Compressed(training, 1, "fp32")).parameters);
}

TEST(TiedGradientTest, AResumedRunHasTheBitsOfAnUndisturbedOne) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  const PipelineResult undisturbed = MustRun(training, Compressed(training, 3, "int4"));
  PipelineOptions half = Compressed(training, 3, "int4");
  half.steps = 6;
  const StoredByStage stored = MustRunAndStore(training, half);
  EXPECT_THAT(StagesWith(stored, "residual:transformer.wte.weight@embed"), ElementsAre(0));
  EXPECT_THAT(StagesWith(stored, "residual:transformer.wte.weight@lm_head"), ElementsAre(2));
  const auto rest = [&](bool with_residuals) {
    PipelineOptions options = Compressed(training, 3, "int4");
    options.first_step = 7;
    options.prepare = [&stored, with_residuals](int stage, StageExecutor& executor) {
      ForEachStored(executor, [&](const std::string& name, tensor::TensorView view) {
        if (!with_residuals && name.starts_with("residual:")) return;
        std::memcpy(view.data, stored.at({stage, name}).data(), view.type.bytes());
      });
    };
    return MustRun(training, options).parameters;
  };
  EXPECT_EQ(rest(true), undisturbed.parameters);
  EXPECT_NE(rest(false), undisturbed.parameters) << "the residuals made no difference: this test says nothing";
}

// Its messages are then exact, so that the norm shows it as without compression.
TEST(TiedGradientTest, AGradientThatIsNotFiniteIsNamedUnderEveryCodec) {
  const autodiff::TrainingGraph training = TwiceTied();
  for (const char* codec : {"fp32", "int8", "int4"}) {
    PipelineOptions options = SmallOptions(training, 2, "ref");
    options.config.tied_codecs = {{"wte", *compression::ParseCodecSpec(codec)}};
    // What goes forward is moderate, what comes back to the embedding is above any float.
    options.prepare = [](int, StageExecutor& executor) {
      executor.store().ForEachParameter(
          [](const std::string& name, tensor::TensorView view) {
            const float scale = name.starts_with("first") ? 1e-37f : name.starts_with("turn") ? 1e20f : 0.1f;
            for (int64_t i = 0; i < view.type.elements(); ++i) view.f32()[i] = scale * static_cast<float>(1 + i / kTableWidth % 7);
          },
          /*owned_only=*/false);
    };
    const auto source = testing::SyntheticSource(1, kSmallClasses);
    const absl::Status status = RunPipeline(training, options, *source).status();
    EXPECT_TRUE(IsNotFinite(status)) << codec << ": " << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("the gradient norm is")) << codec;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("at step 1")) << codec;
  }
}

}  // namespace
}  // namespace fusionllm::runtime
