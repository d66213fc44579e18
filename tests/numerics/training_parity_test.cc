// Ten optimizer steps of small models against PyTorch's, from the same weights on the same data (golden/make_training_goldens.py).
//
// Losses within 1e-4 relative, every parameter within 1e-4 of its norm, and within a hundredth of the way it moved where it moved at all,
// so that a wrong update cannot hide behind a large weight. The goldens record how far PyTorch's fp32 is from its own fp64: well below.
// The run of a padded batch, whose samples have unlike numbers of targets that count, is held to 1e-6 however it is cut: PyTorch takes the
// batch as a whole.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/resnet/graph.h"
#include "lib/opdag/target_weights.h"
#include "lib/opdag/text.h"
#include "lib/runtime/testing/local_pipeline.h"
#include "nlohmann/json.hpp"
#include "tests/numerics/formula.h"

namespace fusionllm::numerics {
namespace {

using Json = nlohmann::json;

constexpr double kTolerance = 1e-4;
constexpr double kShareOfMovement = 1e-2;
// The sizes of make_training_goldens.py.
constexpr int kMicroBatches = 2;
constexpr int kVocabulary = 61, kClasses = 10;
constexpr int kSequence = 24, kLanguageSamples = 4;
constexpr int kImageSize = 16, kImageSamples = 8;
constexpr int kPaddedVocabulary = 13, kPaddedSamples = 2, kPaddedMicroBatches = 4;
constexpr int kPaddedCounted[kPaddedSamples * kPaddedMicroBatches] = {6, 1, 0, 0, 4, 2, 6, 0};

constexpr char kPadded[] = R"(graph "padded" {
  words = placeholder() {role="tokens", dtype="i32", shape=[b, 6]}
  next = placeholder() {role="labels", dtype="i32", shape=[b, 6]}
  embed = embedding(words; @embed.weight) {vocab=13, dim=8}
  hidden = linear(embed) {out=16, layout="oi"}
  act = tanh(hidden)
  logits = linear(act) {out=13, layout="oi"}
  loss = cross_entropy(logits, next) {ignore_index=0}
  return loss
})";

class FormulaSource : public runtime::BatchSource {
 public:
  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
    const uint64_t number = 100000 + step * 100 + micro_batch;
    if (evaluation) return absl::UnimplementedError("the goldens evaluate nothing");
    if (placeholder.name == "images") FillByFormula(out, number, 2, 0);
    if (placeholder.name == "labels") FillIntegers(out, number + 50, kClasses);
    if (placeholder.name == "tokens" || placeholder.name == "targets") FillIntegers(out, number, kVocabulary);
    if (placeholder.name == "words" || placeholder.name == "next") FillIntegers(out, number, kPaddedVocabulary);
    if (placeholder.name == "next") PadLabels(step, micro_batch, out);
    if (placeholder.name == "targets") {
      for (int64_t i = 0; i < out.type.elements(); ++i) out.as<int32_t>()[i] = (out.as<int32_t>()[i] * 5 + 3) % kVocabulary;
    }
    return absl::OkStatus();
  }

 private:
  static void FillIntegers(tensor::TensorView out, uint64_t number, int bound) {
    for (int64_t i = 0; i < out.type.elements(); ++i) {
      out.as<int32_t>()[i] = std::min(bound - 1, static_cast<int>(static_cast<double>(FormulaElement(number, i, 1, 0.5)) * bound));
    }
  }
  static void PadLabels(int64_t step, int micro_batch, tensor::TensorView out) {
    const int64_t length = out.type.elements() / kPaddedSamples;
    for (int64_t i = 0; i < out.type.elements(); ++i) {
      int32_t& label = out.as<int32_t>()[i];
      const int64_t sample = micro_batch * kPaddedSamples + i / length + step;
      label = i % length < kPaddedCounted[sample % std::size(kPaddedCounted)] ? 1 + (label * 5 + 3) % (kPaddedVocabulary - 1) : 0;
    }
  }
};

// By name, so in the order of the formula's numbers; running statistics keep their start and have no number.
void FillStage(runtime::StageExecutor& executor, const std::map<std::string, uint64_t>& number_of, double norm_weight_mean) {
  executor.store().ForEachParameter(
      [&](const std::string& name, tensor::TensorView view) {
        const auto number = number_of.find(name);
        if (number == number_of.end()) return;
        const tensor::Shape& shape = view.type.shape;
        const bool matrix = shape.rank() > 1;
        const double scale = matrix ? 3 / std::sqrt(static_cast<double>(shape.elements() / shape[0])) : 0.2;
        FillByFormula(view, number->second, scale, !matrix && absl::EndsWith(name, "weight") ? norm_weight_mean : 0);
      },
      /*owned_only=*/false);
}

std::map<std::string, uint64_t> NumbersOf(const opdag::Graph& graph) {
  std::map<std::string, uint64_t> number_of;
  for (const opdag::Parameter& parameter : graph.parameters()) {
    if (parameter.trainable) number_of[parameter.name] = 0;
  }
  uint64_t next = 0;
  for (auto& [name, number] : number_of) number = next++;
  return number_of;
}

kernels::OptimizerConfig OptimizerOf(const Json& run) {
  kernels::OptimizerConfig config{.learning_rate = run["learning_rate"], .weight_decay = run["weight_decay"]};
  if (run["optimizer"] == "sgd") {
    config.kind = kernels::OptimizerConfig::Kind::kSgd;
    config.momentum = run["momentum"];
  } else {
    config.beta1 = run["beta1"];
    config.beta2 = run["beta2"];
    config.epsilon = run["epsilon"];
  }
  return config;
}

// The root of the mean square of the differences of products with random directions: the norm of the difference, but for chance.
void ExpectSameTensor(const std::string& name, const std::vector<std::byte>& bytes, const Json& golden, uint64_t number, double tolerance) {
  const size_t elements = bytes.size() / sizeof(float);
  const float* values = reinterpret_cast<const float*>(bytes.data());
  double squares = 0, sum_of_squared_differences = 0;
  for (size_t i = 0; i < elements; ++i) squares += static_cast<double>(values[i]) * values[i];
  const std::vector<double> products = golden["products"];
  for (size_t k = 0; k < products.size(); ++k) {
    double product = 0;
    for (size_t i = 0; i < elements; ++i)
      product += static_cast<double>(FormulaElement(1000 * (k + 1) + number, i, std::sqrt(12.0), 0)) * values[i];
    sum_of_squared_differences += (product - products[k]) * (product - products[k]);
  }
  const double norm = golden["norm"], moved = golden["moved"];
  const double difference = std::sqrt(sum_of_squared_differences / static_cast<double>(products.size()));
  EXPECT_NEAR(std::sqrt(squares), norm, tolerance * norm) << name;
  EXPECT_LE(difference, tolerance * norm) << name;
  if (moved > tolerance * norm) {
    EXPECT_LE(difference, kShareOfMovement * moved) << name;
  }
}

absl::StatusOr<opdag::Graph> ModelOf(const std::string& family) {
  if (family == "gpt2") {
    return models::BuildGpt2(
        {.layers = 2, .heads = 4, .embd = 32, .vocab = kVocabulary, .positions = kSequence, .sequence = kSequence, .tied = true});
  }
  if (family == "padded") {
    absl::StatusOr<opdag::Graph> graph = opdag::ParseGraph(kPadded, "padded.dag");
    return graph.ok() ? opdag::AddTargetWeights(*graph) : graph;
  }
  return models::BuildResNet({.depth = 18, .stem = "cifar", .num_classes = kClasses, .image_size = kImageSize});
}

// `shares`: micro-batches of each replica; empty: there is one.
void ExpectPyTorchsTenSteps(const std::string& name, int stages, const std::vector<int>& shares = {}, double tolerance = kTolerance) {
  std::ifstream file(absl::StrCat(std::getenv("FUSIONLLM_SOURCE_DIR"), "/tests/numerics/golden/training.json"));
  const Json run = Json::parse(file)["runs"][name];
  const bool images = run["family"] == "resnet", padded = run["family"] == "padded";
  const int64_t samples = images ? kImageSamples : padded ? kPaddedSamples : kLanguageSamples;
  auto graph = ModelOf(run["family"]);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(opdag::InferTypes(*graph, samples).ok());
  const auto training = autodiff::Differentiate(*graph);
  ASSERT_TRUE(training.ok()) << training.status();
  const std::vector<double> losses = run["losses"];
  const std::map<std::string, uint64_t> number_of = NumbersOf(training->graph);

  runtime::testing::PipelineOptions options;
  options.stage_of_forward_op = runtime::testing::ContiguousStages(*training, stages);
  options.stages = stages;
  options.backend = "cpu";
  options.config.micro_batches = padded ? kPaddedMicroBatches : kMicroBatches;
  options.config.in_flight = options.config.micro_batches;
  options.shares = shares;
  if (!shares.empty()) options.config.replicas = static_cast<int>(shares.size());
  options.config.micro_batch_size = samples;
  options.config.optimizer = OptimizerOf(run);
  options.config.gradient_clip_norm = run["clip"];
  options.steps = static_cast<int64_t>(losses.size());
  options.prepare = [&](int, runtime::StageExecutor& executor) { FillStage(executor, number_of, images ? 0.3 : 1); };
  FormulaSource source;
  const auto result = runtime::testing::RunPipeline(*training, options, source);
  ASSERT_TRUE(result.ok()) << result.status();

  ASSERT_EQ(result->steps.size(), 10u);
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(result->steps[i].loss, losses[i], tolerance * losses[i]) << "step " << i + 1;
  }
  uint64_t number = 0;
  for (const auto& [tensor, golden] : run["tensors"].items()) {
    const auto found = result->parameters.find(tensor);
    ASSERT_NE(found, result->parameters.end()) << tensor << " of PyTorch is missing here";
    ExpectSameTensor(tensor, found->second, golden, number++, tolerance);
  }
  for (const auto& [tensor, bytes] : result->parameters) {
    EXPECT_TRUE(run["tensors"].contains(tensor) || absl::EndsWith(tensor, "num_batches_tracked")) << tensor << " is not PyTorch's";
  }
}

TEST(TrainingParityTest, Gpt2WithSgdAndMomentum) { ExpectPyTorchsTenSteps("gpt2_sgd", 1); }
TEST(TrainingParityTest, Gpt2WithAdamWAndClipping) { ExpectPyTorchsTenSteps("gpt2_adamw", 1); }
TEST(TrainingParityTest, Gpt2InThreeStages) { ExpectPyTorchsTenSteps("gpt2_sgd", 3); }
TEST(TrainingParityTest, APaddedBatchHoweverItIsCut) {
  for (const int stages : {1, 2, 4}) {
    for (const std::vector<int>& shares : {std::vector<int>{}, {2, 2}, {1, 3}}) {
      SCOPED_TRACE(absl::StrCat(stages, " stages, ", shares.size(), " replicas"));
      ExpectPyTorchsTenSteps("padded_sgd", stages, shares, /*tolerance=*/1e-6);
    }
  }
}
TEST(TrainingParityTest, ResNet18WithSgdAndMomentum) { ExpectPyTorchsTenSteps("resnet18_sgd", 2); }

}  // namespace
}  // namespace fusionllm::numerics
