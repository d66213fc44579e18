// Whole trainings on the CUDA back end: the same bits on any number of stages, and the losses of the reference. Where there is neither
// toolkit nor card the kernels are carried out by the processor (lib/kernels/cuda/emulated).
#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/device.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

using ::testing::HasSubstr;
using testing::LossBits;
using testing::MustRun;
using testing::PipelineOptions;
using testing::PipelineResult;
using testing::SmallOptions;

constexpr float kLossTolerance = 1e-4f;  // relative, after three steps: fp32 sums in another order

PipelineOptions OnCuda(const autodiff::TrainingGraph& training, int stages) {
  PipelineOptions options = SmallOptions(training, stages, "ref");
  options.make_backend = [] { return kernels::cuda::CreateCudaBackend(0); };
  return options;
}

class CudaStageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = kernels::cuda::FindDevice(0);
    // The one answer on which a test may be left out: there is no card, and it says so.
    if (absl::IsNotFound(device.status())) GTEST_SKIP() << device.status().message();
    ASSERT_TRUE(device.ok()) << device.status();
  }

  static void ExpectAsTheReference(const autodiff::TrainingGraph& training) {
    const PipelineResult want = MustRun(training, SmallOptions(training, 2, "ref"));
    const PipelineResult got = MustRun(training, OnCuda(training, 2));
    ASSERT_EQ(want.steps.size(), got.steps.size());
    for (size_t i = 0; i < want.steps.size(); ++i) {
      EXPECT_NEAR(want.steps[i].loss, got.steps[i].loss, kLossTolerance * want.steps[i].loss) << "step " << i + 1;
      EXPECT_NEAR(want.steps[i].gradient_norm, got.steps[i].gradient_norm, 10 * kLossTolerance * want.steps[i].gradient_norm);
    }
  }

  static void ExpectSameBitsOnAnyNumberOfStages(const autodiff::TrainingGraph& training) {
    const PipelineResult whole = MustRun(training, OnCuda(training, 1));
    for (const int stages : {2, 4}) {
      const PipelineResult cut = MustRun(training, OnCuda(training, stages));
      EXPECT_EQ(LossBits(cut), LossBits(whole)) << stages << " stages";
      EXPECT_EQ(cut.parameters, whole.parameters) << stages << " stages";
    }
  }
};

TEST_F(CudaStageTest, TiedGpt2LearnsAsTheReference) { ExpectAsTheReference(testing::SmallGpt2(true)); }
TEST_F(CudaStageTest, AResidualNetworkLearnsAsTheReference) { ExpectAsTheReference(testing::SmallResidualNetwork()); }
TEST_F(CudaStageTest, Gpt2HasTheSameBitsOnAnyNumberOfStages) { ExpectSameBitsOnAnyNumberOfStages(testing::SmallGpt2(true)); }
TEST_F(CudaStageTest, AResidualNetworkHasTheSameBitsOnAnyNumberOfStages) {
  ExpectSameBitsOnAnyNumberOfStages(testing::SmallResidualNetwork());
}

// One stage on the card and the next on the CPU: what they send each other is the same, and so is what comes out, but for rounding.
TEST_F(CudaStageTest, AMixedPipelineLearnsAsTheReference) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  const PipelineResult want = MustRun(training, SmallOptions(training, 2, "ref"));
  PipelineOptions mixed = OnCuda(training, 2);
  std::atomic<int> made{0};
  mixed.make_backend = [&made]() -> absl::StatusOr<std::unique_ptr<kernels::Backend>> {
    return made++ == 0 ? kernels::cuda::CreateCudaBackend(0) : kernels::CreateBackend("cpu", {.threads = 1});
  };
  const PipelineResult got = MustRun(training, mixed);
  EXPECT_EQ(made, 2);
  for (size_t i = 0; i < want.steps.size(); ++i) EXPECT_NEAR(want.steps[i].loss, got.steps[i].loss, kLossTolerance * want.steps[i].loss);
}

// A token beyond the vocabulary is found by the device after the kernel was asked for; it must end the step all the same.
TEST_F(CudaStageTest, ATokenOutOfRangeEndsTheRunWithItsOp) {
  class TooLarge : public BatchSource {
   public:
    absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
      const absl::Status status = inner_->Fill(evaluation, step, micro_batch, placeholder, out);
      if (step == 2 && out.type.dtype == tensor::DType::kI32) out.as<int32_t>()[0] = 1 << 20;
      return status;
    }
    std::unique_ptr<BatchSource> inner_ = testing::SyntheticSource(3, testing::kSmallClasses);
  } source;
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  const auto result = testing::RunPipeline(training, OnCuda(training, 2), source);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  EXPECT_THAT(result.status().message(), HasSubstr("at position 0 is 1048576, outside [0, "));
}

}  // namespace
}  // namespace fusionllm::runtime
