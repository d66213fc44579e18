// What cuDNN offers for convolutions and attention, for cards that are described to it: that there is a way for every shape, and that none
// is taken that rounds factors of convolutions, sums them otherwise each time or is compiled when it runs, or that keeps a tensor of length
// x length. No card is needed, nor a driver (testing/absent_driver.cc); that the plans compute what they should only a card can show
// (cuda_convolution_test, cuda_attention_test).
#include <string>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/shared_library.h"
#include "lib/kernels/cuda/cudnn_algorithms.h"
#include "lib/kernels/cuda/cudnn_attention.h"

namespace fusionllm::kernels::cuda {
namespace {

struct Card {
  const char* name;
  int version, multiprocessors, shared_bytes, l2_bytes, clock_khz, memory_clock_khz;
};
constexpr Card kCards[] = {{"NVIDIA A100-SXM4-80GB", 800, 108, 166912, 40 << 20, 1410000, 1593000},
                           {"NVIDIA H100 80GB HBM3", 900, 132, 232448, 50 << 20, 1980000, 2619000}};

// In the form in which the library itself writes a device down (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
std::string Description(const Card& card) {
  return absl::StrFormat(
      R"({"cudaDeviceId":0,"deviceVer":%d,"driverVer":13000,"multiProcessorCount":%d,"warpSize":32,"deviceName":"%s","l2CacheSize":%d,)"
      R"("memoryBusWidth":5120,"memClockRateKHz":%d,"smClockRateKHz":%d,"supportCoopLaunch":1,"isTccDriver":0,"pciDeviceId":0,)"
      R"("maxThreadsPerSM":2048,"maxThreadsPerBlock":1024,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
      R"("regsPerBlock":65536,"smCountOrigin":0,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":%d,)"
      R"("oversizedSharedMemoryPerBlock":0,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
      R"("totalGlobalMem":85029158912})",
      card.version, card.multiprocessors, card.name, card.l2_bytes, card.memory_clock_khz, card.clock_khz, card.shared_bytes);
}

class CudnnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // One who has a driver has its own.
    if (!base::SharedLibrary::Open({"libcuda.so.1"}).ok()) {
      ASSERT_TRUE(base::SharedLibrary::Open({FUSIONLLM_ABSENT_DRIVER}).ok());
    }
    // The one answer on which a test may be left out: the library is not where the system looks for libraries, and it says so.
    if (absl::IsFailedPrecondition(LoadedCudnn().status())) GTEST_SKIP() << LoadedCudnn().status().message();
    ASSERT_TRUE(LoadedCudnn().ok()) << LoadedCudnn().status();
  }
  static const CudnnLibrary& library() { return *LoadedCudnn(); }

  static void Describe(const Card& card, CudnnDescriptor& described) {
    const std::string text = Description(card);
    const absl::Status status =
        described.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span(text.c_str(), text.size() + 1)).Finalize("describing a card");
    ASSERT_TRUE(status.ok()) << status;
  }

  // `check` gets what the library offers for each card.
  template <typename Check>
  static void ForCards(const ConvolutionSpec& spec, size_t most, Check check) {
    for (const Card& card : kCards) {
      SCOPED_TRACE(::testing::Message() << spec.ToString() << " on " << card.name);
      CudnnDescriptor described(library(), CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
      Describe(card, described);
      const auto algorithms = AlgorithmsFor(library(), {.described = &described}, spec, most);
      ASSERT_TRUE(algorithms.ok()) << algorithms.status();
      ASSERT_FALSE(algorithms->empty());
      check(*algorithms);
    }
  }
};

// A square image, window and stride, padded to keep its size.
ConvolutionShape Square(int64_t batch, int64_t side, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups = 1) {
  const int64_t padding = kernel / 2, out_side = (side + 2 * padding - kernel) / stride + 1;
  return {batch, side, side, in, out_side, out_side, out, {kernel, kernel}, {stride, stride}, {padding, padding}, {1, 1}, groups};
}

const std::vector<ConvolutionShape>& CommonShapes() {
  static const auto* const shapes =
      new std::vector<ConvolutionShape>{Square(32, 224, 3, 64, 7, 2),                               // ResNet's first layer
                                        Square(32, 56, 64, 64, 3, 1),                               // and those within
                                        Square(32, 56, 256, 512, 1, 2),                             //
                                        Square(32, 28, 128, 128, 3, 2, 32),                         // ResNeXt's
                                        Square(32, 56, 64, 64, 3, 1, 64),                           // depthwise
                                        Square(32, 224, 16, 768, 16, 16, 1),                        // patches of a vision transformer
                                        Square(1, 5, 1, 1, 3, 1),                                   //
                                        {2, 9, 7, 5, 4, 5, 7, {3, 2}, {2, 1}, {1, 0}, {2, 2}, 1}};  // nothing even, and dilated
  return *shapes;
}

// But gradients of weights in bf16, which are where tensor cores fit.
template <typename Check>
void ForPasses(ConvolutionPrecision numbers, Check check) {
  for (const ConvolutionShape& shape : CommonShapes()) {
    for (const ConvolutionPass pass : {ConvolutionPass::kForward, ConvolutionPass::kGradInput, ConvolutionPass::kGradWeight}) {
      if (pass != ConvolutionPass::kGradWeight || numbers != ConvolutionPrecision::kBf16) check(ConvolutionSpec{pass, numbers, shape});
    }
  }
}

TEST_F(CudnnTest, IsLoadedAndSaysWhichItIs) {
  EXPECT_EQ(library().version() / 10000, static_cast<size_t>(CUDNN_MAJOR));
  EXPECT_EQ(ToStatus(library(), CUDNN_STATUS_NOT_INITIALIZED, "x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ToStatus(library(), CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "x").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ToStatus(library(), CUDNN_STATUS_EXECUTION_FAILED, "x").code(), absl::StatusCode::kInternal);
}

TEST_F(CudnnTest, WithoutACardItSaysSoAndGathersMayStandIn) {
  cudnnHandle_t handle = nullptr;
  const absl::Status status = ToStatus(library(), library().create(&handle), "opening cuDNN");
  EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
}

TEST_F(CudnnTest, TakesTheDataOfAPlanWithAndWithoutAWorkspace) {
  char place[4];  // addresses, which are not followed
  for (void* const workspace : {static_cast<void*>(nullptr), static_cast<void*>(&place[3])}) {
    const auto data = DataOf(library(), &place[0], &place[1], &place[2], workspace);
    EXPECT_TRUE(data.ok()) << data.status();
  }
}

TEST_F(CudnnTest, FinalizeReportsMismatchedAttribute) {
  CudnnDescriptor tensor(library(), CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const absl::Status status = tensor.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2}).Finalize("describing");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(status.message(), ::testing::HasSubstr("setting attribute"));
}

TEST_F(CudnnTest, ThereIsAWayForEveryShapeInFloatsAndNoneRoundsThemToTf32) {
  ForPasses(ConvolutionPrecision::kFloat, [](const ConvolutionSpec& spec) {
    ForCards(spec, 100, [](const std::vector<CudnnAlgorithm>& algorithms) {
      for (const CudnnAlgorithm& algorithm : algorithms) {
        EXPECT_FALSE(algorithm.tensor_cores) << "engine " << algorithm.engine;
        EXPECT_LE(algorithm.workspace_bytes, kMaxConvolutionWorkspaceBytes);
      }
    });
  });
}

// Where it counts, tensor cores multiply: every pass of what networks are made of.
TEST_F(CudnnTest, ThereIsAWayForEveryShapeInBf16OnTensorCoresWhereTheyFit) {
  for (const ConvolutionPrecision numbers : {ConvolutionPrecision::kBf16, ConvolutionPrecision::kBf16InFloat}) {
    ForPasses(numbers, [](const ConvolutionSpec& spec) {
      const bool fits = spec.shape.in_channels % 8 == 0 && spec.shape.groups == 1;
      ForCards(spec, 1, [fits](const std::vector<CudnnAlgorithm>& algorithms) {
        EXPECT_TRUE(!fits || algorithms[0].tensor_cores) << "engine " << algorithms[0].engine;
      });
    });
  }
}

TEST_F(CudnnTest, GradientsOfWeightsInBf16AreMultipliedByTensorCoresOrNotAtAll) {
  for (const ConvolutionShape& shape : CommonShapes()) {
    const bool fits = shape.in_channels % 8 == 0 && shape.groups == 1;
    for (const Card& card : kCards) {
      const ConvolutionSpec spec{ConvolutionPass::kGradWeight, ConvolutionPrecision::kBf16, shape};
      SCOPED_TRACE(::testing::Message() << spec.ToString() << " on " << card.name);
      CudnnDescriptor described(library(), CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
      Describe(card, described);
      const auto algorithms = AlgorithmsFor(library(), {.described = &described}, spec, 100);
      ASSERT_TRUE(algorithms.ok() || (!fits && absl::IsUnimplemented(algorithms.status()))) << algorithms.status();
      if (!algorithms.ok()) continue;
      for (const CudnnAlgorithm& algorithm : *algorithms) EXPECT_TRUE(algorithm.tensor_cores) << "engine " << algorithm.engine;
    }
  }
}

// GPT-2's, in large and small batches, and heads of other sizes.
std::vector<AttentionSpec> AttentionSpecs(AttentionPass pass) {
  return {{pass, 64, 1024, 12, 64, true}, {pass, 2, 1024, 12, 64, true}, {pass, 8, 1000, 12, 64, true}, {pass, 8, 512, 16, 64, false},
          {pass, 4, 2048, 8, 128, true},  {pass, 4, 300, 6, 80, true},   {pass, 2, 77, 3, 16, false}};
}

TEST_F(CudnnTest, PlansAttentionOfEveryShapeForwardAndNoneKeepsScores) {
  for (const Card& card : kCards) {
    const std::string text = Description(card);
    for (const AttentionSpec& spec : AttentionSpecs(AttentionPass::kForward)) {
      SCOPED_TRACE(::testing::Message() << spec.ToString() << " on " << card.name);
      const auto graph = CudnnAttentionGraph::Create(spec, {.capability = card.version / 10, .described = text});
      ASSERT_TRUE(graph.ok()) << graph.status();
      EXPECT_LE((*graph)->workspace_bytes(), 1 << 20);
      EXPECT_NE((*graph)->engine(), "");
    }
  }
}

TEST_F(CudnnTest, PlansTheGradientOfAttentionAndNeverKeepsThatOfScores) {
  for (const Card& card : kCards) {
    const std::string text = Description(card);
    for (const AttentionSpec& spec : AttentionSpecs(AttentionPass::kBackward)) {
      SCOPED_TRACE(::testing::Message() << spec.ToString() << " on " << card.name);
      const auto graph = CudnnAttentionGraph::Create(spec, {.capability = card.version / 10, .described = text});
      ASSERT_TRUE(graph.ok()) << graph.status();
      // Short ones have less of it than of what grows as the length does.
      const int64_t gradient_of_scores = 2 * spec.rows() * spec.length;
      EXPECT_TRUE(spec.length < 500 || (*graph)->workspace_bytes() < gradient_of_scores) << (*graph)->workspace_bytes();
    }
  }
}

TEST_F(CudnnTest, TheSameAttentionIsPlannedEachTime) {
  const std::string text = Description(kCards[1]);
  const AttentionSpec spec = AttentionSpecs(AttentionPass::kForward)[0];
  std::string engines[2];
  for (std::string& engine : engines) {
    const auto graph = CudnnAttentionGraph::Create(spec, {.capability = 90, .described = text});
    ASSERT_TRUE(graph.ok()) << graph.status();
    engine = (*graph)->engine();
  }
  EXPECT_EQ(engines[0], engines[1]);
}

TEST_F(CudnnTest, ACardThatIsNotDescribedIsAnErrorAndNoException) {
  const auto graph = CudnnAttentionGraph::Create(AttentionSpecs(AttentionPass::kForward)[0], {.capability = 90, .described = "{"});
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kUnimplemented) << graph.status();
}

TEST_F(CudnnTest, TheSameIsChosenEachTime) {
  ForPasses(ConvolutionPrecision::kFloat, [](const ConvolutionSpec& spec) {
    std::vector<std::pair<int64_t, int64_t>> choices[2];
    for (auto& chosen : choices) {
      ForCards(spec, 4, [&](const std::vector<CudnnAlgorithm>& algorithms) {
        EXPECT_LE(algorithms.size(), 4u);
        for (const CudnnAlgorithm& algorithm : algorithms) chosen.emplace_back(algorithm.engine, algorithm.workspace_bytes);
      });
    }
    EXPECT_EQ(choices[0], choices[1]);
  });
}

}  // namespace
}  // namespace fusionllm::kernels::cuda
