#include "services/executor/out_of_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/tensor/memory.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(OutOfMemoryTest, WhatThePlanCountsOnStandsBesideWhatIsShort) {
  const absl::Status shortage = tensor::OutOfMemoryError("CUDA device 0 (X) is out of memory: 3.20 GiB more were asked for");
  const absl::Status said = AnnotateOutOfMemory(shortage, {.index = 2, .memory_bytes = 5 * kGiB}, 8 * kGiB);
  EXPECT_TRUE(tensor::IsOutOfMemory(said));
  EXPECT_THAT(std::string(said.message()), AllOf(StartsWith("CUDA device 0 (X) is out of memory: 3.20 GiB more were asked for; "),
                                                 HasSubstr("the plan counts on 5.00 GiB for stage 2 of a device with 8.00 GiB"),
                                                 HasSubstr("others may be using the device"), HasSubstr("spec.training.microBatchSize")));
}

TEST(OutOfMemoryTest, APlanThatCannotFitIsSaidToBeTooMuch) {
  const absl::Status said = AnnotateOutOfMemory(tensor::OutOfMemoryError("no"), {.memory_bytes = 9 * kGiB}, 8 * kGiB);
  EXPECT_THAT(std::string(said.message()), HasSubstr("that is too much for it"));
}

TEST(OutOfMemoryTest, OfADeviceOfUnknownSizeNothingIsSaid) {
  const absl::Status said = AnnotateOutOfMemory(tensor::OutOfMemoryError("no"), {.memory_bytes = 9 * kGiB}, 0);
  EXPECT_THAT(std::string(said.message()), StartsWith("no; the plan counts on 9.00 GiB for stage 0: others may be using the device"));
}

TEST(OutOfMemoryTest, OtherFailuresStayAsTheyAre) {
  for (const absl::Status& status :
       {absl::OkStatus(), absl::ResourceExhaustedError("No space left on the disk"), absl::InternalError("no")}) {
    EXPECT_EQ(AnnotateOutOfMemory(status, {.memory_bytes = kGiB}, kGiB), status);
  }
}

}  // namespace
}  // namespace fusionllm::services
