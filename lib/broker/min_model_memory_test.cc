#include "lib/broker/min_model_memory.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::broker {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
const MinModelMemory kMinModelMemory = {.all_bytes = 1000 * kMiB, .largest_bytes = 400 * kMiB, .largest = "wte"};

TEST(MinModelMemory, ThatExecutorsHaveIsNoReason) {
  EXPECT_EQ(DescribeInsufficientMemory(kMinModelMemory, {{"a", 400 * kMiB}, {"b", 600 * kMiB}}), "");
  EXPECT_EQ(DescribeInsufficientMemory({}, {{"a", 1}}), "") << "nothing is known of the model";
  EXPECT_EQ(DescribeInsufficientMemory(kMinModelMemory, {}), "");
}

TEST(MinModelMemory, OfOneOpMustBeHadByOneExecutor) {
  const std::string why = DescribeInsufficientMemory(kMinModelMemory, {{"east-0", 256 * kMiB}, {"east-1", 128 * kMiB}});
  EXPECT_THAT(why, HasSubstr("the stage with wte needs 400 MiB at least"));
  EXPECT_THAT(why, HasSubstr("the limit is 256 MiB (east-0 256 MiB, east-1 128 MiB)"));
  EXPECT_THAT(why, EndsWith("); give executors more memory (memory of a topology's devices; in Kubernetes resources.limits.memory in "
                            "spec.executors.template), or train a smaller model"));
}

TEST(MinModelMemory, OfTheModelMustBeHadByAllTogether) {
  const std::string why = DescribeInsufficientMemory(kMinModelMemory, {{"a", 450 * kMiB}, {"b", 450 * kMiB}});
  EXPECT_THAT(why, HasSubstr("the model needs 1000 MiB at least, for parameters, gradients and the optimizer's state; the limits add up to "
                             "900 MiB (a 450 MiB, b 450 MiB); give executors more memory"));
  EXPECT_THAT(why, EndsWith("), let more executors take part, or train a smaller model"));
}

TEST(MinModelMemory, OfAnExecutorWhoseLimitIsNotKnownRefusesNothing) {
  EXPECT_EQ(DescribeInsufficientMemory(kMinModelMemory, {{"a", 1}, {"b", 0}}), "");
}

}  // namespace
}  // namespace fusionllm::broker
