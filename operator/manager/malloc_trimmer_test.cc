#include "operator/manager/malloc_trimmer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::op::manager {
namespace {

int64_t ResidentMiB() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "VmRSS:") break;
  }
  int64_t kib = 0;
  status >> kib;
  return kib >> 10;
}

TEST(MallocTrimmerTest, ReturnsPagesBetweenBlocksInUse) {
  LimitMallocArenas();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' malloc() keeps what is free for itself";
#endif
  constexpr size_t kBlock = 1 << 10, kBlocks = 64 << 10, kKeepEach = 64;  // 64 MiB, of which each 64 KiB keep one block
  std::vector<std::unique_ptr<std::string>> blocks;
  for (size_t i = 0; i < kBlocks; ++i) blocks.push_back(std::make_unique<std::string>(kBlock, 'x'));
  const int64_t full = ResidentMiB();
  ASSERT_GE(full, 64);
  for (size_t i = 0; i < kBlocks; ++i) {
    if (i % kKeepEach != 0) blocks[i].reset();
  }
  TrimMalloc();
  EXPECT_LT(ResidentMiB(), full - 48);
  EXPECT_EQ(*blocks[kKeepEach], std::string(kBlock, 'x'));
}

TEST(MallocTrimmerTest, TrimsEachIntervalUntilItEnds) {
  kube::testing::FakeClock clock;
  std::atomic<int> times = 0;
  {
    const MallocTrimmer trimmer(clock, [&] { ++times; });
    // The thread may not have begun to wait yet; where it does not trim again, the test has no end but its limit.
    while (times < 3) {
      clock.Advance(kTrimInterval);
      kube::RealClock().WaitFor(absl::Milliseconds(2), {});
    }
  }
  const int at_the_end = times;
  clock.Advance(10 * kTrimInterval);
  EXPECT_EQ(times, at_the_end);
}

}  // namespace
}  // namespace fusionllm::op::manager
