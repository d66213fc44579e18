// Who computes attention: cuDNN or our own kernels, by pass, card and way of choosing. On the emulated card, where a stand-in takes the
// library's place.
#include "lib/kernels/cuda/attention_plan.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/cuda/emulated/card.h"
#include "lib/kernels/cuda/emulated/cudnn_attention.h"
#include "lib/kernels/cuda/testing/device_fixture.h"

namespace fusionllm::kernels::cuda {
namespace {

using emulated::CudnnAttention;

class AttentionPlanTest : public DeviceFixture<::testing::Test> {
 protected:
  void TearDown() override {
    emulated::EmulateCudnn(CudnnAttention::kAbsent);
    emulated::SetMajorCapability(9);
  }

  // A length of its own for each test: what is measured is kept for the process.
  static AttentionSpec Spec(AttentionPass pass, int64_t length) {
    return {.pass = pass, .batch = 1, .length = length, .heads = 2, .size = 16, .causal = true};
  }

  // Whether the library ran when a plan of this spec did.
  bool LibraryRuns(const AttentionSpec& spec) {
    auto plan = PrepareAttention(*device_, spec);
    EXPECT_TRUE(plan.ok()) << plan.status();
    emulated::TakeCudnnAttentionRuns();
    const int64_t elements = spec.rows() * spec.size;
    auto block = [&](size_t bytes) {
      auto made = device_->memory().Allocate(bytes);
      EXPECT_TRUE(device_->memory().Zero(made->data(), bytes).ok());
      return *std::move(made);
    };
    const tensor::MemoryBlock qkv = block(6 * elements), y = block(2 * elements), dy = block(2 * elements), dqkv = block(6 * elements);
    const tensor::MemoryBlock lse = block(4 * spec.rows()), workspace = block((*plan)->workspace_bytes());
    const absl::Status ran =
        (*plan)->Run({qkv.data(), y.data(), reinterpret_cast<float*>(lse.data()), dy.data(), dqkv.data()}, workspace.data());
    EXPECT_TRUE(ran.ok()) << ran;
    EXPECT_TRUE(device_->Synchronize().ok());
    return emulated::TakeCudnnAttentionRuns() > 0;
  }
};

TEST_F(AttentionPlanTest, WithoutTheLibraryOurKernelsServe) {
  for (const AlgorithmChoice choice : {AlgorithmChoice::kHeuristic, AlgorithmChoice::kMeasured}) {
    device_->set_algorithm_choice(choice);
    EXPECT_FALSE(LibraryRuns(Spec(AttentionPass::kForward, 40)));
    EXPECT_FALSE(LibraryRuns(Spec(AttentionPass::kBackward, 40)));
  }
}

TEST_F(AttentionPlanTest, UnmeasuredForwardIsTheLibrarysAndBackwardWithItsFixedOrderIsOurs) {
  ASSERT_GE(device_->info().major, 9);
  emulated::EmulateCudnn(CudnnAttention::kPresent);
  EXPECT_TRUE(LibraryRuns(Spec(AttentionPass::kForward, 41)));
  EXPECT_FALSE(LibraryRuns(Spec(AttentionPass::kBackward, 41)));
}

TEST_F(AttentionPlanTest, UnmeasuredOnCardsBeforeHopperOursServe) {
  emulated::SetMajorCapability(8);
  auto ampere = Device::Open(0);
  ASSERT_TRUE(ampere.ok()) << ampere.status();
  device_ = *std::move(ampere);
  emulated::EmulateCudnn(CudnnAttention::kPresent);
  EXPECT_FALSE(LibraryRuns(Spec(AttentionPass::kForward, 44)));
  EXPECT_FALSE(LibraryRuns(Spec(AttentionPass::kBackward, 44)));
}

TEST_F(AttentionPlanTest, WhereTheLibraryKnowsNoWayOursServesAndThatIsSaidForEachShape) {
  emulated::EmulateCudnn(CudnnAttention::kNoAlgorithm);
  ::testing::internal::CaptureStderr();
  for (const int64_t length : {45, 46, 45}) EXPECT_FALSE(LibraryRuns(Spec(AttentionPass::kForward, length)));
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const char* spec : {"attention of [1, 45] tokens with 2 heads of 16", "attention of [1, 46] tokens with 2 heads of 16"}) {
    const size_t at = said.find(absl::StrCat(spec, " by kernels of FusionLLM: cuDNN has no way: the stand-in knows no way"));
    ASSERT_NE(at, std::string::npos) << said;
    EXPECT_EQ(said.find(spec, at + 1), std::string::npos) << "said twice: " << said;
  }
}

TEST_F(AttentionPlanTest, AnErrorOfTheCardIsNoReasonToComputeOtherwise) {
  emulated::EmulateCudnn(CudnnAttention::kBroken);
  for (const AlgorithmChoice choice : {AlgorithmChoice::kHeuristic, AlgorithmChoice::kMeasured}) {
    device_->set_algorithm_choice(choice);
    EXPECT_EQ(PrepareAttention(*device_, Spec(AttentionPass::kForward, 47)).status().message(), "the stand-in's card fails");
  }
}

TEST_F(AttentionPlanTest, MeasuredTheFasterOneComputesEitherPass) {
  device_->set_algorithm_choice(AlgorithmChoice::kMeasured);
  emulated::EmulateCudnn(CudnnAttention::kIdle);
  EXPECT_TRUE(LibraryRuns(Spec(AttentionPass::kForward, 200)));
  EXPECT_TRUE(LibraryRuns(Spec(AttentionPass::kBackward, 200)));
}

TEST_F(AttentionPlanTest, WhatIsMeasuredIsKept) {
  device_->set_algorithm_choice(AlgorithmChoice::kMeasured);
  emulated::EmulateCudnn(CudnnAttention::kIdle);
  ASSERT_TRUE(PrepareAttention(*device_, Spec(AttentionPass::kForward, 201)).ok());
  EXPECT_GT(emulated::TakeCudnnAttentionRuns(), 0);
  ASSERT_TRUE(PrepareAttention(*device_, Spec(AttentionPass::kForward, 201)).ok());
  EXPECT_EQ(emulated::TakeCudnnAttentionRuns(), 0);
}

TEST_F(AttentionPlanTest, ALibraryThatDoesNotRunWhenItIsMeasuredIsNotTaken) {
  device_->set_algorithm_choice(AlgorithmChoice::kMeasured);
  emulated::EmulateCudnn(CudnnAttention::kFails);
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(LibraryRuns(Spec(AttentionPass::kForward, 43)));
  EXPECT_FALSE(LibraryRuns(Spec(AttentionPass::kBackward, 43)));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::ContainsRegex("warning .*measuring attention of .* failed; taking the kernels of FusionLLM: the stand-in does not "
                                       "run\n.*warning .*measuring the gradient of attention of"));
}

TEST_F(AttentionPlanTest, SpecsSayWhatTheyAre) {
  EXPECT_EQ((AttentionSpec{AttentionPass::kBackward, 32, 1024, 12, 64, true}).ToString(),
            "the gradient of attention of [32, 1024] tokens with 12 heads of 64");
  EXPECT_EQ((AttentionSpec{AttentionPass::kForward, 1, 7, 2, 16, false}).ToString(), "attention of [1, 7] tokens with 2 heads of 16");
}

}  // namespace
}  // namespace fusionllm::kernels::cuda
