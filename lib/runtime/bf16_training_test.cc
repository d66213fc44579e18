// Training in bf16 beside the same training in fp32: how far apart the losses are, and that one goes on where the other ended.
#include <cmath>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "lib/kernels/backend.h"
#include "lib/runtime/stage_executor.h"
#include "lib/runtime/testing/small_networks.h"
#include "lib/runtime/testing/stored.h"

namespace fusionllm::runtime {
namespace {

using testing::ForEachStored;
using testing::InBf16;
using testing::MustRun;
using testing::PipelineOptions;
using testing::PipelineResult;
using testing::SmallOptions;
using testing::Stored;

// The same batch at every step.
class OneBatch : public BatchSource {
 public:
  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
    return inner_->Fill(evaluation, 1, micro_batch, placeholder, out);
  }

 private:
  const std::unique_ptr<BatchSource> inner_ = testing::SyntheticSource(3, testing::kSmallClasses);
};

class Bf16TrainingTest : public ::testing::TestWithParam<absl::string_view> {};  // the back end

// The most that the two losses of a step may be apart, as a share of the first loss. Over these thirty steps, in which losses fall to a
// quarter and a ninth of it, 0.011 was measured with GPT-2 and 0.008 with the residual network.
constexpr double kMaxLossDifference = 0.02;

TEST_P(Bf16TrainingTest, TheLossFallsAsInFp32) {
  constexpr int kSteps = 30;
  const std::pair<std::string, autodiff::TrainingGraph> networks[] = {{"gpt2", testing::SmallGpt2(true)},
                                                                      {"residual", testing::SmallResidualNetwork()}};
  for (const auto& [name, training] : networks) {
    SCOPED_TRACE(name);
    OneBatch source;
    PipelineOptions options = SmallOptions(training, 2, std::string(GetParam()));
    options.steps = kSteps;
    options.config.gradient_clip_norm = 0;
    const auto in_fp32 = testing::RunPipeline(training, options, source);
    const auto in_bf16 = testing::RunPipeline(InBf16(training), options, source);
    ASSERT_TRUE(in_fp32.ok()) << in_fp32.status();
    ASSERT_TRUE(in_bf16.ok()) << in_bf16.status();
    EXPECT_LT(in_bf16->steps.back().loss, 0.7 * in_bf16->steps.front().loss);
    for (int i = 0; i < kSteps; ++i) {
      const double wide = in_fp32->steps[i].loss, narrow = in_bf16->steps[i].loss;
      EXPECT_NE(wide, narrow) << "step " << i + 1 << ": was it computed in bf16?";
      EXPECT_LT(std::abs(narrow - wide), kMaxLossDifference * in_fp32->steps.front().loss) << "step " << i + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BackEnds, Bf16TrainingTest, ::testing::ValuesIn(kernels::BackendNames()),
                         [](const auto& info) { return std::string(info.param); });

TEST(PrecisionTest, ATrainingGoesOnInTheOtherPrecisionFromTheSameParametersAndState) {
  const autodiff::TrainingGraph in_fp32 = testing::SmallGpt2(true), in_bf16 = InBf16(in_fp32);
  for (const bool to_bf16 : {true, false}) {
    const autodiff::TrainingGraph &before = to_bf16 ? in_fp32 : in_bf16, &after = to_bf16 ? in_bf16 : in_fp32;
    PipelineOptions options = SmallOptions(before, 2, "cpu");
    options.steps = 6;
    const PipelineResult undisturbed = MustRun(before, options);

    Stored stored;
    PipelineOptions first = options;
    first.steps = 3;
    first.finish = [&stored](int, StageExecutor& executor) {
      ForEachStored(executor, [&](const std::string& name, tensor::TensorView view) {
        EXPECT_NE(view.type.dtype, tensor::DType::kBF16) << name;
        const auto bytes = view.bytes();
        stored[name].assign(bytes.begin(), bytes.end());
      });
    };
    MustRun(before, first);
    PipelineOptions second = options;
    second.first_step = 4;
    second.prepare = [&stored](int, StageExecutor& executor) {
      ForEachStored(executor, [&](const std::string& name, tensor::TensorView view) {
        ASSERT_EQ(stored.at(name).size(), view.type.bytes()) << name;
        std::memcpy(view.data, stored.at(name).data(), view.type.bytes());
      });
    };
    const PipelineResult resumed = MustRun(after, second);
    ASSERT_EQ(resumed.steps.size(), 3u);
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(resumed.steps[i].loss, undisturbed.steps[i + 3].loss, 0.01) << "step " << i + 4;
  }
}

TEST(PrecisionTest, CompressedLinksCarryBf16WithTheBitsOfPlainOnesAndHalfTheBytes) {
  const autodiff::TrainingGraph in_fp32 = testing::SmallGpt2(true), in_bf16 = InBf16(in_fp32);
  const auto sent = [](const autodiff::TrainingGraph& training, EdgeCodecPtr (*codec)(int stage), PipelineResult* result) {
    PipelineOptions options = SmallOptions(training, 3, "cpu");
    options.codecs = codec;
    int64_t bytes = 0;
    options.finish = [&bytes](int stage, StageExecutor& executor) {
      for (const int64_t to : executor.sent_bytes()) bytes += to;
    };
    *result = MustRun(training, options);
    return bytes;
  };
  constexpr auto kPlain = [](int) { return ExactEdgeCodec(); };
  constexpr auto kCompressed = [](int stage) { return CompressedEdgeCodec(stage, {}); };
  PipelineResult wide, plain, compressed;
  const int64_t wide_bytes = sent(in_fp32, kPlain, &wide), plain_bytes = sent(in_bf16, kPlain, &plain);
  const int64_t compressed_bytes = sent(in_bf16, kCompressed, &compressed);
  EXPECT_EQ(testing::LossBits(plain), testing::LossBits(compressed));
  EXPECT_EQ(plain.parameters, compressed.parameters);
  EXPECT_NE(testing::LossBits(plain), testing::LossBits(wide));
  EXPECT_LT(static_cast<double>(plain_bytes), 0.56 * static_cast<double>(wide_bytes)) << "the labels are no floats";
  EXPECT_LT(static_cast<double>(compressed_bytes), 0.6 * static_cast<double>(wide_bytes)) << "headers of small tensors";
}

TEST(PrecisionTest, LossyCodecsTrainInBf16) {
  const autodiff::TrainingGraph training = InBf16(testing::SmallGpt2(true));
  for (const char* name : {"fp16", "int8", "topk@3:int8+ef"}) {
    SCOPED_TRACE(name);
    const compression::CodecSpec spec = *compression::ParseCodecSpec(name);
    OneBatch source;
    PipelineOptions options = SmallOptions(training, 3, "cpu");
    options.steps = 20;
    options.codecs = [spec](int stage) { return CompressedEdgeCodec(stage, {{{0, 1}, spec}, {{1, 2}, spec}, {{0, 2}, spec}}); };
    const auto result = testing::RunPipeline(training, options, source);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_LT(result->steps.back().loss, 0.9 * result->steps.front().loss);
  }
}

}  // namespace
}  // namespace fusionllm::runtime
