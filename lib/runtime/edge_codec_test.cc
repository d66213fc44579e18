#include "lib/runtime/edge_codec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"

namespace fusionllm::runtime {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor RandomTensor(uint64_t seed, int64_t elements) {
  Tensor tensor({DType::kF32, {elements}});
  const base::CounterRng rng(seed, "values");
  for (int64_t i = 0; i < elements; ++i) tensor.f32()[i] = rng.Normal(i);
  return tensor;
}

// Value 5 crosses from stage 0 to stage 1; value 9 is its gradient.
constexpr CutEdge kForwardAtSender = {.value = 5, .peer = 1, .of = 5};
constexpr CutEdge kForwardAtReceiver = {.value = 5, .peer = 0, .of = 5};
constexpr CutEdge kGradientAtSender = {.value = 9, .peer = 0, .gradient = true, .of = 5};
constexpr CutEdge kGradientAtReceiver = {.value = 9, .peer = 1, .gradient = true, .of = 5};

TEST(CompressedEdgeCodecTest, TheGradientOfATopKEdgeIsWhatItsForwardMessageKept) {
  const LinkCodecs links = {{{0, 1}, compression::TopK(10, compression::ValueKind::kFp16)}};
  const EdgeCodecs upstream = CompressedEdgeCodec(0, links), downstream = CompressedEdgeCodec(1, links);
  constexpr int64_t kElements = 4096;
  Tensor received({DType::kF32, {kElements}}), gradient({DType::kF32, {kElements}});
  // Two micro-batches under way: each gradient must meet its own mask.
  std::vector<std::vector<bool>> kept(2, std::vector<bool>(kElements));
  for (const int slot : {0, 1}) {
    const Tensor activation = RandomTensor(slot, kElements);
    const auto message = upstream->Encode(kForwardAtSender, slot, activation.view());
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_LT(message->size(), kElements * sizeof(float) / 6);
    ASSERT_TRUE(downstream->Decode(kForwardAtReceiver, slot, *message, received.view()).ok());
    for (int64_t i = 0; i < kElements; ++i) kept[slot][i] = received.f32()[i] != 0;
  }
  EXPECT_NE(kept[0], kept[1]);
  for (const int slot : {0, 1}) {
    const Tensor dense = RandomTensor(100 + slot, kElements);
    const auto message = downstream->Encode(kGradientAtSender, slot, dense.view());
    ASSERT_TRUE(message.ok()) << message.status();
    ASSERT_TRUE(upstream->Decode(kGradientAtReceiver, slot, *message, gradient.view()).ok());
    for (int64_t i = 0; i < kElements; ++i) {
      if (kept[slot][i]) {
        EXPECT_NEAR(gradient.f32()[i], dense.f32()[i], 2e-3 * 5) << i;
      } else {
        EXPECT_EQ(gradient.f32()[i], 0) << i;
      }
    }
  }
}

TEST(CompressedEdgeCodecTest, IntegersAndLinksWithoutASpecAreExact) {
  const EdgeCodecs sender = CompressedEdgeCodec(0, {}), receiver = CompressedEdgeCodec(1, {});
  Tensor labels({DType::kI32, {3}}), out({DType::kI32, {3}});
  for (int i = 0; i < 3; ++i) labels.as<int32_t>()[i] = 1000 * i - 1;
  const auto message = sender->Encode(kForwardAtSender, 0, labels.view());
  ASSERT_TRUE(message.ok());
  ASSERT_TRUE(receiver->Decode(kForwardAtReceiver, 0, *message, out.view()).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(out.as<int32_t>()[i], 1000 * i - 1);

  const Tensor values = RandomTensor(3, 100);
  Tensor copy({DType::kF32, {100}});
  const auto exact = sender->Encode(kForwardAtSender, 0, values.view());
  ASSERT_TRUE(exact.ok());
  ASSERT_TRUE(receiver->Decode(kForwardAtReceiver, 0, *exact, copy.view()).ok());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(copy.f32()[i], values.f32()[i]);
}

TEST(EdgeCodecTest, RefusesAPayloadOfAnotherSize) {
  Tensor out({DType::kF32, {8}});
  for (const EdgeCodecs& codec : {ExactEdgeCodec(), CompressedEdgeCodec(1, {})}) {
    EXPECT_EQ(codec->Decode(kForwardAtReceiver, 0, Payload(5), out.view()).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace fusionllm::runtime
