#include "lib/runtime/testing/small_networks.h"

#include <bit>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "lib/autodiff/lower_precision.h"
#include "lib/models/gpt2/graph.h"
#include "lib/opdag/graph_builder.h"
#include "lib/runtime/evaluation_pass.h"
#include "lib/runtime/expected_messages.h"

namespace fusionllm::runtime::testing {
namespace {

using opdag::ValueId;
using Ints = std::vector<int64_t>;

constexpr int kMicroBatchSize = 2;

class ResidualNetwork {
 public:
  absl::StatusOr<opdag::Graph> Build() {
    const ValueId images = builder_.Placeholder("images", "images", "f32", {opdag::kBatch, 6, 6, 3});
    const ValueId labels = builder_.Placeholder("labels", "labels", "i32", {opdag::kBatch});
    ValueId x = builder_.Add("stem.relu", "relu", {ConvNorm("stem", images, 8, 3, 1)});
    x = Block("block1", x, 8, 1);
    x = builder_.Add("pool", "max_pool2d", {x}, {{"kernel", Ints{2, 2}}, {"stride", Ints{1, 1}}, {"padding", Ints{0, 0}}});
    x = builder_.Add("drop", "dropout", {x}, {{"rate", 0.1}});
    x = Block("block2", x, 12, 2);
    x = builder_.Add("mean", "global_avg_pool", {x});
    x = builder_.Add("fc", "linear", {x}, {{"out", int64_t{kSmallClasses}}, {"layout", std::string("oi")}, {"bias", true}});
    return builder_.Finish(builder_.Add("loss", "cross_entropy", {x, labels}));
  }

 private:
  ValueId ConvNorm(const std::string& name, ValueId x, int64_t out, int64_t kernel, int64_t stride) {
    x = builder_.Add(name + ".conv", "conv2d", {x},
                     {{"out", out},
                      {"kernel", Ints{kernel, kernel}},
                      {"stride", Ints{stride, stride}},
                      {"padding", Ints{kernel / 2, kernel / 2}},
                      {"bias", false}});
    return builder_.Add(name + ".norm", "batch_norm", {x}, {{"epsilon", 1e-5}, {"momentum", 0.1}});
  }

  ValueId Block(const std::string& name, ValueId x, int64_t out, int64_t stride) {
    const ValueId y = ConvNorm(name, x, out, 3, stride);
    const ValueId shortcut = stride == 1 ? x : ConvNorm(name + ".shortcut", x, out, 1, stride);
    return builder_.Add(name + ".relu", "relu", {builder_.Add(name + ".add", "add", {y, shortcut})});
  }

  opdag::GraphBuilder builder_{"small_residual_network", kMicroBatchSize};
};

}  // namespace

autodiff::TrainingGraph SmallGpt2(bool tied, int64_t width) {
  return Differentiated(
      models::BuildGpt2({.layers = 2, .heads = 2, .embd = width, .vocab = kSmallClasses, .positions = 8, .sequence = 8, .tied = tied}));
}

autodiff::TrainingGraph SmallResidualNetwork() { return Differentiated(ResidualNetwork().Build()); }

autodiff::TrainingGraph Differentiated(absl::StatusOr<opdag::Graph> graph, int64_t micro_batch) {
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(opdag::InferTypes(*graph, micro_batch).ok());
  return *autodiff::Differentiate(*graph);
}

autodiff::TrainingGraph InBf16(autodiff::TrainingGraph training) {
  const absl::Status status = autodiff::LowerPrecision(training);
  EXPECT_TRUE(status.ok()) << status;
  return training;
}

PipelineOptions SmallOptions(const autodiff::TrainingGraph& training, int stages, const std::string& backend) {
  PipelineOptions options{.stage_of_forward_op = ContiguousStages(training, stages), .stages = stages, .backend = backend};
  options.config.micro_batches = kSmallMicroBatches;
  options.config.in_flight = kSmallMicroBatches;
  options.config.optimizer.learning_rate = 1e-2;
  options.config.optimizer.weight_decay = 0.1;
  options.config.gradient_clip_norm = 0.5;
  options.config.micro_batch_size = kMicroBatchSize;
  return options;
}

PipelineResult MustRun(const autodiff::TrainingGraph& training, const PipelineOptions& options) {
  const auto source = SyntheticSource(7, kSmallClasses);
  absl::StatusOr<PipelineResult> result = RunPipeline(training, options, *source);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : PipelineResult{};
}

void ExpectMessages(const autodiff::TrainingGraph& training, int stage, int stages, int replicas, int64_t first_step, Inbox& inbox) {
  const std::vector<int> placement = autodiff::AssignStages(training, ContiguousStages(training, stages));
  const auto program = BuildStageProgram(training, placement, stage, stages, Recompute::kNone);
  ASSERT_TRUE(program.ok()) << program.status();
  inbox.Expect(std::make_unique<ExpectedMessages>(training, placement, *program, kSmallMicroBatches, replicas,
                                                  EvaluationWindow(training, placement, stages)),
               first_step);
}

std::vector<uint32_t> LossBits(const PipelineResult& result) {
  std::vector<uint32_t> bits;
  for (const StepResult& step : result.steps) bits.push_back(std::bit_cast<uint32_t>(step.loss));
  return bits;
}

}  // namespace fusionllm::runtime::testing
