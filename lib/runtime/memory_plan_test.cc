#include "lib/runtime/memory_plan.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::runtime {
namespace {

size_t Rounded(size_t bytes) { return (bytes + tensor::kAlignment - 1) / tensor::kAlignment * tensor::kAlignment; }

// The most bytes alive at one position: no plan can do with less.
size_t PeakOf(const std::vector<Lifetime>& lifetimes) {
  size_t peak = 0;
  for (const Lifetime& at : lifetimes) {
    size_t alive = 0;
    for (const Lifetime& other : lifetimes) {
      if (other.first <= at.first && at.first <= other.last) alive += Rounded(other.bytes);
    }
    peak = std::max(peak, alive);
  }
  return peak;
}

TEST(PlanMemoryTest, TensorsAliveTogetherNeverOverlapAndTheArenaStaysNearThePeak) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const base::CounterRng rng(seed, "lifetimes");
    std::vector<Lifetime> lifetimes;
    const int count = 1 + static_cast<int>(rng.Below(0, 40));
    for (int i = 0; i < count; ++i) {
      const int first = static_cast<int>(rng.Below(3 * i + 1, 50));
      lifetimes.push_back(
          {.bytes = rng.Below(3 * i + 2, 5000), .first = first, .last = first + static_cast<int>(rng.Below(3 * i + 3, 10))});
    }
    const MemoryPlan plan = PlanMemory(lifetimes);
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(plan.offsets[i] % tensor::kAlignment, 0u);
      EXPECT_LE(plan.offsets[i] + lifetimes[i].bytes, plan.arena_bytes);
      for (int j = 0; j < i; ++j) {
        if (lifetimes[i].last < lifetimes[j].first || lifetimes[j].last < lifetimes[i].first) continue;
        const bool apart =
            plan.offsets[i] + lifetimes[i].bytes <= plan.offsets[j] || plan.offsets[j] + lifetimes[j].bytes <= plan.offsets[i];
        EXPECT_TRUE(apart) << "seed " << seed << ": " << i << " and " << j;
      }
    }
    EXPECT_GE(plan.arena_bytes, PeakOf(lifetimes)) << "seed " << seed;
    EXPECT_LE(plan.arena_bytes, 2 * PeakOf(lifetimes) + 64) << "seed " << seed;
  }
}

TEST(PlanMemoryTest, AChainNeedsTwoBuffers) {
  std::vector<Lifetime> chain;
  for (int i = 0; i < 10; ++i) chain.push_back({.bytes = 128, .first = i, .last = i + 1});
  EXPECT_EQ(PlanMemory(chain).arena_bytes, 256u);
}

TEST(PlanMemoryTest, NothingNeedsNothing) { EXPECT_EQ(PlanMemory({}).arena_bytes, 0u); }

}  // namespace
}  // namespace fusionllm::runtime
