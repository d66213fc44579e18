// Whole trainings on the CUDA back end: the same bits on any number of stages, and the losses of the reference. Where there is neither
// toolkit nor card the kernels are carried out by the processor (lib/kernels/cuda/emulated).
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/compression/cuda/codec.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/device.h"
#include "lib/runtime/not_finite.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

using ::testing::HasSubstr;
using testing::InBf16;
using testing::LossBits;
using testing::MustRun;
using testing::PipelineOptions;
using testing::PipelineResult;
using testing::SmallOptions;

// Relative, after three steps: fp32 sums in another order. In bf16 such a difference may turn a rounding; on the emulated card 1e-7 was
// seen.
constexpr float kLossTolerance = 1e-4f;

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

  static void ExpectAsTheReference(const autodiff::TrainingGraph& training, double tolerance = kLossTolerance) {
    const PipelineResult want = MustRun(training, SmallOptions(training, 2, "ref"));
    const PipelineResult got = MustRun(training, OnCuda(training, 2));
    ASSERT_EQ(want.steps.size(), got.steps.size());
    for (size_t i = 0; i < want.steps.size(); ++i) {
      EXPECT_NEAR(want.steps[i].loss, got.steps[i].loss, tolerance * want.steps[i].loss) << "step " << i + 1;
      EXPECT_NEAR(want.steps[i].gradient_norm, got.steps[i].gradient_norm, 10 * tolerance * want.steps[i].gradient_norm);
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
TEST_F(CudaStageTest, TiedGpt2LearnsInBf16AsTheReference) { ExpectAsTheReference(InBf16(testing::SmallGpt2(true))); }
// Attention on tensor cores rounds to bf16 what it multiplies (adr/0014), which the reference does not: losses may be as far apart.
TEST_F(CudaStageTest, TiedGpt2LearnsByAttentionOnTensorCoresAsTheReference) {
  ExpectAsTheReference(InBf16(testing::SmallGpt2(true, /*width=*/32)), /*tolerance=*/0x1p-8);
}
TEST_F(CudaStageTest, AResidualNetworkLearnsInBf16AsTheReference) { ExpectAsTheReference(InBf16(testing::SmallResidualNetwork())); }
TEST_F(CudaStageTest, Gpt2HasTheSameBitsOnAnyNumberOfStages) { ExpectSameBitsOnAnyNumberOfStages(testing::SmallGpt2(true)); }
TEST_F(CudaStageTest, AResidualNetworkHasTheSameBitsOnAnyNumberOfStages) {
  ExpectSameBitsOnAnyNumberOfStages(testing::SmallResidualNetwork());
}
// By attention on tensor cores: cuDNN's on cards that it is chosen for, else ours.
TEST_F(CudaStageTest, Gpt2InBf16HasTheSameBitsOnAnyNumberOfStages) {
  ExpectSameBitsOnAnyNumberOfStages(InBf16(testing::SmallGpt2(true, /*width=*/32)));
}
TEST_F(CudaStageTest, AResidualNetworkInBf16HasTheSameBitsOnAnyNumberOfStages) {
  ExpectSameBitsOnAnyNumberOfStages(InBf16(testing::SmallResidualNetwork()));
}

// Rows that one kernel runs are found through views, too.
TEST_F(CudaStageTest, ReshapesThatAreCopiedDoNotChangeABit) {
  for (const autodiff::TrainingGraph& training :
       {testing::SmallGpt2(true), testing::SmallResidualNetwork(), InBf16(testing::SmallResidualNetwork())}) {
    for (const int stages : {1, 2}) {
      PipelineOptions copies = OnCuda(training, stages);
      copies.config.reshapes = Reshapes::kCopies;
      const PipelineResult want = MustRun(training, copies), got = MustRun(training, OnCuda(training, stages));
      EXPECT_EQ(LossBits(got), LossBits(want)) << stages << " stages";
      EXPECT_EQ(got.parameters, want.parameters) << stages << " stages";
    }
  }
}

TEST_F(CudaStageTest, Bf16IsNotFp32UnderAnotherName) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  EXPECT_NE(LossBits(MustRun(training, OnCuda(training, 2))), LossBits(MustRun(InBf16(training), OnCuda(training, 2))));
}

// One stage on the card and the next on the CPU: what they send each other is the same, and so is what comes out, but for rounding.
void ExpectAMixedPipelineAsTheReference(const autodiff::TrainingGraph& training) {
  const PipelineResult want = MustRun(training, SmallOptions(training, 2, "ref"));
  PipelineOptions mixed = OnCuda(training, 2);
  std::atomic<int> made{0};
  mixed.make_backend = [&made]() -> absl::StatusOr<std::unique_ptr<kernels::Backend>> {
    return made++ == 0 ? kernels::cuda::CreateCudaBackend(0) : kernels::CreateBackend("cpu", {.threads = 1});
  };
  const PipelineResult got = MustRun(training, mixed);
  EXPECT_EQ(made, 2);
  ASSERT_EQ(want.steps.size(), got.steps.size());
  for (size_t i = 0; i < want.steps.size(); ++i) EXPECT_NEAR(want.steps[i].loss, got.steps[i].loss, kLossTolerance * want.steps[i].loss);
}

TEST_F(CudaStageTest, AMixedPipelineLearnsAsTheReference) {
  ExpectAMixedPipelineAsTheReference(testing::SmallGpt2(true));
  ExpectAMixedPipelineAsTheReference(InBf16(testing::SmallGpt2(true)));
}

LinkCodecs AllLinks(int stages, const char* text) {
  LinkCodecs links;
  for (int from = 0; from < stages; ++from) {
    for (int to = 0; to < stages; ++to) links[{from, to}] = *compression::ParseCodecSpec(text);
  }
  return links;
}

// Codecs of every link, on the device where the back end is one.
void CompressOnDevice(PipelineOptions& options, const char* text) {
  options.codecs_on = [links = AllLinks(options.stages, text)](int stage, kernels::Backend& backend) {
    return CompressedEdgeCodec(stage, links, 2, compression::cuda::TensorCodecOn(backend));
  };
}

PipelineOptions WithHostCodecs(PipelineOptions options, const char* text) {
  options.codecs = [links = AllLinks(options.stages, text)](int stage) { return CompressedEdgeCodec(stage, links, 2); };
  return options;
}

void ExpectCompressionOnTheDeviceAsOnTheHost(const autodiff::TrainingGraph& training, std::initializer_list<const char*> specs) {
  const PipelineResult exact = MustRun(training, OnCuda(training, 2));
  for (const char* text : specs) {
    PipelineOptions on_device = OnCuda(training, 2);
    CompressOnDevice(on_device, text);
    std::map<int, LinkCompression> on_host_links, on_device_links;
    on_device.finish = [&](int stage, StageExecutor& executor) {
      if (stage == 1) on_device_links = executor.compression();
    };
    PipelineOptions on_host = WithHostCodecs(OnCuda(training, 2), text);
    on_host.finish = [&](int stage, StageExecutor& executor) {
      if (stage == 1) on_host_links = executor.compression();
    };
    const PipelineResult got = MustRun(training, on_device), want = MustRun(training, on_host);
    EXPECT_EQ(LossBits(got), LossBits(want)) << text;
    EXPECT_EQ(got.parameters, want.parameters) << text;
    if (std::string(text) != "fp32") {
      EXPECT_NE(LossBits(got), LossBits(exact)) << text << ": nothing was compressed";
    }
    ASSERT_EQ(on_device_links.size(), on_host_links.size());
    for (const auto& [peer, link] : on_host_links) {
      EXPECT_EQ(on_device_links.at(peer).ratio, link.ratio) << text;
      EXPECT_EQ(on_device_links.at(peer).compared_messages, link.compared_messages) << text;
      EXPECT_EQ(on_device_links.at(peer).relative_error, link.relative_error) << text;
    }
  }
}

TEST_F(CudaStageTest, CompressionOnTheDeviceDoesNotChangeABit) {
  ExpectCompressionOnTheDeviceAsOnTheHost(testing::SmallGpt2(true), {"fp32", "fp16", "int4+ef", "topk@5:int8"});
}
TEST_F(CudaStageTest, CompressionOnTheDeviceDoesNotChangeABitInBf16) {
  ExpectCompressionOnTheDeviceAsOnTheHost(InBf16(testing::SmallGpt2(true)), {"fp32", "int8", "int4+ef", "topk@5:fp16"});
}

// The two ends of a link code on different devices. Which stage has the card is up to the threads, so the losses are compared with the
// reference's, as those of a mixed pipeline without compression are; the bytes are the same by the codecs' conformance.
TEST_F(CudaStageTest, ALinkCompressesOnTheDeviceAtOneEndAndOnTheCpuAtTheOther) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions mixed = OnCuda(training, 2);
  std::atomic<int> made{0};
  mixed.make_backend = [&made]() -> absl::StatusOr<std::unique_ptr<kernels::Backend>> {
    return made++ == 0 ? kernels::cuda::CreateCudaBackend(0) : kernels::CreateBackend("ref", {.threads = 1});
  };
  CompressOnDevice(mixed, "fp16");
  const PipelineResult got = MustRun(training, mixed);
  EXPECT_EQ(made, 2);
  const PipelineResult want = MustRun(training, WithHostCodecs(SmallOptions(training, 2, "ref"), "fp16"));
  ASSERT_EQ(want.steps.size(), got.steps.size());
  for (size_t i = 0; i < want.steps.size(); ++i) EXPECT_NEAR(want.steps[i].loss, got.steps[i].loss, kLossTolerance * want.steps[i].loss);
}

// What error feedback keeps on the device goes through a checkpoint.
TEST_F(CudaStageTest, ResidualsOnTheDeviceBelongToTheCheckpoint) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = OnCuda(training, 2);
  options.config.optimizer.kind = kernels::OptimizerConfig::Kind::kSgd;  // its state is the parameters
  options.steps = 4;
  CompressOnDevice(options, "topk@5:fp16+ef");
  const PipelineResult undisturbed = MustRun(training, options);

  std::map<std::string, std::vector<std::byte>> stored;
  const auto for_each = [](StageExecutor& executor, const std::function<void(const std::string&, tensor::TensorView)>& visit) {
    executor.store().ForEachParameter(visit, /*owned_only=*/false);
    for (const std::string& name : executor.residual_names()) visit(name, executor.residual(name));
  };
  PipelineOptions first_half = options;
  first_half.steps = 2;
  first_half.finish = [&](int, StageExecutor& executor) {
    for_each(executor, [&](const std::string& name, tensor::TensorView view) {
      const auto bytes = view.bytes();
      stored[name].assign(bytes.begin(), bytes.end());
    });
  };
  MustRun(training, first_half);

  PipelineOptions second_half = options;
  second_half.first_step = 3;
  const auto restore = [&](bool with_residuals) {
    return [&, with_residuals](int, StageExecutor& executor) {
      for_each(executor, [&](const std::string& name, tensor::TensorView view) {
        if (!with_residuals && name.starts_with("residual:")) return;
        std::memcpy(view.data, stored.at(name).data(), view.type.bytes());
      });
    };
  };
  second_half.prepare = restore(true);
  EXPECT_EQ(MustRun(training, second_half).parameters, undisturbed.parameters);
  second_half.prepare = restore(false);
  EXPECT_NE(MustRun(training, second_half).parameters, undisturbed.parameters) << "the residuals made no difference";
}

TEST_F(CudaStageTest, AValueThatNoCodecCarriesNamesTheOpThatMadeIt) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = OnCuda(training, 2);
  CompressOnDevice(options, "topk@5:int8");
  options.prepare = [](int, StageExecutor& executor) {
    executor.store().ForEachParameter([](const std::string&, tensor::TensorView view) { view.f32()[0] = NAN; }, /*owned_only=*/false);
  };
  const auto source = testing::SyntheticSource(7, testing::kSmallClasses);
  const absl::Status status = testing::RunPipeline(training, options, *source).status();
  EXPECT_TRUE(IsNotFinite(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("is not fit to be sent to stage 1 at step 1, micro-batch 0: element "));
}

// The loss is read after the backward pass was asked for; it is what is blamed all the same, and where it began is still to be seen.
TEST_F(CudaStageTest, ALossThatIsNotFiniteIsNamedBeforeTheGradientsThatItSpoils) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  for (const int stages : {1, 2}) {
    for (const char* codec : {"fp32", "int8"}) {
      PipelineOptions options = OnCuda(training, stages);
      CompressOnDevice(options, codec);
      options.prepare = [&](int, StageExecutor& executor) {
        executor.store().ForEachParameter(
            [](const std::string& name, tensor::TensorView view) {
              if (name == "transformer.ln_f.weight") view.f32()[0] = NAN;
            },
            /*owned_only=*/false);
      };
      const auto source = testing::SyntheticSource(7, testing::kSmallClasses);
      const absl::Status status = testing::RunPipeline(training, options, *source).status();
      EXPECT_TRUE(IsNotFinite(status)) << status;
      EXPECT_THAT(status.message(), HasSubstr("the loss of op 'loss' is nan at step 1, micro-batch 0; it begins at op '"));
    }
  }
}

TEST_F(CudaStageTest, PassesAreReplayedAfterTheFirstOnesButForWhatIsRandom) {
  for (const autodiff::TrainingGraph& training :
       {testing::SmallGpt2(true), InBf16(testing::SmallGpt2(true, /*width=*/32)), testing::SmallResidualNetwork()}) {
    PipelineOptions options = OnCuda(training, 2);
    std::vector<int64_t> replays(2);
    options.finish = [&](int stage, StageExecutor& executor) { replays[stage] = executor.replays(); };
    MustRun(training, options);
    for (const int64_t times : replays) EXPECT_GE(times, 2 * testing::kSmallMicroBatches * (options.steps - 2));
  }
}

// What the device took is measured by its own clock, not by when this thread asked.
TEST_F(CudaStageTest, SpansAndSecondsAreTheDevices) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = OnCuda(training, 1);
  std::vector<TraceSpan> spans;
  std::vector<StageStepTimes> times;
  options.on_span = [&](const TraceSpan& span) { spans.push_back(span); };
  options.on_stage_step = [&](const StageStepTimes& step) { times.push_back(step); };
  MustRun(training, options);
  ASSERT_EQ(times.size(), static_cast<size_t>(options.steps));
  for (const StageStepTimes& step : times) {
    double forward = 0, backward = 0;
    int64_t last_end = 0;
    for (const TraceSpan& span : spans) {
      const bool of_pass = span.kind == TraceSpan::Kind::kForward || span.kind == TraceSpan::Kind::kBackward;
      if (span.step != step.step || !of_pass) continue;
      EXPECT_GE(span.begin_ns, last_end) << "one device runs one pass after the other";
      last_end = span.end_ns;
      (span.kind == TraceSpan::Kind::kForward ? forward : backward) += 1e-9 * static_cast<double>(span.end_ns - span.begin_ns);
    }
    EXPECT_GT(forward, 0);
    EXPECT_GT(backward, 0);
    EXPECT_NEAR(step.forward_seconds, forward, 1e-6);
    EXPECT_NEAR(step.backward_seconds, backward, 1e-6);
    EXPECT_GE(step.busy_seconds, forward + backward - 1e-6);
  }
}

TEST_F(CudaStageTest, ACodecOfAnotherDeviceIsRefused) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  const auto other = kernels::cuda::CreateCudaBackend(0);
  ASSERT_TRUE(other.ok()) << other.status();
  PipelineOptions options = OnCuda(training, 1);
  options.codecs = [&other](int stage) { return CompressedEdgeCodec(stage, {}, 0, compression::cuda::TensorCodecOn(**other)); };
  const auto source = testing::SyntheticSource(7, testing::kSmallClasses);
  EXPECT_THAT(testing::RunPipeline(training, options, *source).status().message(), HasSubstr("tensors of another device"));
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
