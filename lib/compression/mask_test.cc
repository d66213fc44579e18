#include "lib/compression/mask.h"

#include <cstring>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::compression {
namespace {

using ::testing::HasSubstr;

std::vector<uint32_t> RandomIndices(std::mt19937_64& rng, int64_t elements, double density) {
  std::vector<uint32_t> indices;
  std::bernoulli_distribution keep(density);
  for (int64_t i = 0; i < elements; ++i) {
    if (keep(rng)) indices.push_back(static_cast<uint32_t>(i));
  }
  return indices;
}

std::vector<std::byte> Serialized(const Mask& mask) {
  std::vector<std::byte> bytes(Mask::SerializedBytes(mask.elements(), mask.kept()));
  mask.Serialize(bytes.data());
  return bytes;
}

TEST(MaskTest, SurvivesTheWireAtEveryDensity) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 rng(seed);
    const auto elements = static_cast<int64_t>(rng() % 200000 + 1);
    const double densities[] = {0, 0.001, 0.01, 0.06, 0.07, 0.5, 1};
    const auto indices = RandomIndices(rng, elements, densities[seed % 7]);
    const Mask mask = Mask::FromIndices(elements, indices);
    EXPECT_EQ(mask.Indices(), indices) << "seed " << seed;
    const auto back = Mask::Parse(elements, mask.kept(), Serialized(mask));
    ASSERT_TRUE(back.ok()) << "seed " << seed << ": " << back.status();
    EXPECT_EQ(*back, mask) << "seed " << seed;
  }
}

TEST(MaskTest, TurnsIntoABitmapAboveOneInSixteen) {
  const int64_t n = 1 << 20;
  EXPECT_FALSE(Mask::UsesBitmap(n, n / 100));
  EXPECT_FALSE(Mask::UsesBitmap(n, n / 17));
  EXPECT_TRUE(Mask::UsesBitmap(n, n / 15));
  EXPECT_EQ(Mask::SerializedBytes(n, n / 2), n / 8);
  EXPECT_EQ(Mask::SerializedBytes(n, n / 128), 2 * n / 128 + 4 * 16);
}

TEST(MaskTest, HoldsAFullBlockInTheOffsetForm) {
  std::vector<uint32_t> indices(65536);
  for (uint32_t i = 0; i < 65536; ++i) indices[i] = 65536 + i;
  const Mask mask = Mask::FromIndices(65536 * 40, indices);
  ASSERT_FALSE(Mask::UsesBitmap(mask.elements(), mask.kept()));
  EXPECT_EQ(Mask::Parse(mask.elements(), mask.kept(), Serialized(mask))->Indices(), indices);
}

TEST(MaskTest, ScatterIsTheInverseOfGatherAndZeroElsewhere) {
  const std::vector<uint32_t> indices = {1, 4, 5};
  const Mask mask = Mask::FromIndices(7, indices);
  const std::vector<float> dense = {1, 2, 3, 4, 5, 6, 7};
  std::vector<float> kept(3), back(7, 9.0f);
  mask.Gather(dense, kept);
  EXPECT_THAT(kept, ::testing::ElementsAre(2, 5, 6));
  mask.Scatter(kept, back);
  EXPECT_THAT(back, ::testing::ElementsAre(0, 2, 0, 0, 5, 6, 0));
}

struct Forgery {
  const char* name;
  std::vector<uint16_t> offsets;
  uint32_t first_count;
  const char* reason;
};

TEST(MaskTest, RefusesForgedOffsets) {
  const int64_t elements = 65536 + 100;  // two blocks, the second of 100
  const Forgery forgeries[] = {
      {"equal", {5, 5, 1}, 2, "offset 5 follows 5"},
      {"falling", {6, 5, 1}, 2, "offset 5 follows 6"},
      {"beyond the tensor", {5, 6, 100}, 2, "offset 100 of 100"},
      {"count beyond kept", {5, 6, 7}, 4, "block 1 claims 4294967295"},
      {"count beyond the block", {5, 6, 7}, 70000, "claims 70000"},
  };
  for (const Forgery& forgery : forgeries) {
    std::vector<std::byte> bytes(8 + 6);
    const uint32_t counts[2] = {forgery.first_count, 3 - forgery.first_count};
    std::memcpy(bytes.data(), counts, 8);
    std::memcpy(bytes.data() + 8, forgery.offsets.data(), 6);
    const auto mask = Mask::Parse(elements, 3, bytes);
    ASSERT_EQ(mask.status().code(), absl::StatusCode::kInvalidArgument) << forgery.name;
    EXPECT_THAT(std::string(mask.status().message()), HasSubstr(forgery.reason)) << forgery.name;
  }
}

TEST(MaskTest, RefusesForgedBitmapsAndLengths) {
  const std::vector<std::byte> ones(2, std::byte{0xff});
  EXPECT_THAT(std::string(Mask::Parse(10, 9, ones).status().message()), HasSubstr("16 bits set"));
  EXPECT_THAT(std::string(Mask::Parse(12, 9, std::vector<std::byte>{std::byte{0xff}, std::byte{0x10}}).status().message()),
              HasSubstr("beyond its 12 elements"));
  EXPECT_THAT(std::string(Mask::Parse(1 << 30, 1 << 29, ones).status().message()), HasSubstr("mask of 2 bytes"));
}

}  // namespace
}  // namespace fusionllm::compression
