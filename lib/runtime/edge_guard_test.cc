// What the sender of an edge does about a codec that loses too much: before the message leaves, and without a word to the receiver.
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/compression/codec.h"
#include "lib/compression/loss_divergence_detector.h"
#include "lib/runtime/edge_codec.h"
#include "lib/runtime/testing/edges.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::runtime {
namespace {

using compression::CodecKind;
using compression::CodecSpec;
using compression::Direction;
using compression::GuardMode;
using opdag::ActivationKind;
using tensor::DType;
using tensor::Tensor;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using testing::kForwardAtReceiver;
using testing::kForwardAtSender;
using testing::kGradientAtReceiver;
using testing::kGradientAtSender;
using testing::RandomTensor;
using ::testing::SizeIs;

constexpr int64_t kElements = 4096;

// A few values hold nearly all: what top-k is made for.
Tensor SparseTensor(uint64_t seed) {
  Tensor tensor = RandomTensor(seed, kElements);
  for (int64_t i = 0; i < kElements; ++i) tensor.f32()[i] *= i % 64 == 0 ? 1.0f : 0.01f;
  return tensor;
}

double ErrorBetween(const Tensor& original, const Tensor& decoded) {
  return compression::CompareTensors({original.f32(), kElements}, {decoded.f32(), kElements})->relative_error;
}

class EdgeGuardTest : public ::testing::Test {
 protected:
  void Connect(const CodecSpec& spec, ActivationKind kind, GuardMode mode = GuardMode::kAuto,
               std::map<std::pair<opdag::ValueId, bool>, CodecSpec> limits = {}, double nats = compression::kGuardLossBudget) {
    const LinkCodecs links = {{{0, 1}, spec}};
    GuardSettings guard = {.mode = mode,
                           .kinds = std::vector<ActivationKind>(10, kind),
                           .limits = std::move(limits),
                           .link_losses = {{{0, 1}, nats}},
                           .limit = ordered_};
    upstream_ = CompressedEdgeCodec(0, links, kComparisonPeriod, nullptr, {}, guard);
    downstream_ = CompressedEdgeCodec(1, links, kComparisonPeriod, nullptr, {}, guard);
  }
  // The message that an activation leaves as; `received_` is what comes out.
  Payload Forward(const Tensor& activation, bool training = true) {
    const auto message = upstream_->Encode(kForwardAtSender, 0, activation.view(), training);
    EXPECT_TRUE(message.ok()) << message.status();
    const absl::Status decoded = downstream_->Decode(kForwardAtReceiver, 0, *message, received_.view());
    EXPECT_TRUE(decoded.ok()) << decoded;
    return *message;
  }
  Payload Backward(const Tensor& gradient) {
    const auto message = downstream_->Encode(kGradientAtSender, 0, gradient.view(), true);
    EXPECT_TRUE(message.ok()) << message.status();
    const absl::Status decoded = upstream_->Decode(kGradientAtReceiver, 0, *message, returned_.view());
    EXPECT_TRUE(decoded.ok()) << decoded;
    return *message;
  }
  static std::string CodecOf(Direction direction, const Payload& message) {
    return ToString(compression::MessageFormatOf(direction, message, kElements)->spec);
  }
  std::vector<CodecBackoff> Backoffs() const { return upstream_->Compression().at(1).backoffs; }

  const std::shared_ptr<CodecLimit> ordered_ = std::make_shared<CodecLimit>();
  EdgeCodecPtr upstream_, downstream_;
  Tensor received_{{DType::kF32, {kElements}}}, returned_{{DType::kF32, {kElements}}};
};

TEST_F(EdgeGuardTest, LogitsThatLoseTooMuchDoNotLeaveAsTheyWere) {
  Connect(compression::TopK(24.8), ActivationKind::kLossInput);
  const Tensor logits = RandomTensor(1, kElements);
  Forward(logits);
  const double limit = compression::MaxRelativeError(compression::TopK(24.8), ActivationKind::kLossInput, Direction::kForward);
  EXPECT_LE(ErrorBetween(logits, received_), limit);
  ASSERT_THAT(Backoffs(), SizeIs(1));
  const CodecBackoff found = Backoffs()[0];
  EXPECT_EQ(found.of, 5);
  EXPECT_FALSE(found.gradient);
  EXPECT_EQ(found.kind, ActivationKind::kLossInput);
  EXPECT_EQ(ToString(found.from), "topk@24.8:int8");
  EXPECT_GT(found.relative_error, 0.5);
  EXPECT_NEAR(found.cosine, std::sqrt(1 - found.relative_error * found.relative_error), 0.01);
  EXPECT_EQ(found.limit, limit);
  EXPECT_LE(found.remaining_error, limit);
  for (int i = 0; i < 100; ++i) Forward(RandomTensor(static_cast<uint64_t>(2 + i), kElements));
  EXPECT_THAT(Backoffs(), SizeIs(1)) << "one step down, not one after the other";
}

TEST_F(EdgeGuardTest, TheGradientFollowsTheMessageThatItAnswers) {
  Connect(compression::TopK(30), ActivationKind::kLossInput);
  Forward(RandomTensor(1, kElements));
  const Tensor gradient = RandomTensor(2, kElements);
  Backward(gradient);
  EXPECT_LT(ErrorBetween(gradient, returned_), 0.01) << "all of it, not what a mask lets through";
}

TEST_F(EdgeGuardTest, WhatLosesLittleStaysAsPlanned) {
  Connect(compression::TopK(30), ActivationKind::kResidual);
  for (uint64_t i = 0; i < 80; ++i) {
    EXPECT_EQ(CodecOf(Direction::kForward, Forward(SparseTensor(i))).substr(0, 4), "topk");
    EXPECT_EQ(CodecOf(Direction::kBackward, Backward(RandomTensor(i, kElements))).substr(0, 4), "topk");
  }
  EXPECT_THAT(Backoffs(), IsEmpty());
  EXPECT_THAT(downstream_->Compression().at(0).backoffs, IsEmpty());
}

TEST_F(EdgeGuardTest, ACodecIsLeftWhenItBeginsToLoseTooMuch) {
  Connect(compression::TopK(30), ActivationKind::kResidual);
  for (uint64_t i = 0; i < 70; ++i) Forward(SparseTensor(i));
  int late = 0;
  while (Backoffs().empty() && late < 2 * kComparisonPeriod) Forward(RandomTensor(static_cast<uint64_t>(100 + late++), kElements));
  EXPECT_GT(late, 1) << "only samples are compared";
  EXPECT_LE(late, kComparisonPeriod);
  ASSERT_THAT(Backoffs(), SizeIs(1));
  EXPECT_LE(ErrorBetween(RandomTensor(static_cast<uint64_t>(100 + late - 1), kElements), received_), Backoffs()[0].limit);
}

TEST_F(EdgeGuardTest, ALinkThatMayCostLessIsHeldToLess) {
  const auto goes_by = [&](double nats) {
    Connect(compression::TopK(30), ActivationKind::kResidual, GuardMode::kAuto, {}, nats);
    const std::string codec = CodecOf(Direction::kForward, Forward(RandomTensor(1, kElements)));
    const Tensor gradient = RandomTensor(2, kElements);
    Backward(gradient);
    EXPECT_EQ(ErrorBetween(gradient, returned_) < 0.01, codec.substr(0, 4) != "topk") << "the gradient goes with its activation";
    return codec;
  };
  EXPECT_EQ(goes_by(0.5).substr(0, 6), "topk@7") << "the ratio of a message is that of whole numbers";
  EXPECT_EQ(goes_by(compression::kGuardLossBudget), "int4");
  EXPECT_EQ(goes_by(0.01), "int8");
}

// The same message of the same tensor: what its values cost depends on what they are to the model.
TEST_F(EdgeGuardTest, KeptInt4ValuesStayInsideAStreamAndAreLeftElsewhere) {
  const CodecSpec spec = compression::TopK(3, compression::ValueKind::kInt4);
  const Tensor activation = RandomTensor(1, kElements), gradient = RandomTensor(2, kElements);
  Connect(spec, ActivationKind::kInnerResidual);
  const Payload inner = Forward(activation);
  EXPECT_EQ(inner.size(), compression::EncodedBytes(spec, kElements, Direction::kForward));
  EXPECT_THAT(CodecOf(Direction::kForward, inner), EndsWith(":int4"));
  EXPECT_THAT(CodecOf(Direction::kBackward, Backward(gradient)), EndsWith(":int8"));
  EXPECT_THAT(Backoffs(), IsEmpty());
  EXPECT_THAT(downstream_->Compression().at(0).backoffs, IsEmpty());

  for (const ActivationKind kind : {ActivationKind::kResidual, ActivationKind::kAttentionInput}) {
    Connect(spec, kind);
    EXPECT_EQ(CodecOf(Direction::kForward, Forward(activation)), "int4") << opdag::Name(kind);
    EXPECT_EQ(CodecOf(Direction::kBackward, Backward(gradient)), "int8");
    ASSERT_THAT(Backoffs(), SizeIs(1));
    EXPECT_EQ(ToString(Backoffs()[0].from), "topk@3:int4");
    EXPECT_GT(Backoffs()[0].relative_error, Backoffs()[0].limit);
    // int8 values at this ratio lose nearly as much, and cost what the link may.
    Connect(compression::TopK(3), kind);
    Forward(activation);
    EXPECT_THAT(Backoffs(), IsEmpty()) << opdag::Name(kind);
  }
  for (const ActivationKind kind : {ActivationKind::kNormalized, ActivationKind::kHidden}) {
    Connect(spec, kind);
    EXPECT_EQ(CodecOf(Direction::kForward, Forward(activation)), kind == ActivationKind::kHidden ? "int8" : "int4");
  }
}

TEST_F(EdgeGuardTest, KeptInt4ValuesComeDownToARatioOfTwoAndThenAreLeft) {
  const auto goes_by = [&](double ratio, double nats) {
    Connect(compression::TopK(ratio, compression::ValueKind::kInt4), ActivationKind::kInnerResidual, GuardMode::kAuto, {}, nats);
    Forward(RandomTensor(1, kElements));
    EXPECT_THAT(Backoffs(), SizeIs(1));
    return ToString(Backoffs()[0].to);
  };
  EXPECT_EQ(goes_by(30, compression::kGuardLossBudget), "topk@3.75:int4");
  EXPECT_EQ(goes_by(16, 0.045), "topk@2:int4");
  EXPECT_EQ(goes_by(15, 0.045), "int4") << "15, 7.5 and 3.75 cost more, and 1.875 is not tried";
  EXPECT_EQ(goes_by(16, 0.02), "int8") << "as int4 costs more than the link may";
}

TEST_F(EdgeGuardTest, KeptInt4ValuesAreReportedAndStayWhereTheGuardOnlyWarns) {
  Connect(compression::TopK(4, compression::ValueKind::kInt4), ActivationKind::kResidual, GuardMode::kWarn);
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(CodecOf(Direction::kForward, Forward(RandomTensor(i, kElements))), "topk@4:int4");
  ASSERT_THAT(Backoffs(), SizeIs(1));
  EXPECT_EQ(Backoffs()[0].from, Backoffs()[0].to);
}

TEST_F(EdgeGuardTest, WarnModeReportsOnceAndChangesNothing) {
  Connect(compression::TopK(30), ActivationKind::kResidual, GuardMode::kWarn);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(CodecOf(Direction::kForward, Forward(RandomTensor(i, kElements))).substr(0, 4), "topk");
  ASSERT_THAT(Backoffs(), SizeIs(1));
  EXPECT_EQ(Backoffs()[0].from, Backoffs()[0].to);
}

TEST_F(EdgeGuardTest, WithoutGuardNothingIsReportedOrChanged) {
  Connect(compression::TopK(30), ActivationKind::kResidual, GuardMode::kNone);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(CodecOf(Direction::kForward, Forward(RandomTensor(i, kElements))).substr(0, 4), "topk");
  EXPECT_THAT(Backoffs(), IsEmpty());
}

TEST_F(EdgeGuardTest, WhatWasFoundBeforeHoldsFromTheFirstMessage) {
  Connect(compression::TopK(30), ActivationKind::kResidual, GuardMode::kAuto, {{{5, false}, {.kind = CodecKind::kInt8}}});
  EXPECT_EQ(CodecOf(Direction::kForward, Forward(SparseTensor(1))), "int8") << "top-k would lose little now";
  EXPECT_EQ(CodecOf(Direction::kBackward, Backward(RandomTensor(1, kElements))), "int8");
  EXPECT_THAT(Backoffs(), IsEmpty());
  Connect(compression::TopK(30), ActivationKind::kResidual, GuardMode::kAuto, {{{4, false}, {.kind = CodecKind::kInt8}}});
  EXPECT_EQ(CodecOf(Direction::kForward, Forward(SparseTensor(1))).substr(0, 4), "topk") << "of another value";
}

TEST_F(EdgeGuardTest, AnOrderHoldsFromTheNextMessageOnForEvaluationsToo) {
  Connect(compression::TopK(30), ActivationKind::kResidual, GuardMode::kNone);
  EXPECT_EQ(CodecOf(Direction::kForward, Forward(SparseTensor(1))).substr(0, 4), "topk");
  ordered_->Set({.kind = CodecKind::kInt8});
  EXPECT_EQ(CodecOf(Direction::kBackward, Backward(RandomTensor(1, kElements))).substr(0, 4), "topk") << "under the mask of what came";
  EXPECT_EQ(CodecOf(Direction::kForward, Forward(SparseTensor(2))), "int8");
  EXPECT_EQ(CodecOf(Direction::kBackward, Backward(RandomTensor(2, kElements))), "int8");
  EXPECT_EQ(CodecOf(Direction::kForward, Forward(SparseTensor(3), /*training=*/false)), "int8");
  ordered_->Set(compression::Exact());
  EXPECT_EQ(CodecOf(Direction::kForward, Forward(SparseTensor(4))), "fp32");
  EXPECT_EQ(ErrorBetween(SparseTensor(4), received_), 0);
}

TEST_F(EdgeGuardTest, TheSameTensorsLeadToTheSameBytes) {
  Connect(compression::TopK(100), ActivationKind::kResidual);
  std::vector<Payload> messages;
  for (uint64_t i = 0; i < 20; ++i) messages.push_back(Forward(RandomTensor(i, kElements)));
  Connect(compression::TopK(100), ActivationKind::kResidual);
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(Forward(RandomTensor(i, kElements)), messages[i]) << i;
}

TEST_F(EdgeGuardTest, WhatErrorFeedbackKeptOfAnotherCodecIsForgotten) {
  CodecSpec spec = compression::TopK(30);
  spec.error_feedback = true;
  Connect(spec, ActivationKind::kLossInput);
  const Tensor logits = RandomTensor(1, kElements);
  Forward(logits);
  ASSERT_THAT(Backoffs(), SizeIs(1));
  EXPECT_LE(ErrorBetween(logits, received_), Backoffs()[0].limit) << "nothing of the first attempt is added";
}

TEST_F(EdgeGuardTest, BytesCountMessagesThatWereSent) {
  Connect(compression::TopK(30), ActivationKind::kLossInput);
  const Payload message = Forward(RandomTensor(1, kElements));
  EXPECT_DOUBLE_EQ(upstream_->Compression().at(1).ratio, 4.0 * kElements / static_cast<double>(message.size()));
}

TEST_F(EdgeGuardTest, ABf16TensorFallsBackToWhatItIs) {
  Connect(compression::TopK(30), ActivationKind::kLossInput, GuardMode::kAuto, {{{5, false}, compression::Exact()}});
  Tensor bfloats({DType::kBF16, {kElements}}), out({DType::kBF16, {kElements}});
  tensor::RoundToBf16({RandomTensor(1, kElements).f32(), kElements}, bfloats.as<uint16_t>());
  const auto message = upstream_->Encode(kForwardAtSender, 0, bfloats.view(), true);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_TRUE(compression::MessageFormatOf(Direction::kForward, *message, kElements)->bfloats);
  ASSERT_TRUE(downstream_->Decode(kForwardAtReceiver, 0, *message, out.view()).ok());
  for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(out.as<uint16_t>()[i], bfloats.as<uint16_t>()[i]) << i;
}

}  // namespace
}  // namespace fusionllm::runtime
