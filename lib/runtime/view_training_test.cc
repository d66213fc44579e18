// Reshapes that are views against the same reshapes as copies: not a bit of a training may differ.
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/autodiff/gradient_rule.h"
#include "lib/kernels/backend.h"
#include "lib/opdag/testing/random_graph.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

using testing::PipelineOptions;
using testing::PipelineResult;

autodiff::TrainingGraph RandomTraining(uint64_t seed, bool bf16) {
  opdag::Graph graph = opdag::testing::RandomGraph({.seed = seed, .ops = 18, .layers = true});
  EXPECT_TRUE(opdag::InferTypes(graph, 2).ok());
  autodiff::TrainingGraph training = *autodiff::Differentiate(graph);
  return bf16 ? testing::InBf16(std::move(training)) : training;
}

// Both ways; what came out of views.
PipelineResult ExpectSameBits(const autodiff::TrainingGraph& training, PipelineOptions options) {
  const auto source = testing::SyntheticSource(11, opdag::testing::kRandomGraphVocabulary);
  options.config.reshapes = Reshapes::kCopies;
  const auto copies = testing::RunPipeline(training, options, *source);
  options.config.reshapes = Reshapes::kViews;
  auto views = testing::RunPipeline(training, options, *source);
  EXPECT_TRUE(copies.ok()) << copies.status();
  EXPECT_TRUE(views.ok()) << views.status();
  if (!copies.ok() || !views.ok()) return {};
  EXPECT_EQ(testing::LossBits(*views), testing::LossBits(*copies));
  for (size_t i = 0; i < views->steps.size(); ++i) EXPECT_EQ(views->steps[i].gradient_norm, copies->steps[i].gradient_norm);
  EXPECT_EQ(views->parameters, copies->parameters);
  return *std::move(views);
}

class ViewTrainingTest : public ::testing::TestWithParam<std::tuple<absl::string_view, bool>> {};

// Stages, schedule, depth and recomputation by turns.
TEST_P(ViewTrainingTest, ViewsDoNotChangeABitOfRandomGraphs) {
  const auto& [backend, bf16] = GetParam();
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const autodiff::TrainingGraph training = RandomTraining(seed, bf16);
    PipelineOptions options = testing::SmallOptions(training, 1 + static_cast<int>(seed % 3), std::string(backend));
    options.config.recompute = seed % 2 == 0 ? Recompute::kFull : Recompute::kNone;
    options.config.schedule = seed % 4 < 2 ? schedule::k1F1B : schedule::kGPipe;
    if (options.config.schedule == schedule::k1F1B) options.config.in_flight = 1 + static_cast<int>(seed % 3);
    options.config.evaluate_every = 2;
    options.config.evaluation_batches = 1;
    const PipelineResult result = ExpectSameBits(training, options);
    ASSERT_EQ(result.steps.size(), 3u);
    EXPECT_GT(result.steps[0].gradient_norm, 0);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(BackEnds, ViewTrainingTest, ::testing::Combine(::testing::ValuesIn(kernels::BackendNames()), ::testing::Bool()),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), std::get<1>(info.param) ? "_bf16" : "_fp32");
                         });

// No rule makes such an op; one that does has its copy as before.
TEST(ViewTrainingOfParametersTest, AReshapedGradientOfAParameterIsStillGiven) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  autodiff::TrainingGraph reshaped = training;
  for (autodiff::ParameterUse& use : reshaped.uses) {
    opdag::Op op;
    op.name = absl::StrCat("reshaped", use.gradient);
    op.kind = opdag::OpKind::kReshape;
    op.inputs = {use.gradient};
    op.attributes = {{"shape", reshaped.graph.value(use.gradient).type.shape.dims()}};
    op.forward_op = use.op;
    const auto id = autodiff::AppendTyped(reshaped.graph, op);
    ASSERT_TRUE(id.ok()) << id.status();
    use.gradient = reshaped.graph.op(*id).outputs[0];
    reshaped.differentiates.push_back(opdag::kNone);
    reshaped.gradient_of.push_back(opdag::kNone);
  }
  PipelineOptions options = testing::SmallOptions(training, 1, "ref");
  options.config.micro_batches = options.config.in_flight = 1;  // a copy is not added up
  EXPECT_EQ(testing::MustRun(reshaped, options).parameters, testing::MustRun(training, options).parameters);
}

}  // namespace
}  // namespace fusionllm::runtime
