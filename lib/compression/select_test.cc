#include "lib/compression/select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::compression {
namespace {

using ::testing::HasSubstr;

// The oracle: a stable sort by falling magnitude keeps lower indices first among equals.
std::vector<uint32_t> GreatestBySorting(const std::vector<float>& values, size_t k) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return std::abs(values[a]) > std::abs(values[b]); });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

enum class Kind { kNormal, kConstant, kFewLevels, kRising, kFalling, kSparse, kOneHugeBlock, kPeriodic };
constexpr Kind kKinds[] = {Kind::kNormal,  Kind::kConstant, Kind::kFewLevels,    Kind::kRising,
                           Kind::kFalling, Kind::kSparse,   Kind::kOneHugeBlock, Kind::kPeriodic};

std::vector<float> Make(Kind kind, size_t n, std::mt19937_64& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const float z = normal(rng);
    switch (kind) {
      case Kind::kNormal:
        values[i] = z;
        break;
      case Kind::kConstant:
        values[i] = i % 2 ? 0.25f : -0.25f;
        break;
      case Kind::kFewLevels:
        values[i] = std::round(z);
        break;
      case Kind::kRising:
        values[i] = static_cast<float>(i);
        break;
      case Kind::kFalling:
        values[i] = -static_cast<float>(n - i);
        break;
      case Kind::kSparse:
        values[i] = z > 2.9f ? z : 0.0f;
        break;
      case Kind::kOneHugeBlock:
        values[i] = i / 512 == 3 ? 1000 + z : z;
        break;
      case Kind::kPeriodic:
        values[i] = (i / 16) % 8 == 0 ? z : 0.001f * z;
        break;
    }
  }
  return values;
}

TEST(SelectTopKTest, KeepsExactlyWhatSortingKeeps) {
  for (uint64_t seed = 1; seed <= 160; ++seed) {
    std::mt19937_64 rng(seed);
    const Kind kind = kKinds[seed % 8];
    const size_t n = seed % 5 == 0 ? rng() % 100 + 1 : rng() % 60000 + 1;
    const double ratios[] = {1, 1.5, 3, 10, 100, 1000};
    const size_t k = std::max<size_t>(1, static_cast<size_t>(n / ratios[rng() % 6]));
    const auto values = Make(kind, n, rng);
    SelectionScratch scratch;
    ASSERT_TRUE(SelectTopK(values, k, &scratch).ok()) << "seed " << seed;
    EXPECT_EQ(scratch.indices, GreatestBySorting(values, k)) << "seed " << seed << " n " << n << " k " << k;
    for (size_t i = 0; i < k; ++i) ASSERT_EQ(scratch.values[i], values[scratch.indices[i]]) << "seed " << seed;
  }
}

TEST(SelectTopKTest, AWarmThresholdChangesNoResult) {
  std::mt19937_64 rng(7);
  SelectionScratch scratch;
  for (int batch = 0; batch < 12; ++batch) {
    auto values = Make(batch % 4 == 3 ? Kind::kFewLevels : Kind::kNormal, 50000, rng);
    const float drift = batch < 6 ? 1.0f + 0.01f * batch : std::pow(10.0f, static_cast<float>(batch % 3) - 1);
    for (float& x : values) x *= drift;
    ASSERT_TRUE(SelectTopK(values, 500, &scratch).ok());
    EXPECT_EQ(scratch.indices, GreatestBySorting(values, 500)) << "batch " << batch;
  }
}

TEST(SelectTopKTest, ASampledThresholdSufficesForOrdinaryInputs) {
  SelectionScratch scratch;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 rng(seed);
    scratch.last_threshold = 0;
    ASSERT_TRUE(SelectTopK(Make(Kind::kNormal, 100000, rng), 1000, &scratch).ok());
  }
  EXPECT_LE(scratch.radix_selections, 1);
}

TEST(SelectTopKTest, NamesTheFirstElementThatIsNotFinite) {
  for (size_t n : {100u, 50000u}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::mt19937_64 rng(n);
      auto values = Make(Kind::kNormal, n, rng);
      values[77] = bad;
      values[78] = std::numeric_limits<float>::infinity();
      for (const uint32_t warm : {0u, 0x3f800000u}) {
        SelectionScratch scratch;
        scratch.last_threshold = warm;
        const absl::Status status = SelectTopK(values, n / 10, &scratch);
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(status.message()), HasSubstr("element 77 is non-finite"));
      }
    }
  }
}

TEST(SelectTopKTest, FindsAnInfinityThatTheSampleCannotSee) {
  std::mt19937_64 rng(3);
  for (size_t at = 0; at < 20000; at += 997) {
    auto values = Make(Kind::kConstant, 20000, rng);
    values[at] = std::numeric_limits<float>::infinity();
    SelectionScratch scratch;
    EXPECT_THAT(std::string(SelectTopK(values, 200, &scratch).message()), HasSubstr("element " + std::to_string(at) + " "));
  }
}

}  // namespace
}  // namespace fusionllm::compression
