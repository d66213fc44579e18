#include "lib/tensor/bf16.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace fusionllm::tensor {
namespace {

constexpr uint32_t kValues = 1u << 16;

bool IsNaN(uint32_t bf16) { return (bf16 & 0x7fffu) > 0x7f80u; }

TEST(Bf16Test, EveryValueWidensToTheFloatWhoseUpperHalfItIsAndComesBack) {
  for (uint32_t bits = 0; bits < kValues; ++bits) {
    const float wide = UpcastBf16(static_cast<uint16_t>(bits));
    EXPECT_EQ(std::bit_cast<uint32_t>(wide), bits << 16);
    if (IsNaN(bits)) {
      EXPECT_TRUE(std::isnan(UpcastBf16(RoundToBf16(wide)))) << bits;
    } else {
      EXPECT_EQ(RoundToBf16(wide), bits);
    }
  }
}

// Between each value and the next in magnitude lie 65,535 floats; the one in the middle is the tie.
TEST(Bf16Test, BetweenTwoValuesTheNearerIsTakenAndOfATieTheEvenOne) {
  for (uint32_t bits = 0; bits < kValues; ++bits) {
    if ((bits & 0x7fffu) >= 0x7f80u) continue;  // infinities and NaNs have no next
    const auto round = [bits](uint32_t lower) { return RoundToBf16(std::bit_cast<float>(bits << 16 | lower)); };
    EXPECT_EQ(round(1), bits);
    EXPECT_EQ(round(0x7fff), bits);
    EXPECT_EQ(round(0x8000), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(round(0x8001), bits + 1) << "the greatest one's next is infinity";
    EXPECT_EQ(round(0xffff), bits + 1);
  }
}

TEST(Bf16Test, InfinitiesStayAndNaNsNeverBecomeThem) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(UpcastBf16(RoundToBf16(kInfinity)), kInfinity);
  EXPECT_EQ(UpcastBf16(RoundToBf16(-kInfinity)), -kInfinity);
  EXPECT_EQ(UpcastBf16(RoundToBf16(std::numeric_limits<float>::max())), kInfinity);
  for (const uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    const float rounded = UpcastBf16(RoundToBf16(std::bit_cast<float>(nan)));
    EXPECT_TRUE(std::isnan(rounded)) << nan;
    EXPECT_EQ(std::signbit(rounded), nan >> 31 == 1) << nan;
  }
}

TEST(Bf16Test, SpansAreConvertedElementByElement) {
  std::vector<uint16_t> all(kValues), back(kValues);
  for (uint32_t bits = 0; bits < kValues; ++bits) all[bits] = static_cast<uint16_t>(bits);
  std::vector<float> wide(kValues);
  UpcastBf16(all, wide.data());
  RoundToBf16(wide, back.data());
  for (uint32_t bits = 0; bits < kValues; ++bits) {
    EXPECT_EQ(std::bit_cast<uint32_t>(wide[bits]), bits << 16);
    EXPECT_EQ(back[bits], RoundToBf16(wide[bits]));
  }
}

}  // namespace
}  // namespace fusionllm::tensor
