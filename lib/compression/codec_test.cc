#include "lib/compression/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "lib/compression/testing/every_codec.h"

namespace fusionllm::compression {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string>& Specs() {
  static const auto& specs = *new auto(testing::EveryCodec({"topk@3:int8", "topk@20:fp16", "topk@100:int8", "topk@7:int4"}));
  return specs;
}
constexpr size_t kSizes[] = {0, 1, 2, 15, 31, 32, 33, 63, 64, 65, 127, 1000, 65535, 65537, 140000};

std::vector<float> Normal(size_t n, uint64_t seed, float scale = 1) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(n);
  for (float& x : values) x = normal(rng);
  return values;
}

CodecSpec Spec(absl::string_view text) { return *ParseCodecSpec(text); }

struct Sent {
  std::vector<std::byte> message;
  std::vector<float> received;
  Mask sender_mask, receiver_mask;
};

Sent Forward(const CodecSpec& spec, const std::vector<float>& values, EncoderState* state = nullptr) {
  Sent sent;
  EXPECT_TRUE(Encode(spec, Direction::kForward, values, nullptr, state, &sent.message, &sent.sender_mask).ok());
  sent.received.assign(values.size(), -1.0f);
  const absl::Status status = Decode(Direction::kForward, sent.message, nullptr, sent.received, &sent.receiver_mask);
  EXPECT_TRUE(status.ok()) << status;
  return sent;
}

float BlockBound(const std::vector<float>& values, size_t i, size_t block, float codes) {
  const size_t begin = i / block * block, end = std::min(values.size(), begin + block);
  float greatest = 0;
  for (size_t j = begin; j < end; ++j) greatest = std::max(greatest, std::abs(values[j]));
  return 0.504f * greatest / codes;
}

TEST(CodecTest, SizesAreThosePromised) {
  for (const std::string& text : Specs()) {
    for (size_t n : kSizes) {
      const auto values = Normal(n, n + 1);
      const Sent sent = Forward(Spec(text), values);
      EXPECT_EQ(static_cast<int64_t>(sent.message.size()), EncodedBytes(Spec(text), n, Direction::kForward)) << text << " " << n;
      std::vector<std::byte> gradient;
      ASSERT_TRUE(Encode(Spec(text), Direction::kBackward, values, &sent.receiver_mask, nullptr, &gradient, nullptr).ok());
      EXPECT_EQ(static_cast<int64_t>(gradient.size()), EncodedBytes(Spec(text), n, Direction::kBackward)) << text << " " << n;
    }
  }
}

TEST(CodecTest, ExactKeepsEveryBitAlsoOfNaN) {
  std::vector<float> values = {0.0f, -0.0f, 1e-42f, std::numeric_limits<float>::infinity(), std::nanf("7"), 3.4e38f};
  const Sent sent = Forward(Exact(), values);
  EXPECT_EQ(std::memcmp(sent.received.data(), values.data(), 4 * values.size()), 0);
}

TEST(CodecTest, DenseErrorsStayWithinTheirBounds) {
  for (const float scale : {1e-30f, 1e-9f, 1.0f, 1e4f, 1e30f}) {
    for (size_t n : kSizes) {
      const auto values = Normal(n, n + 2, scale);
      float greatest = 0;
      for (float x : values) greatest = std::max(greatest, std::abs(x));
      const auto half = Forward(Spec("fp16"), values).received, bfloat = Forward(Spec("bf16"), values).received;
      const auto int8 = Forward(Spec("int8"), values).received, int4 = Forward(Spec("int4"), values).received;
      for (size_t i = 0; i < n; ++i) {
        ASSERT_LE(std::abs(half[i] - values[i]), std::max(std::abs(values[i]) * 0x1p-11f, greatest * 0x1p-39f))
            << scale << " " << n << " " << i;
        ASSERT_LE(std::abs(bfloat[i] - values[i]), std::abs(values[i]) * 0x1p-8f);
        ASSERT_LE(std::abs(int8[i] - values[i]), BlockBound(values, i, 64, 127)) << scale << " " << n << " " << i;
        ASSERT_LE(std::abs(int4[i] - values[i]), BlockBound(values, i, 32, 7)) << scale << " " << n << " " << i;
      }
    }
  }
}

TEST(CodecTest, HalvesRoundToNearestEvenAndReachTheirSubnormals) {
  // 16384 fixes the exponent at 0, so these are IEEE halves as they stand.
  const std::vector<float> values = {16384,    1 + 0x1p-11f,    1 + 3 * 0x1p-11f, 0x1p-24f,
                                     0x1p-25f, 1.5f * 0x1p-24f, -0x1p-14f,        0x1p-14f - 0x1p-26f};
  const std::vector<float> rounded = {16384, 1, 1 + 0x1p-9f, 0x1p-24f, 0, 0x1p-23f, -0x1p-14f, 0x1p-14f};
  EXPECT_EQ(Forward(Spec("fp16"), values).received, rounded);
}

TEST(CodecTest, ZerosStayZeros) {
  for (const std::string& text : Specs())
    EXPECT_EQ(Forward(Spec(text), std::vector<float>(1000, 0.0f)).received, std::vector<float>(1000, 0.0f)) << text;
}

TEST(CodecTest, TopKReceivesTheGreatestAndNothingElse) {
  const auto values = Normal(50000, 5);
  const Sent sent = Forward(Spec("topk@20:fp16"), values);
  EXPECT_EQ(sent.sender_mask, sent.receiver_mask);
  ASSERT_EQ(sent.receiver_mask.kept(), 2500);
  float min_kept = 1e9f, greatest_dropped = 0;
  std::vector<bool> kept(values.size());
  for (uint32_t i : sent.receiver_mask.Indices()) kept[i] = true;
  for (size_t i = 0; i < values.size(); ++i) {
    if (kept[i]) {
      min_kept = std::min(min_kept, std::abs(values[i]));
      EXPECT_NEAR(sent.received[i], values[i], std::abs(values[i]) * 0x1p-11f);
    } else {
      greatest_dropped = std::max(greatest_dropped, std::abs(values[i]));
      EXPECT_EQ(sent.received[i], 0);
    }
  }
  EXPECT_GE(min_kept, greatest_dropped);
}

TEST(CodecTest, ATopKGradientIsWhatTheForwardMaskSelects) {
  for (const char* text : {"topk@3:int8", "topk@20:fp16", "topk@100:int8", "topk@7:int4"}) {
    const auto values = Normal(70000, 6), gradient = Normal(70000, 8, 1e-7f);
    const Sent sent = Forward(Spec(text), values);
    std::vector<std::byte> message;
    ASSERT_TRUE(Encode(Spec(text), Direction::kBackward, gradient, &sent.receiver_mask, nullptr, &message, nullptr).ok());
    std::vector<float> received(values.size(), 5.0f);
    ASSERT_TRUE(Decode(Direction::kBackward, message, &sent.sender_mask, received, nullptr).ok());
    std::vector<float> masked(values.size(), 0.0f);
    for (uint32_t i : sent.sender_mask.Indices()) masked[i] = gradient[i];
    for (size_t i = 0; i < masked.size(); ++i) {
      ASSERT_NEAR(received[i], masked[i], masked[i] == 0 ? 0 : 6e-7f / 127) << text << " " << i;
    }
  }
}

TEST(CodecTest, AnInt4ForwardHasAnInt8Gradient) {
  const auto values = Normal(6400, 9);
  std::vector<std::byte> as_int4, as_int8;
  ASSERT_TRUE(Encode(Spec("int4"), Direction::kBackward, values, nullptr, nullptr, &as_int4, nullptr).ok());
  ASSERT_TRUE(Encode(Spec("int8"), Direction::kBackward, values, nullptr, nullptr, &as_int8, nullptr).ok());
  EXPECT_EQ(as_int4, as_int8);
}

TEST(CodecTest, MasksMustBeWhereTheyBelong) {
  const auto values = Normal(1000, 10);
  std::vector<std::byte> message;
  const Mask mask = Forward(Spec("topk@10"), values).sender_mask;
  const auto encode = [&](const char* text, Direction direction, const Mask* m, size_t n) {
    return std::string(Encode(Spec(text), direction, std::span(values).first(n), m, nullptr, &message, nullptr).message());
  };
  EXPECT_THAT(encode("topk@10", Direction::kBackward, nullptr, 1000), HasSubstr("needs the mask"));
  EXPECT_THAT(encode("topk@10", Direction::kBackward, &mask, 999), HasSubstr("mask is for 1000 elements, the tensor has 999"));
  EXPECT_THAT(encode("int8", Direction::kBackward, &mask, 1000), HasSubstr("takes no mask"));
  EXPECT_THAT(encode("topk@10", Direction::kForward, &mask, 1000), HasSubstr("takes no mask"));
  const Mask dense;
  EXPECT_EQ(encode("int8", Direction::kBackward, &dense, 1000), "");
  std::vector<float> out(1000);
  EXPECT_THAT(std::string(Decode(Direction::kBackward, message, &mask, out, nullptr).message()), HasSubstr("takes no mask"));
  EXPECT_THAT(std::string(Decode(Direction::kForward, message, nullptr, out, nullptr).message()), HasSubstr("got a backward one"));
}

TEST(CodecTest, LossyCodecsNameTheElementTheyRefuse) {
  for (const std::string& text : Specs()) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), 1e37f}) {
      auto values = Normal(500, 11);
      values[321] = bad;
      std::vector<std::byte> message;
      const absl::Status status = Encode(Spec(text), Direction::kForward, values, nullptr, nullptr, &message, nullptr);
      if (Spec(text) == Exact()) {
        EXPECT_TRUE(status.ok());
        continue;
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
      EXPECT_THAT(std::string(status.message()), HasSubstr("element 321 is")) << text;
    }
  }
}

TEST(CodecTest, AMaskedGradientNamesTheElementByItsPlaceInTheTensor) {
  auto values = Normal(500, 12);
  values[123] = 50;
  const Mask mask = Forward(Spec("topk@10"), values).sender_mask;
  values[123] = std::nanf("");
  std::vector<std::byte> message;
  EXPECT_THAT(std::string(Encode(Spec("topk@10"), Direction::kBackward, values, &mask, nullptr, &message, nullptr).message()),
              HasSubstr("element 123 is non-finite"));
}

TEST(CodecTest, ErrorFeedbackSendsLaterWhatItHeldBack) {
  const auto values = Normal(1000, 13);
  for (const char* text : {"topk@10+ef", "int4+ef"}) {
    EncoderState state;
    std::vector<double> total(values.size(), 0.0);
    for (int round = 0; round < 200; ++round) {
      const Sent sent = Forward(Spec(text), values, &state);
      for (size_t i = 0; i < values.size(); ++i) total[i] += sent.received[i];
    }
    // The sum of what arrived differs from the sum of what was sent by the last residual alone.
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(total[i] + state.residual[i], 200.0 * values[i], 0.02) << text << " " << i;
  }
  std::vector<std::byte> message;
  EXPECT_FALSE(Encode(Spec("int4+ef"), Direction::kForward, values, nullptr, nullptr, &message, nullptr).ok());
}

TEST(CodecTest, EveryInstructionSetWritesTheSameBytes) {
  const auto values = Normal(70001, 14);
  std::vector<std::vector<std::byte>> reference;
  std::vector<std::vector<float>> decoded;
  for (int64_t targets = hwy::SupportedTargets() & HWY_TARGETS; targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (size_t i = 0; i < Specs().size(); ++i) {
      const Sent sent = Forward(Spec(Specs()[i]), values);
      if (reference.size() <= i) {
        reference.push_back(sent.message);
        decoded.push_back(sent.received);
      }
      EXPECT_EQ(sent.message, reference[i]) << Specs()[i] << " on " << hwy::TargetName(targets & -targets);
      EXPECT_EQ(sent.received, decoded[i]) << Specs()[i] << " on " << hwy::TargetName(targets & -targets);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_EQ(reference.size(), Specs().size());
}

TEST(IntegerCodecTest, NarrowsToWhatTheRangeNeeds) {
  const std::pair<std::vector<int32_t>, size_t> cases[] = {
      {{}, 0},
      {{-100, 0, 155}, 1},
      {{-100, 0, 156}, 2},
      {{0, 50256}, 2},
      {{0, 65536}, 4},
      {{std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(), -1, 0}, 4},
      {{2000000000, 2000000255}, 1},
  };
  for (const auto& [values, width] : cases) {
    std::vector<std::byte> message;
    ASSERT_TRUE(EncodeIntegers(values, &message).ok());
    EXPECT_EQ(message.size(), kHeaderBytes + width * values.size());
    if (!values.empty() && *std::min_element(values.begin(), values.end()) >= 0) {
      const int64_t below = int64_t{1} + *std::max_element(values.begin(), values.end());
      EXPECT_LE(static_cast<int64_t>(message.size()), EncodedIntegerBytes(static_cast<int64_t>(values.size()), below));
    }
    std::vector<int32_t> back(values.size());
    ASSERT_TRUE(DecodeIntegers(message, back).ok());
    EXPECT_EQ(back, values);
    std::vector<float> floats(values.size());
    EXPECT_FALSE(Decode(Direction::kForward, message, nullptr, floats, nullptr).ok());
  }
}

TEST(BfloatCodecTest, CarriesAnyBitsInTwoBytesEach) {
  std::vector<uint16_t> values(1 << 16), back(values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);  // NaNs and infinities among them
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    std::vector<std::byte> message;
    ASSERT_TRUE(EncodeBf16(direction, values, &message).ok());
    EXPECT_EQ(static_cast<int64_t>(message.size()), EncodedBytes(Exact(), static_cast<int64_t>(values.size()), direction, 2));
    ASSERT_TRUE(DecodeBf16(direction, message, back).ok());
    EXPECT_EQ(back, values);
  }
}

TEST(BfloatCodecTest, RefusesWhatIsNoTensorOfThisKind) {
  const std::vector<uint16_t> values(9, 0x3f80);
  std::vector<uint16_t> back(9), shorter(8);
  std::vector<float> floats(9);
  std::vector<std::byte> message, of_floats;
  ASSERT_TRUE(EncodeBf16(Direction::kForward, values, &message).ok());
  ASSERT_TRUE(Encode(Exact(), Direction::kForward, floats, nullptr, nullptr, &of_floats, nullptr).ok());
  EXPECT_THAT(std::string(Decode(Direction::kForward, message, nullptr, floats, nullptr).message()), HasSubstr("bfloats where floats"));
  EXPECT_THAT(std::string(DecodeBf16(Direction::kForward, of_floats, back).message()), HasSubstr("where bfloats were expected"));
  EXPECT_FALSE(DecodeBf16(Direction::kBackward, message, back).ok());
  EXPECT_FALSE(DecodeBf16(Direction::kForward, message, shorter).ok());
  message.pop_back();
  EXPECT_THAT(std::string(DecodeBf16(Direction::kForward, message, back).message()), HasSubstr("9 bfloats take 18 bytes"));
}

}  // namespace
}  // namespace fusionllm::compression
