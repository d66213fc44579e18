// A model that has no room in its executors is refused before anything is measured.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::HasSubstr;
using testing::Is;
using testing::Of;
using testing::Options;
using testing::RunStateHarness;

TEST(RunStateMemoryTest, AModelTooLargeForItsExecutorsIsRefusedBeforeTheyAreMeasured) {
  RunOptions options = Options({"a0", "b0", "s0"});
  options.min_model_memory = {.all_bytes = 300, .largest_bytes = 120, .largest = "wte"};
  const auto end = [&](int64_t memory_bytes) {
    RunStateHarness run(options, {"a0", "b0"});
    run.Join("a0", /*spare=*/false, memory_bytes);
    run.Join("s0", /*spare=*/true, 1000);
    run.Join("b0", /*spare=*/false, memory_bytes);
    return run.all;
  };
  for (const int64_t memory_bytes : {100, 149}) {
    const std::vector<Action> all = end(memory_bytes);
    EXPECT_TRUE(Of<StartCalibration>(all).empty());
    const std::vector<Finish> finished = Of<Finish>(all);
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_EQ(finished[0].refusal_reason, "InsufficientMemory");
    EXPECT_THAT(std::string(finished[0].status.message()), HasSubstr(absl::StrCat("a0 ", memory_bytes, " B, b0")));
  }
  EXPECT_TRUE(Of<Finish>(end(150)).empty());
}

TEST(RunStateMemoryTest, OfDevicesThatAreKnownThePlannerSaysWhatTheyLack) {
  RunOptions options = Options({"a0"});
  options.min_model_memory.all_bytes = 200;
  options.known_profiles = {{"a0", "{}"}};
  RunStateHarness run(options, {"a0"});
  run.Join("a0");
  EXPECT_FALSE(Of<RequestPlan>(run.all).empty());
}

TEST(RunStateMemoryTest, AModelIsNotTooLargeWhileAnExecutorIsBeingStartedAgain) {
  RunOptions options = Options({"a0", "b0"});
  options.min_model_memory.all_bytes = 200;
  RunStateHarness run(options, {"a0", "b0"});
  run.ignores = Is<StartCalibration>;
  run.Join("a0");
  run.Join("b0");
  run.Feed(ExecutorLeft{.name = "a0", .incarnation = 1, .why = "killed"});
  EXPECT_TRUE(Of<Finish>(run.all).empty());
}

}  // namespace
}  // namespace fusionllm::broker
