// What each codec must be so that all that asks the registry holds together.
#include "lib/compression/registry.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/compression/codec.h"
#include "lib/compression/codec_guard.h"
#include "lib/compression/loss_prior.h"
#include "lib/compression/testing/lossy_kinds.h"

namespace fusionllm::compression {
namespace {

using ::testing::UnorderedElementsAreArray;

std::vector<const DenseCodec*> DenseCodecs() {
  std::vector<const DenseCodec*> dense;
  for (const Codec* codec : Codecs()) {
    if (codec->dense() != nullptr) dense.push_back(codec->dense());
  }
  return dense;
}

TEST(RegistryTest, HasEveryKindOnceInItsOrder) {
  ASSERT_FALSE(Codecs().empty());
  for (size_t i = 0; i < Codecs().size(); ++i) {
    ASSERT_NE(Codecs()[i], nullptr) << "no codec of kind " << i << ", or two of another";
    EXPECT_EQ(static_cast<size_t>(Codecs()[i]->traits.kind), i);
  }
  EXPECT_EQ(Codecs().front()->traits.kind, CodecKind::kExact);
  const std::vector<const Codec*> all(Codecs().begin(), Codecs().end()), listed(CodecsAsListed().begin(), CodecsAsListed().end());
  EXPECT_THAT(listed, UnorderedElementsAreArray(all));
}

TEST(RegistryTest, FindsACodecByNameByLayoutAndByValueKind) {
  std::set<std::string> names;
  for (const Codec* codec : Codecs()) {
    EXPECT_TRUE(names.insert(codec->traits.name).second) << codec->traits.name;
    EXPECT_EQ(FindCodec(codec->traits.name), codec);
    EXPECT_EQ(&CodecOf(codec->traits.kind), codec);
    if (codec->traits.values.has_value()) {
      ASSERT_NE(codec->dense(), nullptr) << "top-k writes no values by " << codec->traits.name;
      EXPECT_EQ(FindValueCodec(*codec->traits.values), codec->dense()) << "two codecs have these values";
      EXPECT_TRUE(CodecOf(codec->traits.gradient).traits.values.has_value()) << "gradients of such values have no form";
    }
    if (codec->dense() != nullptr) {
      EXPECT_EQ(FindDenseCodec(codec->dense()->layout), codec->dense()) << "two codecs have this layout";
    }
  }
  EXPECT_EQ(FindCodec("zstd"), nullptr);
  for (const Layout layout : {Layout::kTopK, Layout::kMasked, Layout::kIntegers, Layout::kNativeBf16}) {
    EXPECT_EQ(FindDenseCodec(layout), nullptr) << "a codec took a layout of other messages";
  }
}

TEST(RegistryTest, TraitsPointToCodecsThatLoseNoMore) {
  for (const Codec* codec : Codecs()) {
    const CodecTraits& traits = codec->traits;
    SCOPED_TRACE(traits.name);
    EXPECT_LE(traits.gradient, traits.kind);
    EXPECT_EQ(CodecOf(traits.gradient).traits.gradient, traits.gradient);
    EXPECT_EQ(CodecOf(traits.gradient).dense() == nullptr, codec->dense() == nullptr);
    EXPECT_LE(traits.level, traits.kind);
    EXPECT_EQ(CodecOf(traits.level).traits.level, traits.level);
    EXPECT_LE(traits.for_loss_inputs, traits.kind);
    EXPECT_EQ(CodecOf(traits.for_loss_inputs).traits.for_loss_inputs, traits.for_loss_inputs);
    EXPECT_GE(CodecOf(traits.for_loss_inputs).traits.bits_per_value, 16) << "int8 logits ruin training";
    if (traits.kind == CodecKind::kExact) {
      EXPECT_EQ(traits.after_divergence, CodecKind::kExact);
    } else {
      EXPECT_LT(traits.after_divergence, traits.kind);
      EXPECT_NE(CodecOf(traits.after_divergence).dense(), nullptr);
    }
    EXPECT_FALSE(codec->dense() == nullptr && traits.tied_loss_increase.has_value()) << "tied gradients are never sparsified";
    EXPECT_GE(traits.encoding_passes, 1);
  }
}

TEST(RegistryTest, AutomaticLevelsShrinkAndLoseMoreInTheOrderOfTheirKinds) {
  constexpr int64_t kElements = 1 << 16;
  for (const opdag::ActivationKind kind : testing::kLossyKinds) {
    int64_t bytes = EncodedBytes(Exact(), kElements, Direction::kForward);
    double loss = 0;
    for (const Codec* codec : Codecs()) {
      if (!codec->traits.automatic) continue;
      ASSERT_NE(codec->dense(), nullptr);
      const CodecSpec spec{.kind = codec->traits.kind};
      EXPECT_LT(EncodedBytes(spec, kElements, Direction::kForward), bytes) << codec->traits.name;
      EXPECT_GE(ExpectedLossIncrease(spec, kind, 300), loss) << codec->traits.name;
      bytes = EncodedBytes(spec, kElements, Direction::kForward);
      loss = ExpectedLossIncrease(spec, kind, 300);
    }
  }
}

// What bounds on the ratio of a link rest on (lib/planning/codec_adapter.cc).
TEST(RegistryTest, NoSizeTakesFewerBytesAValueThanABlockOf65536) {
  constexpr size_t kSample = size_t{1} << 16;
  for (const DenseCodec* codec : DenseCodecs()) {
    const double least = static_cast<double>(codec->ValueBytes(kSample)) / kSample;
    for (size_t n = 1; n < 1000; ++n) {
      EXPECT_GE(static_cast<double>(codec->ValueBytes(n)) / static_cast<double>(n), least) << codec->traits.name << " " << n;
    }
    EXPECT_GE(8 * least, codec->traits.bits_per_value) << codec->traits.name;
  }
}

TEST(RegistryTest, WhatACodecWritesIsFiniteToItself) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) - 8.5f;
  for (const DenseCodec* codec : DenseCodecs()) {
    std::vector<std::byte> written(codec->ValueBytes(values.size()));
    const absl::StatusOr<int32_t> parameter = codec->WriteValues(values, written.data());
    ASSERT_TRUE(parameter.ok()) << codec->traits.name;
    EXPECT_TRUE(codec->CheckParameter(*parameter).ok()) << codec->traits.name;
    EXPECT_TRUE(codec->AreFinite(written, values.size())) << codec->traits.name;
    std::vector<float> read(values.size());
    EXPECT_TRUE(codec->ReadValues(written.data(), *parameter, read).ok()) << codec->traits.name;
    EXPECT_EQ(codec->has_parameter() ? 0 : *parameter, 0) << codec->traits.name;
    // Any bits are a value to an exact codec; those of a lossy one that no sender writes are refused, with and without decoding them.
    std::memset(written.data(), 0xff, written.size());
    if (codec->traits.kind == CodecKind::kExact) continue;
    EXPECT_FALSE(codec->AreFinite(written, values.size())) << codec->traits.name;
    EXPECT_FALSE(codec->ReadValues(written.data(), *parameter, read).ok()) << codec->traits.name;
  }
}

}  // namespace
}  // namespace fusionllm::compression
