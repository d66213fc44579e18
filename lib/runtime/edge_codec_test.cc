#include "lib/runtime/edge_codec.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/compression/loss_prior.h"
#include "lib/compression/testing/topk_message.h"
#include "lib/runtime/testing/edges.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::runtime {
namespace {

using tensor::DType;
using tensor::Tensor;
using testing::kForwardAtReceiver;
using testing::kForwardAtSender;
using testing::kGradientAtReceiver;
using testing::kGradientAtSender;
using testing::RandomTensor;

TEST(CompressedEdgeCodecTest, TheGradientOfATopKEdgeIsWhatItsForwardMessageKept) {
  const LinkCodecs links = {{{0, 1}, compression::TopK(10, compression::ValueKind::kFp16)}};
  const EdgeCodecPtr upstream = CompressedEdgeCodec(0, links), downstream = CompressedEdgeCodec(1, links);
  constexpr int64_t kElements = 4096;
  Tensor received({DType::kF32, {kElements}}), gradient({DType::kF32, {kElements}});
  // Two micro-batches under way: each gradient must meet its own mask.
  std::vector<std::vector<bool>> kept(2, std::vector<bool>(kElements));
  for (const int slot : {0, 1}) {
    const Tensor activation = RandomTensor(slot, kElements);
    const auto message = upstream->Encode(kForwardAtSender, slot, activation.view(), true);
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_LT(message->size(), kElements * sizeof(float) / 6);
    ASSERT_TRUE(downstream->Decode(kForwardAtReceiver, slot, *message, received.view()).ok());
    for (int64_t i = 0; i < kElements; ++i) kept[slot][i] = received.f32()[i] != 0;
  }
  EXPECT_NE(kept[0], kept[1]);
  for (const int slot : {0, 1}) {
    const Tensor dense = RandomTensor(100 + slot, kElements);
    const auto message = downstream->Encode(kGradientAtSender, slot, dense.view(), true);
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
  const EdgeCodecPtr sender = CompressedEdgeCodec(0, {}), receiver = CompressedEdgeCodec(1, {});
  Tensor labels({DType::kI32, {3}}), out({DType::kI32, {3}});
  for (int i = 0; i < 3; ++i) labels.as<int32_t>()[i] = 1000 * i - 1;
  const auto message = sender->Encode(kForwardAtSender, 0, labels.view(), true);
  ASSERT_TRUE(message.ok());
  ASSERT_TRUE(receiver->Decode(kForwardAtReceiver, 0, *message, out.view()).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(out.as<int32_t>()[i], 1000 * i - 1);

  const Tensor values = RandomTensor(3, 100);
  Tensor copy({DType::kF32, {100}});
  const auto exact = sender->Encode(kForwardAtSender, 0, values.view(), true);
  ASSERT_TRUE(exact.ok());
  ASSERT_TRUE(receiver->Decode(kForwardAtReceiver, 0, *exact, copy.view()).ok());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(copy.f32()[i], values.f32()[i]);
}

TEST(CompressedEdgeCodecTest, LossInputsAndDataAreSpentNoCodecThatTheirKindMayNotTake) {
  constexpr int64_t kElements = 4096;
  const LinkCodecs links = {{{0, 1}, {.kind = compression::CodecKind::kTopK, .ratio = 10, .error_feedback = true}}};
  for (const auto kind : {opdag::ActivationKind::kData, opdag::ActivationKind::kLossInput, opdag::ActivationKind::kHidden}) {
    std::vector<opdag::ActivationKind> kinds(6, opdag::ActivationKind::kHidden);
    kinds[5] = kind;
    const EdgeCodecPtr upstream = CompressedEdgeCodec(0, links, kComparisonPeriod, nullptr, kinds);
    const EdgeCodecPtr downstream = CompressedEdgeCodec(1, links, kComparisonPeriod, nullptr, kinds);
    const compression::CodecSpec own = compression::AllowedCodec(links.at({0, 1}), kind);
    const Tensor activation = RandomTensor(1, kElements), dense = RandomTensor(2, kElements);
    Tensor received({DType::kF32, {kElements}}), gradient({DType::kF32, {kElements}});
    const auto there = upstream->Encode(kForwardAtSender, 0, activation.view(), true);
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(there->size(), compression::EncodedBytes(own, kElements, compression::Direction::kForward));
    ASSERT_TRUE(downstream->Decode(kForwardAtReceiver, 0, *there, received.view()).ok());
    const auto back = downstream->Encode(kGradientAtSender, 0, dense.view(), true);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->size(), compression::EncodedBytes(own, kElements, compression::Direction::kBackward));
    ASSERT_TRUE(upstream->Decode(kGradientAtReceiver, 0, *back, gradient.view()).ok());
    EXPECT_EQ(upstream->Residual(kForwardAtSender) != nullptr, own.error_feedback);
    if (kind == opdag::ActivationKind::kHidden) continue;
    for (int64_t i = 0; i < kElements; ++i) {
      EXPECT_NEAR(received.f32()[i], activation.f32()[i], 2e-3 * 5) << i;
      EXPECT_NEAR(gradient.f32()[i], dense.f32()[i], 2e-3 * 5) << i;
    }
  }
}

TEST(CompressedEdgeCodecTest, SaysWhatCompressionDoesToEachLink) {
  const LinkCodecs links = {{{0, 1}, {.kind = compression::CodecKind::kInt8}}, {{1, 2}, compression::TopK(10)}};
  const EdgeCodecPtr sender = CompressedEdgeCodec(0, links, /*comparison_period=*/2);
  const Tensor values = RandomTensor(1, 6400);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(sender->Encode(kForwardAtSender, 0, values.view(), true).ok());
  ASSERT_EQ(sender->Compression().size(), 1u);
  const LinkCompression to_1 = sender->Compression().at(1);
  EXPECT_EQ(to_1.compared_messages, 3);
  EXPECT_NEAR(to_1.ratio, 3.9, 0.1);
  EXPECT_GT(to_1.relative_error, 1e-4);
  EXPECT_LT(to_1.relative_error, 0.02);
  EXPECT_GT(to_1.cosine, 0.999);
  EXPECT_NEAR(to_1.residual_norm, to_1.relative_error * 80, 0.1 * to_1.residual_norm) << "6400 standard normals have a norm of 80";

  // A gradient loses nothing by the forward's choice, only by the coding of its values.
  const EdgeCodecPtr middle = CompressedEdgeCodec(1, links, 1), last = CompressedEdgeCodec(2, links, 1);
  const CutEdge forward = {.value = 5, .peer = 2, .of = 5}, received = {.value = 5, .peer = 1, .of = 5};
  Tensor out({DType::kF32, {6400}});
  const auto message = middle->Encode(forward, 0, values.view(), true);
  ASSERT_TRUE(message.ok() && last->Decode(received, 0, *message, out.view()).ok());
  ASSERT_TRUE(last->Encode({.value = 9, .peer = 1, .gradient = true, .of = 5}, 0, RandomTensor(2, 6400).view(), true).ok());
  EXPECT_GT(middle->Compression().at(2).relative_error, 0.5) << "nine values of ten are gone";
  EXPECT_LT(last->Compression().at(1).relative_error, 0.02);
}

TEST(CompressedEdgeCodecTest, AnEvaluationLeavesNoTraceInErrorFeedback) {
  LinkCodecs links = {{{0, 1}, {.kind = compression::CodecKind::kInt4, .error_feedback = true}}};
  const EdgeCodecPtr disturbed = CompressedEdgeCodec(0, links), undisturbed = CompressedEdgeCodec(0, links);
  const Tensor values = RandomTensor(1, 640), others = RandomTensor(2, 640);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(disturbed->Encode(kForwardAtSender, 0, others.view(), /*training=*/false).ok());
    const auto a = disturbed->Encode(kForwardAtSender, 0, values.view(), true);
    const auto b = undisturbed->Encode(kForwardAtSender, 0, values.view(), true);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(*a, *b) << "message " << i;
  }
  EXPECT_EQ(*disturbed->Residual(kForwardAtSender), *undisturbed->Residual(kForwardAtSender));
  EXPECT_EQ(disturbed->Residual(kGradientAtSender), nullptr);
}

Tensor RoundedToBf16(const Tensor& floats) {
  Tensor out({DType::kBF16, floats.shape()});
  tensor::RoundToBf16({floats.f32(), static_cast<size_t>(floats.type().elements())}, out.as<uint16_t>());
  return out;
}

TEST(CompressedEdgeCodecTest, ABf16TensorIsSentInTwoBytesForEachValueAndAsItIs) {
  constexpr int64_t kElements = 1000;
  Tensor values = RoundedToBf16(RandomTensor(3, kElements)), out({DType::kBF16, {kElements}});
  values.as<uint16_t>()[7] = 0x7f81;  // a NaN with a payload
  values.as<uint16_t>()[8] = 0xff80;
  const EdgeCodecPtr sender = CompressedEdgeCodec(0, {}), receiver = CompressedEdgeCodec(1, {});
  for (const bool gradient : {false, true}) {
    const EdgeCodecPtr& from = gradient ? receiver : sender;
    const EdgeCodecPtr& to = gradient ? sender : receiver;
    const auto message = from->Encode(gradient ? kGradientAtSender : kForwardAtSender, 0, values.view(), true);
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(static_cast<int64_t>(message->size()), compression::kHeaderBytes + 2 * kElements);
    const absl::Status status = to->Decode(gradient ? kGradientAtReceiver : kForwardAtReceiver, 0, *message, out.view());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(std::memcmp(out.bytes().data(), values.bytes().data(), values.bytes().size()), 0);
    EXPECT_NEAR(from->Compression().at(gradient ? 0 : 1).ratio, 1, 0.01) << "against the bytes that it has, not those of fp32";
  }
}

TEST(CompressedEdgeCodecTest, LossyCodecsTakeABf16TensorAsTheFloatsThatItIs) {
  constexpr int64_t kElements = 6400;
  const Tensor values = RoundedToBf16(RandomTensor(1, kElements)), gradient = RoundedToBf16(RandomTensor(2, kElements));
  Tensor wide({DType::kF32, {kElements}}), wide_gradient({DType::kF32, {kElements}});
  tensor::UpcastBf16({values.as<uint16_t>(), kElements}, wide.f32());
  tensor::UpcastBf16({gradient.as<uint16_t>(), kElements}, wide_gradient.f32());
  for (const char* name : {"fp16", "bf16", "int8", "int4+ef", "topk@10:fp16"}) {
    SCOPED_TRACE(name);
    const LinkCodecs links = {{{0, 1}, *compression::ParseCodecSpec(name)}};
    // Both ends twice: for the tensor in bf16, and for the same numbers in fp32.
    const EdgeCodecPtr sender = CompressedEdgeCodec(0, links, 1), receiver = CompressedEdgeCodec(1, links, 1);
    const EdgeCodecPtr wide_sender = CompressedEdgeCodec(0, links, 1), wide_receiver = CompressedEdgeCodec(1, links, 1);
    Tensor out({DType::kBF16, {kElements}}), wide_out({DType::kF32, {kElements}});
    const auto expect_rounded = [&] {
      for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(out.as<uint16_t>()[i], tensor::RoundToBf16(wide_out.f32()[i])) << i;
    };
    for (int i = 0; i < 2; ++i) {  // the second with what error feedback kept of the first
      const auto message = sender->Encode(kForwardAtSender, 0, values.view(), true);
      const auto want = wide_sender->Encode(kForwardAtSender, 0, wide.view(), true);
      ASSERT_TRUE(message.ok() && want.ok());
      EXPECT_EQ(*message, *want);
      ASSERT_TRUE(receiver->Decode(kForwardAtReceiver, 0, *message, out.view()).ok());
      ASSERT_TRUE(wide_receiver->Decode(kForwardAtReceiver, 0, *want, wide_out.view()).ok());
      expect_rounded();
    }
    const auto back = receiver->Encode(kGradientAtSender, 0, gradient.view(), true);
    const auto want = wide_receiver->Encode(kGradientAtSender, 0, wide_gradient.view(), true);
    ASSERT_TRUE(back.ok() && want.ok());
    EXPECT_EQ(*back, *want);
    ASSERT_TRUE(sender->Decode(kGradientAtReceiver, 0, *back, out.view()).ok());
    ASSERT_TRUE(wide_sender->Decode(kGradientAtReceiver, 0, *want, wide_out.view()).ok());
    expect_rounded();
    const LinkCompression link = sender->Compression().at(1), wide_link = wide_sender->Compression().at(1);
    EXPECT_NEAR(link.ratio, wide_link.ratio / 2, 1e-9);
    EXPECT_EQ(link.relative_error, wide_link.relative_error);
  }
}

// What a peer sends instead of a message with kept int4 values, or of the int8 gradient under its mask: malformed_message_test has the
// fields one by one.
class UntrustedTopKTest : public ::testing::Test {
 protected:
  static constexpr int64_t kElements = 1000;
  const LinkCodecs links_ = {{{0, 1}, compression::TopK(3.9, compression::ValueKind::kInt4)}};
  const EdgeCodecPtr upstream_ = CompressedEdgeCodec(0, links_), downstream_ = CompressedEdgeCodec(1, links_);
  Tensor out_{{DType::kF32, {kElements}}};

  // Brings a micro-batch to the stage downstream, and returns its gradient's message there.
  Payload GradientOf(int slot) {
    const Payload message = *upstream_->Encode(kForwardAtSender, slot, RandomTensor(slot, kElements).view(), true);
    EXPECT_TRUE(downstream_->Decode(kForwardAtReceiver, slot, message, out_.view()).ok());
    return *downstream_->Encode(kGradientAtSender, slot, RandomTensor(100 + slot, kElements).view(), true);
  }
  absl::Status DecodedGradient(int slot, const Payload& message) {
    const Payload exact(message.begin(), message.end());  // without the room that a resized one has
    return upstream_->Decode(kGradientAtReceiver, slot, exact, out_.view());
  }
  static void ExpectRefused(const absl::Status& status, const std::string& why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(why));
  }
};

TEST_F(UntrustedTopKTest, ACutForwardMessageIsRefusedAndTheWholeOneTakenAfterIt) {
  const Payload message = *upstream_->Encode(kForwardAtSender, 0, RandomTensor(1, kElements).view(), true);
  ASSERT_EQ(message[3], std::byte{2}) << "the header's byte for int4 values";
  for (size_t left = 0; left < message.size(); ++left) {
    const Payload cut(message.begin(), message.begin() + static_cast<ptrdiff_t>(left));
    ExpectRefused(downstream_->Decode(kForwardAtReceiver, 0, cut, out_.view()), left < 16 ? "at least 16 bytes" : "the message has");
  }
  Payload longer = message;
  longer.push_back(std::byte{});
  ExpectRefused(downstream_->Decode(kForwardAtReceiver, 0, longer, out_.view()), "the message has");
  ASSERT_TRUE(downstream_->Decode(kForwardAtReceiver, 0, message, out_.view()).ok());
  const auto gradient = downstream_->Encode(kGradientAtSender, 0, RandomTensor(2, kElements).view(), true);
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  EXPECT_TRUE(DecodedGradient(0, *gradient).ok());
}

TEST_F(UntrustedTopKTest, AGradientMustAnswerTheForwardMessageOfItsMicroBatch) {
  const Payload message = GradientOf(0);
  ASSERT_EQ(message[3], std::byte{1}) << "int4 values have an int8 gradient";
  ExpectRefused(DecodedGradient(1, message), "needs the mask of its forward message");
  ASSERT_TRUE(upstream_->Encode(kForwardAtSender, 1, RandomTensor(1, kElements).view(), true).ok());
  Payload of_another = message;
  of_another[8] ^= std::byte{1};  // the count
  ExpectRefused(DecodedGradient(1, of_another), "the forward message kept 257");
  Payload cut = message;
  cut.pop_back();
  ExpectRefused(DecodedGradient(0, cut), "bytes is not 257 values");
  Payload in_int4 = message;
  in_int4[3] = std::byte{2};
  ExpectRefused(DecodedGradient(0, in_int4), "bytes is not 257 values");
  Payload in_nothing = message;
  in_nothing[3] = std::byte{3};
  ExpectRefused(DecodedGradient(0, in_nothing), "unknown kind of values 3");
  Payload infinite = message;
  infinite[16] = std::byte{0x80};  // the first block's scale
  infinite[17] = std::byte{0x7f};
  ExpectRefused(DecodedGradient(0, infinite), "infinite, NaN or out of range");
  EXPECT_TRUE(DecodedGradient(0, message).ok());
}

TEST_F(UntrustedTopKTest, AForwardMessageThatKeepsNothingHasAnEmptyGradient) {
  const compression::Mask none = compression::Mask::FromIndices(kElements, {});
  const Payload message = compression::testing::TopKMessage(compression::ValueKind::kInt4, compression::Direction::kForward, none, {});
  const absl::Status decoded = downstream_->Decode(kForwardAtReceiver, 0, message, out_.view());
  ASSERT_TRUE(decoded.ok()) << decoded;
  EXPECT_TRUE(std::all_of(out_.f32(), out_.f32() + kElements, [](float x) { return x == 0; }));
  const auto gradient = downstream_->Encode(kGradientAtSender, 0, RandomTensor(2, kElements).view(), true);
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  EXPECT_EQ(static_cast<int64_t>(gradient->size()), compression::kHeaderBytes);
}

TEST(EdgeCodecTest, RefusesAPayloadOfAnotherSize) {
  Tensor out({DType::kF32, {8}});
  for (const EdgeCodecPtr& codec : {ExactEdgeCodec(), CompressedEdgeCodec(1, {})}) {
    EXPECT_EQ(codec->Decode(kForwardAtReceiver, 0, Payload(5), out.view()).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace fusionllm::runtime
