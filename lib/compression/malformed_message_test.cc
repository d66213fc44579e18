// Top-k and masked messages that no sender makes, whatever their kept values travel as: each is refused with what is wrong with it.
// mutation_test.cc damages messages at random; here each field is wrong in turn. Messages, masks and tensors lie in buffers of their exact
// size, so that a sanitizer sees what is read or written beyond them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/compression/codec.h"
#include "lib/compression/header.h"
#include "lib/compression/message.h"
#include "lib/compression/quantize.h"
#include "lib/compression/registry.h"
#include "lib/compression/testing/topk_message.h"

namespace fusionllm::compression {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

// What values are kept as, and whether the message is a masked gradient or a forward message with its mask. No sender masks int4 values,
// but a decoder meets what it is sent.
using Form = std::tuple<ValueKind, bool>;

constexpr size_t kElements = 300, kKept = 75;

struct Sample {
  Mask mask;
  std::vector<float> kept;
  Bytes message;
};

class MalformedMessageTest : public ::testing::TestWithParam<Form> {
 protected:
  ValueKind values() const { return std::get<0>(GetParam()); }
  bool masked() const { return std::get<1>(GetParam()); }
  Direction direction() const { return masked() ? Direction::kBackward : Direction::kForward; }
  const DenseCodec& codec() const { return *FindValueCodec(values()); }

  // `kept` of `elements` elements, evenly spaced.
  Sample Make(size_t elements, size_t kept) const {
    std::vector<uint32_t> indices(kept);
    for (size_t i = 0; i < kept; ++i) indices[i] = static_cast<uint32_t>(i * elements / kept);
    Sample sample{.mask = Mask::FromIndices(static_cast<int64_t>(elements), indices), .kept = std::vector<float>(kept), .message = {}};
    const base::CounterRng rng(1, "kept");
    for (size_t i = 0; i < kept; ++i) sample.kept[i] = static_cast<float>(rng.Normal(i));
    sample.message = testing::TopKMessage(values(), direction(), sample.mask, sample.kept);
    return sample;
  }

  size_t ValuesAt(const Sample& sample) const { return sample.message.size() - codec().ValueBytes(sample.kept.size()); }

  absl::Status DecodeTo(const Bytes& message, const Mask& mask, std::vector<float>& out) const {
    const Bytes exact(message.begin(), message.end());  // without the room that a resized one has
    return Decode(direction(), exact, masked() ? &mask : nullptr, out, nullptr);
  }

  // The message in which the bytes at `at` are those of `value`.
  template <typename Value>
  static Bytes With(Bytes message, size_t at, Value value) {
    EXPECT_LE(at + sizeof(value), message.size());
    std::memcpy(message.data() + at, &value, sizeof(value));
    return message;
  }

  void ExpectRefused(const Bytes& message, const Mask& mask, const std::string& why, size_t elements = kElements) const {
    std::vector<float> out(elements);
    const absl::Status status = DecodeTo(message, mask, out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }
};

TEST_P(MalformedMessageTest, WhatIsDamagedHereIsWhatSendersMake) {
  const Sample sample = Make(kElements, kKept);
  std::vector<float> tensor(kElements);
  sample.mask.Scatter(sample.kept, tensor);
  Bytes sent;
  ASSERT_TRUE(Encode(TopK(4, values()), direction(), tensor, masked() ? &sample.mask : nullptr, nullptr, &sent, nullptr).ok());
  if (masked() && values() == ValueKind::kInt4) {
    EXPECT_EQ(ReadHeader(sent, Direction::kBackward, kElements)->values, static_cast<uint8_t>(ValueKind::kInt8));
  } else {
    EXPECT_EQ(sent, sample.message);
  }
}

// A block that is not full is filled up with codes of nothing: whatever they say, and wherever the block ends, they are not looked at.
TEST_P(MalformedMessageTest, CountsThatFillNoBlockDecodeWhateverFillsItUp) {
  for (const size_t kept : {0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 97, 127, 129}) {
    SCOPED_TRACE(absl::StrCat(kept, " values"));
    const size_t elements = 3 * kept + 1;
    const Sample sample = Make(elements, kept);
    std::vector<float> decoded(elements, 5.0f), other(elements, 6.0f);
    const absl::Status status = DecodeTo(sample.message, sample.mask, decoded);
    ASSERT_TRUE(status.ok()) << status;
    std::vector<float> received(kept), only(elements);
    sample.mask.Gather(decoded, received);
    sample.mask.Scatter(received, only);
    EXPECT_EQ(decoded, only) << "nothing where nothing was kept";
    for (size_t i = 0; i < kept; ++i) EXPECT_NEAR(received[i], sample.kept[i], 0.3) << i;
    if (codec().layout != Layout::kInt4) continue;
    // Byte i of a block holds elements i and i + 16.
    Bytes filled = sample.message;
    const size_t codes_at = filled.size() - codec().ValueBytes(kept) + codec().ScaleBytes(kept);
    for (size_t i = kept; i < (kept + 31) / 32 * 32; ++i) {
      std::byte& both = filled[codes_at + i / 32 * 16 + i % 16];
      both ^= i % 32 < 16 ? std::byte{0x0f} : std::byte{0xf0};
    }
    EXPECT_EQ(filled == sample.message, kept % 32 == 0);
    ASSERT_TRUE(DecodeTo(filled, sample.mask, other).ok());
    EXPECT_EQ(other, decoded);
  }
}

TEST_P(MalformedMessageTest, EveryOtherLengthIsRefused) {
  for (const size_t kept : {size_t{1}, size_t{33}, kKept}) {
    const Sample sample = Make(kElements, kept);
    for (size_t left = 0; left < sample.message.size() + 40; ++left) {
      if (left == sample.message.size()) continue;
      Bytes cut = sample.message;
      cut.resize(left);
      const std::string length = masked() ? absl::StrCat("a payload of ", left - kHeaderBytes, " bytes is not ", kept, " values")
                                          : absl::StrCat("bytes, the message has ", left - kHeaderBytes);
      ExpectRefused(cut, sample.mask, left < kHeaderBytes ? absl::StrCat("at least 16 bytes, this one ", left) : length);
      if (HasFailure()) return;
    }
  }
}

TEST_P(MalformedMessageTest, EveryOtherCountIsRefused) {
  const Sample sample = Make(kElements, kKept);
  // One more or less takes as many bytes in int4, and as many for the mask's bitmap: the count alone is wrong.
  for (const uint32_t kept : {kKept - 1, kKept + 1, size_t{0}, size_t{64}, size_t{96}, kElements}) {
    const bool as_long = codec().ValueBytes(kept) == codec().ValueBytes(kKept) &&
                         Mask::SerializedBytes(kElements, kept) == Mask::SerializedBytes(kElements, kKept);
    const std::string why = masked()  ? absl::StrCat("gradient of ", kept, " values, the forward message kept ", kKept)
                            : as_long ? absl::StrCat("mask bitmap has ", kKept, " bits set, the header says ", kept)
                                      : absl::StrCat(kept, " of ", kElements, " elements take ");
    ExpectRefused(With(sample.message, 8, kept), sample.mask, why);
  }
  for (const uint32_t kept : {uint32_t{kElements + 1}, 1u << 30, 1u << 31, ~0u}) {
    ExpectRefused(With(sample.message, 8, kept), sample.mask, absl::StrCat("keeps more elements than there are: ", kept));
  }
  for (const uint32_t elements : {0u, 1u, uint32_t{kElements - 1}, uint32_t{kElements + 1}, 1u << 30, ~0u}) {
    ExpectRefused(With(sample.message, 4, elements), sample.mask, absl::StrCat("holds ", elements, " elements, expected ", kElements));
  }
}

TEST_P(MalformedMessageTest, ValuesOfAnotherKindAreRefused) {
  for (const size_t kept : {size_t{16}, kKept}) {  // 16 take 18 bytes in int8 as in int4
    const Sample sample = Make(kElements, kept);
    for (const int values : {3, 4, 0x7f, 0x80, 0xff}) {
      ExpectRefused(With(sample.message, 3, static_cast<uint8_t>(values)), sample.mask, absl::StrCat("unknown kind of values ", values));
    }
    for (const ValueKind other : {ValueKind::kFp16, ValueKind::kInt8, ValueKind::kInt4}) {
      if (other == values()) continue;
      const bool as_long = FindValueCodec(other)->ValueBytes(kept) == codec().ValueBytes(kept);
      EXPECT_EQ(as_long, kept == 16 && other != ValueKind::kFp16 && values() != ValueKind::kFp16);
      const std::string length = masked() ? absl::StrCat("bytes is not ", kept, " values") : "elements take ";
      ExpectRefused(With(sample.message, 3, static_cast<uint8_t>(other)), sample.mask, as_long ? "byte 12: blocks of" : length);
    }
  }
}

TEST_P(MalformedMessageTest, AnotherBlockSizeOrAnExponentOutOfRangeIsRefused) {
  const Sample sample = Make(kElements, kKept);
  const int32_t block = codec().block_size;
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min(), kMax = std::numeric_limits<int32_t>::max();
  for (const int32_t parameter : {kMin, -127, 107, kMax}) {
    const std::string why = block == 0 ? absl::StrCat("byte 12: exponent ", parameter, " is out of range")
                                       : absl::StrCat("byte 12: blocks of ", block, " are known, not of ", parameter);
    ExpectRefused(With(sample.message, 12, parameter), sample.mask, why);
  }
  for (const int32_t parameter : {-1, 0, 1, block - 1, block + 1, 96 - block}) {  // 96 - 32 and 96 - 64: the other one's
    if (block > 0) ExpectRefused(With(sample.message, 12, parameter), sample.mask, "byte 12: blocks of ");
  }
}

TEST_P(MalformedMessageTest, RejectsNaNScalesAndHalvesInEveryBlock) {
  for (const size_t kept : {size_t{1}, size_t{32}, size_t{65}, kKept}) {
    const Sample sample = Make(kElements, kept);
    const bool halves = codec().block_size == 0;
    const size_t words = halves ? kept : codec().ScaleBytes(kept) / 2;
    const std::vector<uint16_t> bad = halves ? std::vector<uint16_t>{0x7c00, 0x7e00, 0x7fff, 0xfc00, 0xffff}
                                             // infinity, NaN, their negatives, 2^127, just above the greatest, less than nothing
                                             : std::vector<uint16_t>{0x7f80, 0x7fc0, 0xff80, 0xffff, 0x7f00, kMaxScaleBits + 1, 0x8001};
    for (size_t word = 0; word < words; ++word) {
      for (const uint16_t bits : bad) {
        const Bytes damaged = With(sample.message, ValuesAt(sample) + 2 * word, bits);
        ExpectRefused(damaged, sample.mask, "a scale or value is infinite, NaN or out of range");
        // As a device judges it, which does not look at the numbers first.
        const auto read = ReadMessage(direction(), damaged, kElements,
                                      {.elements = masked() ? int64_t{kElements} : 0, .kept = static_cast<int64_t>(kept)});
        ASSERT_TRUE(read.ok()) << read.status();
        EXPECT_FALSE(read->codec->AreFinite(read->values, read->count)) << kept << " values, word " << word << ", bits " << bits;
      }
      const Bytes greatest = With(sample.message, ValuesAt(sample) + 2 * word, halves ? uint16_t{0x7bff} : kMaxScaleBits);
      std::vector<float> out(kElements);
      const absl::Status status = DecodeTo(greatest, sample.mask, out);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); }));
      EXPECT_NE(out, std::vector<float>(kElements));
    }
  }
}

class MaskedMessageTest : public MalformedMessageTest {};

TEST_P(MaskedMessageTest, AMaskThatIsNotTheForwardMessagesIsRefused) {
  const Sample sample = Make(kElements, kKept);
  const auto other = [this](size_t elements, size_t kept) { return Make(elements, kept).mask; };
  ExpectRefused(sample.message, other(kElements + 1, kKept), "the mask is for 301 elements, the tensor has 300");
  ExpectRefused(sample.message, other(kElements - 1, kKept), "the mask is for 299 elements, the tensor has 300");
  ExpectRefused(sample.message, other(70'000, kKept), "the mask is for 70000 elements, the tensor has 300");
  ExpectRefused(sample.message, other(kElements, kKept + 1), "gradient of 75 values, the forward message kept 76");
  ExpectRefused(sample.message, other(kElements, kElements), "gradient of 75 values, the forward message kept 300");
  ExpectRefused(sample.message, Mask(), "needs the mask of its forward message");
  ExpectRefused(sample.message, sample.mask, "holds 300 elements, expected 299", kElements - 1);
}

class TopKMessageTest : public MalformedMessageTest {};

TEST_P(TopKMessageTest, AMaskThatContradictsItselfIsRefused) {
  const Sample bitmap = Make(kElements, kKept);
  ASSERT_TRUE(Mask::UsesBitmap(kElements, kKept));
  Bytes damaged = bitmap.message;
  damaged[kHeaderBytes] ^= std::byte{2};  // of the first four elements only the first is kept
  ExpectRefused(damaged, {}, "mask bitmap has 76 bits set, the header says 75");
  damaged = bitmap.message;
  damaged[kHeaderBytes] ^= std::byte{1};
  damaged[kHeaderBytes + kElements / 8] ^= std::byte{0x80};  // 300 elements end in the middle of a byte
  ExpectRefused(damaged, {}, "mask bitmap has bits set beyond its 300 elements");

  const Sample offsets = Make(kElements, 3);
  ASSERT_FALSE(Mask::UsesBitmap(kElements, 3));
  const size_t at = kHeaderBytes + 4;  // behind the count of the one block
  ExpectRefused(With(offsets.message, at + 4, uint16_t{100}), {}, "offset 100 follows 100");
  ExpectRefused(With(offsets.message, at + 4, uint16_t{300}), {}, "offset 300 of 300 elements");
  ExpectRefused(With(offsets.message, kHeaderBytes, uint32_t{2}), {}, "mask blocks hold 2 indices, the header says 3");
  ExpectRefused(With(offsets.message, kHeaderBytes, ~0u), {}, "claims 4294967295 of 300 elements");
}

std::string NameOf(const ::testing::TestParamInfo<Form>& info) {
  constexpr std::array kNames = {"Fp16", "Int8", "Int4"};
  const auto [values, masked] = info.param;
  return absl::StrCat(masked ? "Masked" : "TopKOf", kNames[static_cast<size_t>(values)]);
}

constexpr auto kValueKinds = {ValueKind::kFp16, ValueKind::kInt8, ValueKind::kInt4};
INSTANTIATE_TEST_SUITE_P(EveryKindOfValues, MalformedMessageTest, ::testing::Combine(::testing::ValuesIn(kValueKinds), ::testing::Bool()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(EveryKindOfValues, MaskedMessageTest,
                         ::testing::Combine(::testing::ValuesIn(kValueKinds), ::testing::Values(true)), NameOf);
INSTANTIATE_TEST_SUITE_P(EveryKindOfValues, TopKMessageTest, ::testing::Combine(::testing::ValuesIn(kValueKinds), ::testing::Values(false)),
                         NameOf);

}  // namespace
}  // namespace fusionllm::compression
