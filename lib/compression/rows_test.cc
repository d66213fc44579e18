#include "lib/compression/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace fusionllm::compression {
namespace {

using RowsMessage = std::vector<std::byte>;

constexpr size_t kRows = 40, kColumns = 24;
const CodecSpec kInt8{.kind = CodecKind::kInt8}, kInt4{.kind = CodecKind::kInt4}, kBf16{.kind = CodecKind::kBf16};

// Normal values in every `stride`-th row, zeros in the others.
std::vector<float> Gradient(uint32_t seed, size_t stride) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRows * kColumns, 0.0f);
  for (size_t row = 0; row < kRows; row += stride) {
    for (size_t i = 0; i < kColumns; ++i) values[row * kColumns + i] = normal(random);
  }
  return values;
}

RowsMessage MustEncode(const CodecSpec& spec, std::vector<float>& values, std::vector<float>* residual = nullptr) {
  RowsMessage message;
  const absl::Status status = EncodeRows(spec, kColumns, values, residual, &message);
  EXPECT_TRUE(status.ok()) << status;
  return message;
}

std::vector<float> MustDecode(const RowsMessage& message) {
  std::vector<float> out(kRows * kColumns, 7.0f);
  const absl::Status status = DecodeRows(kColumns, message, out);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double Norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float x : values) squares += static_cast<double>(x) * x;
  return std::sqrt(squares);
}

TEST(GradientRowsTest, ExactMessagesKeepEveryBit) {
  std::vector<float> values = Gradient(1, 5);
  values[3] = -0.0f;
  values[4] = std::numeric_limits<float>::quiet_NaN();
  values[5] = -std::numeric_limits<float>::infinity();
  values[6] = std::numeric_limits<float>::denorm_min();
  values[kColumns] = -0.0f;  // all that its row has
  const std::vector<float> original = values;
  const RowsMessage message = MustEncode(Exact(), values);
  EXPECT_TRUE(SameBits(values, original));
  EXPECT_TRUE(SameBits(MustDecode(message), original));
}

TEST(GradientRowsTest, RowsOfZerosTakeABitEach) {
  std::vector<float> sparse = Gradient(1, 10), dense = Gradient(1, 1), zeros(kRows * kColumns, 0.0f);
  constexpr size_t kAround = 8 + kHeaderBytes, kBitmap = kRows / 8;
  EXPECT_EQ(MustEncode(Exact(), sparse).size(), kAround + kBitmap + 4 * kColumns * sizeof(float));
  EXPECT_EQ(MustEncode(Exact(), dense).size(), kAround + kRows * kColumns * sizeof(float)) << "without the bitmap";
  EXPECT_EQ(MustEncode(Exact(), zeros).size(), kAround + kBitmap);
  EXPECT_TRUE(SameBits(MustDecode(MustEncode(Exact(), zeros)), zeros));
}

TEST(GradientRowsTest, PredictedSizesMatchMessages) {
  for (const CodecSpec& spec : {Exact(), CodecSpec{.kind = CodecKind::kFp16}, kBf16, kInt8, kInt4}) {
    for (const size_t stride : {1, 3, 40}) {
      std::vector<float> values = Gradient(2, stride), residual;
      const int64_t occupied = static_cast<int64_t>((kRows + stride - 1) / stride);
      EXPECT_EQ(static_cast<int64_t>(MustEncode(spec, values, &residual).size()), EncodedRowsBytes(spec, kRows, kColumns, occupied))
          << ToString(spec) << ", every row of " << stride;
    }
  }
}

TEST(GradientRowsTest, SenderGoesOnWithWhatReceiversDecode) {
  for (const CodecSpec& spec : {CodecSpec{.kind = CodecKind::kFp16}, kBf16, kInt8, kInt4}) {
    for (const size_t stride : {1, 4}) {
      std::vector<float> values = Gradient(3, stride), residual;
      const std::vector<float> original = values;
      const RowsMessage message = MustEncode(spec, values, &residual);
      EXPECT_FALSE(SameBits(values, original)) << ToString(spec);
      EXPECT_TRUE(SameBits(MustDecode(message), values)) << ToString(spec);
      for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(residual[i], original[i] - values[i]) << ToString(spec) << " at " << i;
    }
  }
}

TEST(GradientRowsTest, ErrorFeedbackLosesNothingInTheLongRun) {
  for (const CodecSpec& spec : {kInt8, kInt4}) {
    std::vector<float> residual, sent(kRows * kColumns, 0.0f), wanted(kRows * kColumns, 0.0f), once;
    for (uint32_t step = 0; step < 64; ++step) {
      std::vector<float> values = Gradient(step, 1 + step % 3);
      for (size_t i = 0; i < values.size(); ++i) wanted[i] += values[i];
      MustEncode(spec, values, &residual);
      if (once.empty()) once = residual;
      for (size_t i = 0; i < values.size(); ++i) sent[i] += values[i];
    }
    std::vector<float> missing = wanted;
    for (size_t i = 0; i < missing.size(); ++i) missing[i] -= sent[i];
    EXPECT_LT(Norm(missing), 3 * Norm(once)) << ToString(spec) << ": as much as one message loses, not 64";
    for (size_t i = 0; i < missing.size(); ++i) ASSERT_NEAR(missing[i], residual[i], 1e-4) << ToString(spec);
  }
}

TEST(GradientRowsTest, ARowThatIsLeftOutKeepsItsResidual) {
  std::vector<float> first = Gradient(1, 1), residual;
  MustEncode(kInt4, first, &residual);
  const std::vector<float> before = residual;
  std::vector<float> second = Gradient(2, 8);
  MustEncode(kInt4, second, &residual);
  for (size_t row = 0; row < kRows; ++row) {
    const bool same =
        std::equal(residual.begin() + static_cast<int64_t>(row * kColumns), residual.begin() + static_cast<int64_t>((row + 1) * kColumns),
                   before.begin() + static_cast<int64_t>(row * kColumns));
    EXPECT_EQ(same, row % 8 != 0) << row;
  }
}

TEST(GradientRowsTest, AValueThatACodecRefusesIsSentAsItIs) {
  std::vector<float> values = Gradient(1, 2), residual;
  MustEncode(kInt8, values, &residual);
  const std::vector<float> before = residual;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0x1p121f}) {
    values = Gradient(2, 2);
    values[5] = bad;
    const std::vector<float> original = values;
    EXPECT_TRUE(SameBits(MustDecode(MustEncode(kInt8, values, &residual)), original)) << bad;
    EXPECT_TRUE(SameBits(values, original)) << bad;
    EXPECT_TRUE(SameBits(residual, before)) << bad;
  }
}

TEST(GradientRowsTest, WhatIsNoMatrixIsRefused) {
  std::vector<float> values(10, 1.0f), residual(3, 0.0f);
  RowsMessage message;
  EXPECT_FALSE(EncodeRows(Exact(), 3, values, nullptr, &message).ok());
  EXPECT_FALSE(EncodeRows(Exact(), 0, values, nullptr, &message).ok());
  EXPECT_FALSE(EncodeRows(TopK(2), 5, values, &residual, &message).ok());
  EXPECT_FALSE(EncodeRows(kInt8, 5, values, &residual, &message).ok()) << "a residual of another size";
  ASSERT_TRUE(EncodeRows(Exact(), 5, std::span<float>(), nullptr, &message).ok());
  EXPECT_TRUE(DecodeRows(5, message, std::span<float>()).ok());
}

TEST(GradientRowsTest, MalformedMessagesAreRefused) {
  std::vector<float> values = Gradient(1, 10);
  const RowsMessage whole = MustEncode(Exact(), values);
  const auto refused = [](const RowsMessage& message) {
    std::vector<float> out(kRows * kColumns);
    return !DecodeRows(kColumns, message, out).ok();
  };
  ASSERT_FALSE(refused(whole));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_TRUE(refused({whole.begin(), whole.begin() + static_cast<int64_t>(size)})) << size;
  const auto with = [&](size_t at, uint8_t byte) {
    RowsMessage message = whole;
    message[at] = std::byte{byte};
    return message;
  };
  const size_t trailer = whole.size() - 8, bitmap = trailer - kRows / 8;
  EXPECT_TRUE(refused(with(trailer, 2))) << "version";
  EXPECT_TRUE(refused(with(trailer + 1, 0))) << "says that it has all rows";
  EXPECT_TRUE(refused(with(trailer + 1, 2))) << "another form";
  EXPECT_TRUE(refused(with(trailer + 2, 1))) << "the unused field";
  EXPECT_TRUE(refused(with(trailer + 4, 5))) << "five rows of four";
  EXPECT_TRUE(refused(with(bitmap, 0))) << "a bitmap of three rows";
  RowsMessage longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_TRUE(refused(longer));
  // 36 rows have four bits too many in their last byte.
  std::vector<float> out(36 * kColumns);
  RowsMessage beyond = whole;
  beyond[bitmap + 4] = std::byte{0x80};
  beyond[bitmap + 3] = std::byte{0};
  EXPECT_FALSE(DecodeRows(kColumns, beyond, out).ok());
}

}  // namespace
}  // namespace fusionllm::compression
