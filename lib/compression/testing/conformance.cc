#include "lib/compression/testing/conformance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/compression/testing/every_codec.h"
#include "lib/compression/testing/topk_message.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::compression::testing {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

const std::vector<std::string>& Specs() {
  static const auto& specs = *new auto(EveryCodec({"topk@1:fp16", "topk@3:int8", "topk@20:fp16", "topk@100:int8", "topk@4:int4"}));
  return specs;
}
constexpr size_t kSizes[] = {0, 1, 2, 15, 31, 32, 33, 63, 64, 65, 127, 1000, 4095, 4097, 9001};
constexpr size_t kGuard = 16;
constexpr uint32_t kSentinel = 0xdeadbeefu;

CodecSpec Spec(absl::string_view text) { return *ParseCodecSpec(text); }

// A tensor of the codec's memory with sentinels behind it.
class Placed {
 public:
  Placed(tensor::Memory& memory, const Floats& values) : memory_(memory), count_(values.size()) {
    std::vector<uint32_t> all(count_ + kGuard, kSentinel);
    if (count_ > 0) std::memcpy(all.data(), values.data(), 4 * count_);
    block_ = *memory.Allocate(4 * all.size());
    EXPECT_TRUE(memory.CopyIn(block_.data(), all.data(), 4 * all.size()).ok());
  }
  std::span<float> span() const { return {reinterpret_cast<float*>(block_.data()), count_}; }
  Floats Read() const {
    std::vector<uint32_t> all(count_ + kGuard);
    EXPECT_TRUE(memory_.CopyOut(all.data(), block_.data(), 4 * all.size()).ok());
    for (size_t i = count_; i < all.size(); ++i) EXPECT_EQ(all[i], kSentinel) << "overwritten behind the tensor";
    Floats values(count_);
    if (count_ > 0) std::memcpy(values.data(), all.data(), 4 * count_);
    return values;
  }

 private:
  tensor::Memory& memory_;
  const size_t count_;
  tensor::MemoryBlock block_;
};

// Bit for bit: NaN and the sign of zero count.
void ExpectSameBits(const Floats& want, const Floats& got) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    uint32_t a, b;
    std::memcpy(&a, &want[i], 4);
    std::memcpy(&b, &got[i], 4);
    ASSERT_EQ(a, b) << "element " << i << ": " << want[i] << " and " << got[i];
  }
}

struct Input {
  std::string name;
  Floats values;
};

Floats Normals(size_t n, const std::string& name, float scale = 1) {
  const base::CounterRng rng(11, name);
  Floats values(n);
  for (size_t i = 0; i < n; ++i) values[i] = scale * static_cast<float>(rng.Normal(i));
  return values;
}

std::vector<Input> InputsOf(size_t n) {
  std::vector<Input> inputs;
  for (const float scale : {1.0f, 1e-9f, 1e-36f, 1e30f}) inputs.push_back({absl::StrCat("normal ", scale), Normals(n, "values", scale)});
  inputs.push_back({"denormals", Normals(n, "denormals", 1e-40f)});
  inputs.push_back({"zeros", Floats(n, 0.0f)});
  inputs.push_back({"negative zeros", Floats(n, -0.0f)});
  inputs.push_back({"ones", Floats(n, 1.0f)});
  Input relu{"half zeros", Normals(n, "relu")}, ties{"ties", Normals(n, "ties")}, few{"few", Floats(n, 0.0f)}, wide{"wide", Floats(n)};
  for (float& x : relu.values) x = std::max(x, 0.0f);
  for (float& x : ties.values) x = std::round(2 * x) / 2;
  for (size_t i = 3; i < n; i += 611) few.values[i] = static_cast<float>(i) - 700.0f;
  for (size_t i = 0; i < n; ++i) wide.values[i] = std::ldexp(i % 3 == 0 ? -1.25f : 1.75f, static_cast<int>(i * 37 % 240) - 120);
  for (Input* input : {&relu, &ties, &few, &wide}) inputs.push_back(std::move(*input));
  return inputs;
}

// One edge between two stages: what a message was, and what each end keeps.
struct HostEdge {
  Bytes message;
  Floats received;
  Mask sent_mask, received_mask;
};

HostEdge OnHost(const CodecSpec& spec, const Floats& values, EncoderState* state = nullptr) {
  HostEdge edge;
  EXPECT_TRUE(Encode(spec, Direction::kForward, values, nullptr, state, &edge.message, &edge.sent_mask).ok());
  edge.received.assign(values.size(), 7.0f);
  EXPECT_TRUE(Decode(Direction::kForward, edge.message, nullptr, edge.received, &edge.received_mask).ok());
  return edge;
}

Floats DecodedBy(TensorCodec& codec, Direction direction, const Bytes& message, const Selection* selection, size_t n, Selection* out) {
  const Placed room(codec.memory(), Floats(n, 5.0f));
  const absl::Status status = codec.Decode(direction, message, selection, room.span(), out);
  EXPECT_TRUE(status.ok()) << status;
  return room.Read();
}

void ExpectSameEdge(TensorCodec& codec, const CodecSpec& spec, const Floats& values, const Floats& gradient) {
  const size_t n = values.size();
  const HostEdge host = OnHost(spec, values);
  const Placed placed(codec.memory(), values), placed_gradient(codec.memory(), gradient);
  Selection sent, received;
  Bytes message;
  const absl::Status encoded = codec.Encode(spec, Direction::kForward, placed.span(), nullptr, nullptr, &message, &sent);
  ASSERT_TRUE(encoded.ok()) << encoded;
  ASSERT_EQ(message, host.message);
  ExpectSameBits(values, placed.Read());
  ExpectSameBits(host.received, DecodedBy(codec, Direction::kForward, message, nullptr, n, &received));

  const bool masked = spec.kind == CodecKind::kTopK;
  Bytes want, got;
  ASSERT_TRUE(Encode(spec, Direction::kBackward, gradient, &host.received_mask, nullptr, &want, nullptr).ok());
  const absl::Status back = codec.Encode(spec, Direction::kBackward, placed_gradient.span(), &received, nullptr, &got, nullptr);
  ASSERT_TRUE(back.ok()) << back;
  ASSERT_EQ(want, got);
  Floats decoded(n, 7.0f);
  ASSERT_TRUE(Decode(Direction::kBackward, want, masked ? &host.sent_mask : nullptr, decoded, nullptr).ok());
  ExpectSameBits(decoded, DecodedBy(codec, Direction::kBackward, got, masked ? &sent : nullptr, n, nullptr));
}

void ExpectSameStatus(const absl::Status& want, const absl::Status& got) {
  EXPECT_EQ(want.code(), got.code()) << want << " and " << got;
  EXPECT_EQ(want.message(), got.message());
}

}  // namespace

void ExpectSameMessages(TensorCodec& codec) {
  for (const std::string& text : Specs()) {
    for (const size_t n : kSizes) {
      const Floats gradient = Normals(n, "gradient", 1e-7f);
      for (const Input& input : InputsOf(n)) {
        SCOPED_TRACE(absl::StrCat(text, ", ", n, " elements, ", input.name));
        ExpectSameEdge(codec, Spec(text), input.values, gradient);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    // Masks of several blocks of 64 Ki.
    SCOPED_TRACE(absl::StrCat(text, ", 140001 elements"));
    ExpectSameEdge(codec, Spec(text), Normals(140001, "values"), Normals(140001, "gradient", 1e-7f));
  }
  {
    SCOPED_TRACE("so many that a sample is taken of them");
    ExpectSameEdge(codec, Spec("topk@100:fp16"), Normals(1050001, "values"), Normals(1050001, "gradient", 1e-7f));
  }
  Floats any = {0.0f, -0.0f, 1e-42f, std::numeric_limits<float>::infinity(), std::nanf("7"), 3.4e38f};
  SCOPED_TRACE("fp32 carries any bits");
  ExpectSameEdge(codec, Exact(), any, any);
}

void ExpectSelectionsKeptApart(TensorCodec& codec) {
  const CodecSpec spec = Spec("topk@10:fp16");
  constexpr size_t kElements = 3000;
  Selection selections[2];
  Mask masks[2];
  Bytes message;
  for (int slot = 0; slot < 2; ++slot) {
    const Placed values(codec.memory(), Normals(kElements, absl::StrCat("values ", slot)));
    ASSERT_TRUE(codec.Encode(spec, Direction::kForward, values.span(), nullptr, nullptr, &message, &selections[slot]).ok());
    masks[slot] = OnHost(spec, values.Read()).sent_mask;
  }
  for (int slot = 0; slot < 2; ++slot) {
    const Placed gradient(codec.memory(), Normals(kElements, "gradient"));
    Bytes want;
    ASSERT_TRUE(codec.Encode(spec, Direction::kBackward, gradient.span(), &selections[slot], nullptr, &message, nullptr).ok());
    ASSERT_TRUE(Encode(spec, Direction::kBackward, gradient.Read(), &masks[slot], nullptr, &want, nullptr).ok());
    EXPECT_EQ(message, want) << slot;
  }
}

void ExpectSameResiduals(TensorCodec& codec) {
  constexpr size_t kElements = 2501;
  for (const std::string& name : EveryCodec({"topk@10:int8", "topk@40:fp16", "topk@5:int4"})) {
    if (name == "fp32") continue;
    const std::string text = name + "+ef";
    SCOPED_TRACE(text);
    EncoderState host;
    SenderState state;
    Floats residual;
    ASSERT_TRUE(codec.ReadResidual(state, &residual).ok());
    EXPECT_TRUE(residual.empty());
    for (int round = 0; round < 4; ++round) {
      SCOPED_TRACE(absl::StrCat("message ", round));
      const Floats values = Normals(kElements, absl::StrCat("round ", round));
      const Placed placed(codec.memory(), values);
      if (round == 2) {  // a message that is refused leaves the residual as it is
        Floats bad = values;
        bad[77] = std::nanf("");
        const Placed placed_bad(codec.memory(), bad);
        Bytes message;
        Selection selection;
        EXPECT_FALSE(codec.Encode(Spec(text), Direction::kForward, placed_bad.span(), nullptr, &state, &message, &selection).ok());
      }
      Bytes message;
      Selection selection;
      ASSERT_TRUE(codec.Encode(Spec(text), Direction::kForward, placed.span(), nullptr, &state, &message, &selection).ok());
      ASSERT_EQ(message, OnHost(Spec(text), values, &host).message);
      ASSERT_TRUE(codec.ReadResidual(state, &residual).ok());
      ExpectSameBits(host.residual, residual);
    }
    // Through a checkpoint, into another sender.
    SenderState resumed;
    ASSERT_TRUE(codec.WriteResidual(residual, &resumed).ok());
    const Placed placed(codec.memory(), Normals(kElements, "after"));
    Bytes want, got;
    Selection selection;
    ASSERT_TRUE(codec.Encode(Spec(text), Direction::kForward, placed.span(), nullptr, &state, &want, &selection).ok());
    ASSERT_TRUE(codec.Encode(Spec(text), Direction::kForward, placed.span(), nullptr, &resumed, &got, &selection).ok());
    EXPECT_EQ(want, got);
    const Placed shorter(codec.memory(), Floats(5, 1.0f));
    ExpectSameStatus(Encode(Spec(text), Direction::kForward, Floats(5, 1.0f), nullptr, &host, &want, nullptr),
                     codec.Encode(Spec(text), Direction::kForward, shorter.span(), nullptr, &state, &got, nullptr));
    ExpectSameStatus(Encode(Spec(text), Direction::kForward, Floats(5, 1.0f), nullptr, nullptr, &want, nullptr),
                     codec.Encode(Spec(text), Direction::kForward, shorter.span(), nullptr, nullptr, &got, nullptr));
  }
}

void ExpectSameErrors(TensorCodec& codec) {
  constexpr size_t kElements = 500;
  Bytes want, got;
  for (const std::string& text : Specs()) {
    for (const float bad :
         {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), 1e37f, -1e37f}) {
      for (const size_t at : {size_t{0}, size_t{321}, kElements - 1}) {
        SCOPED_TRACE(absl::StrCat(text, ", ", bad, " at ", at));
        Floats values = Normals(kElements, "bad");
        values[at] = bad;
        const Placed placed(codec.memory(), values);
        Selection selection;
        ExpectSameStatus(Encode(Spec(text), Direction::kForward, values, nullptr, nullptr, &want, nullptr),
                         codec.Encode(Spec(text), Direction::kForward, placed.span(), nullptr, nullptr, &got, &selection));
      }
    }
  }
  const CodecSpec top_k = Spec("topk@10:fp16");
  Floats values = Normals(kElements, "masked");
  values[123] = 50;
  const HostEdge host = OnHost(top_k, values);
  Selection selection;
  const Placed placed(codec.memory(), values);
  ASSERT_TRUE(codec.Encode(top_k, Direction::kForward, placed.span(), nullptr, nullptr, &got, &selection).ok());
  values[123] = std::nanf("");                                          // kept
  values[0] = host.sent_mask.Indices()[0] == 0 ? 1.0f : std::nanf("");  // not kept: it is not looked at
  const Placed spoiled(codec.memory(), values);
  ExpectSameStatus(Encode(top_k, Direction::kBackward, values, &host.sent_mask, nullptr, &want, nullptr),
                   codec.Encode(top_k, Direction::kBackward, spoiled.span(), &selection, nullptr, &got, nullptr));
  const std::span<const float> shorter = std::span<const float>(values).first(kElements - 1);
  const struct {
    const char* spec;
    Direction direction;
    bool masked;
    std::span<const float> host;
    std::span<const float> placed;
  } cases[] = {{"topk@10", Direction::kBackward, false, values, spoiled.span()},
               {"topk@10", Direction::kBackward, true, shorter, spoiled.span().first(kElements - 1)},
               {"int8", Direction::kBackward, true, values, spoiled.span()},
               {"topk@10", Direction::kForward, true, values, spoiled.span()}};
  for (const auto& c : cases) {
    ExpectSameStatus(Encode(Spec(c.spec), c.direction, c.host, c.masked ? &host.sent_mask : nullptr, nullptr, &want, nullptr),
                     codec.Encode(Spec(c.spec), c.direction, c.placed, c.masked ? &selection : nullptr, nullptr, &got, nullptr));
  }
}

void ExpectSameHandlingOfCorruption(TensorCodec& codec) {
  constexpr size_t kElements = 150;
  const Placed placed(codec.memory(), Normals(kElements, "damage")), room(codec.memory(), Floats(kElements, 1.0f));
  Floats out(kElements);
  const auto judge_damage = [&](const Bytes& message, Direction direction, const Mask* mask, const Selection* selection) {
    int refused = 0;
    const auto judge = [&](std::span<const std::byte> damaged, const std::string& what) {
      SCOPED_TRACE(what);
      Selection unused;
      const absl::Status want = Decode(direction, damaged, mask, out, nullptr);
      const absl::Status got = codec.Decode(direction, damaged, selection, room.span(), selection == nullptr ? &unused : nullptr);
      ExpectSameStatus(want, got);
      refused += want.ok() ? 0 : 1;
      if (want.ok()) ExpectSameBits(out, room.Read());
    };
    judge(message, "whole");
    EXPECT_EQ(refused, 0);
    for (size_t i = 0; i < message.size(); ++i) {
      for (const int flip : {1, 0x80, 0xff}) {
        Bytes damaged = message;
        damaged[i] ^= static_cast<std::byte>(flip);
        judge(damaged, absl::StrCat("byte ", i, " ^ ", flip));
      }
    }
    for (const size_t left : {size_t{0}, size_t{15}, size_t{16}, message.size() - 1}) {
      judge(std::span(message).first(left), absl::StrCat(left, " bytes"));
    }
    EXPECT_GT(refused, 16);
    room.Read();
  };
  for (const std::string& text : Specs()) {
    SCOPED_TRACE(text);
    const HostEdge host = OnHost(Spec(text), placed.Read());
    judge_damage(host.message, Direction::kForward, nullptr, nullptr);
    if (Spec(text).kind != CodecKind::kTopK) continue;
    Bytes message;
    Selection selection;
    ASSERT_TRUE(codec.Encode(Spec(text), Direction::kForward, placed.span(), nullptr, nullptr, &message, &selection).ok());
    const Floats gradient = Normals(static_cast<size_t>(host.sent_mask.kept()), "gradient", 1e-7f);
    for (const ValueKind values : {ValueKind::kFp16, ValueKind::kInt8, ValueKind::kInt4}) {
      SCOPED_TRACE(absl::StrCat("gradient in form ", static_cast<int>(values)));
      const Bytes masked = TopKMessage(values, Direction::kBackward, host.sent_mask, gradient);
      judge_damage(masked, Direction::kBackward, &host.sent_mask, &selection);
    }
  }
}

void ExpectSameBf16(TensorCodec& codec) {
  using Words = std::vector<uint16_t>;
  std::vector<size_t> sizes(std::begin(kSizes), std::end(kSizes));
  sizes.push_back(0x10001);
  for (const size_t n : sizes) {
    SCOPED_TRACE(absl::StrCat(n, " elements"));
    Words bfloats(n + kGuard);  // of the greatest size every bit pattern, NaNs among them
    for (size_t i = 0; i < n; ++i) bfloats[i] = static_cast<uint16_t>(n > 0x10000 ? i : i * 219);
    const std::span<const uint16_t> given = std::span<const uint16_t>(bfloats).first(n);
    const tensor::MemoryBlock block = *codec.memory().Allocate(2 * bfloats.size());
    const std::span<uint16_t> placed(reinterpret_cast<uint16_t*>(block.data()), n);
    ASSERT_TRUE(codec.memory().CopyIn(block.data(), bfloats.data(), 2 * bfloats.size()).ok());
    const auto expect_held = [&](const Words& want) {
      Words held(bfloats.size());
      ASSERT_TRUE(codec.memory().CopyOut(held.data(), block.data(), 2 * held.size()).ok());
      EXPECT_EQ(want, held);
    };

    Bytes want, got;
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      ASSERT_TRUE(EncodeBf16(direction, given, &want).ok());
      ASSERT_TRUE(codec.EncodeBf16(direction, placed, &got).ok());
      EXPECT_EQ(want, got);
    }
    Floats wide(n);
    tensor::UpcastBf16(given, wide.data());
    const Placed widened(codec.memory(), Floats(n, 5.0f));
    ASSERT_TRUE(codec.Upcast(placed, widened.span()).ok());
    ExpectSameBits(wide, widened.Read());

    ASSERT_TRUE(codec.memory().Zero(block.data(), 2 * n).ok());
    ASSERT_TRUE(codec.DecodeBf16(Direction::kBackward, got, placed).ok());
    expect_held(bfloats);
    Words rounded(bfloats.size());
    for (float& x : wide) x *= 1.001f;  // on the way to the next
    tensor::RoundToBf16(wide, rounded.data());
    const Placed floats(codec.memory(), wide);
    ASSERT_TRUE(codec.Round(floats.span(), placed).ok());
    expect_held(rounded);
    ExpectSameBits(wide, floats.Read());
  }

  // Damage in every byte, and messages cut short.
  constexpr size_t kElements = 40;
  Bytes message;
  Words original(kElements, 0x4049), decoded(kElements);
  ASSERT_TRUE(EncodeBf16(Direction::kForward, original, &message).ok());
  const tensor::MemoryBlock block = *codec.memory().Allocate(2 * kElements);
  const std::span<uint16_t> placed(reinterpret_cast<uint16_t*>(block.data()), kElements);
  int refused = 0;
  const auto judge = [&](std::span<const std::byte> damaged) {
    const absl::Status want = DecodeBf16(Direction::kForward, damaged, decoded);
    ExpectSameStatus(want, codec.DecodeBf16(Direction::kForward, damaged, placed));
    if (!want.ok()) return ++refused;
    Words there(kElements);
    EXPECT_TRUE(codec.memory().CopyOut(there.data(), block.data(), 2 * kElements).ok());
    EXPECT_EQ(decoded, there);
    return refused;
  };
  for (size_t i = 0; i < message.size(); ++i) {
    Bytes damaged = message;
    damaged[i] ^= std::byte{0x81};
    judge(damaged);
  }
  for (const size_t left : {size_t{0}, size_t{15}, size_t{16}, message.size() - 1}) judge(std::span(message).first(left));
  EXPECT_GT(refused, 10);
}

void ExpectMessagesUnderWayKeptApart(TensorCodec& codec) {
  constexpr size_t kElements = 1500;
  constexpr int kMessages = 8;
  const Placed tensor(codec.memory(), Floats(kElements, 0.0f));
  const auto fill = [&](const void* from, size_t bytes) { ASSERT_TRUE(codec.memory().CopyIn(tensor.span().data(), from, bytes).ok()); };
  std::vector<Bytes> want;
  std::vector<std::unique_ptr<PendingMessage>> messages;
  const auto started = [&](absl::StatusOr<std::unique_ptr<PendingMessage>> message) {
    ASSERT_TRUE(message.ok()) << message.status();
    messages.push_back(*std::move(message));
  };
  for (const std::string& text : Specs()) {
    for (int i = 0; i < kMessages; ++i) {
      const Floats values = Normals(kElements, absl::StrCat(text, i));
      fill(values.data(), kElements * sizeof(float));
      started(codec.StartEncode(Spec(text), Direction::kForward, tensor.span(), nullptr, nullptr, nullptr));
      ASSERT_TRUE(Encode(Spec(text), Direction::kForward, values, nullptr, nullptr, &want.emplace_back(), nullptr).ok());
    }
  }
  const size_t of_floats = want.size();
  for (int i = 0; i < kMessages; ++i) {
    const std::vector<int32_t> ids(kElements, 1000 * i);
    fill(ids.data(), ids.size() * sizeof(int32_t));
    started(codec.StartEncodeIntegers({reinterpret_cast<const int32_t*>(tensor.span().data()), kElements}));
    ASSERT_TRUE(EncodeIntegers(ids, &want.emplace_back()).ok());
    const std::vector<uint16_t> bfloats(kElements, static_cast<uint16_t>(i));
    fill(bfloats.data(), bfloats.size() * sizeof(uint16_t));
    started(codec.StartEncodeBf16(Direction::kForward, {reinterpret_cast<const uint16_t*>(tensor.span().data()), kElements}));
    ASSERT_TRUE(EncodeBf16(Direction::kForward, bfloats, &want.emplace_back()).ok());
  }
  Floats bad = Normals(kElements, "bad");
  bad[900] = std::nanf("");
  fill(bad.data(), kElements * sizeof(float));
  const auto spoiled = codec.StartEncode(Spec("int8"), Direction::kForward, tensor.span(), nullptr, nullptr, nullptr);
  ASSERT_EQ(messages.size(), want.size());
  std::thread([&] {
    Bytes got;
    // A codec on the host has looked at the numbers already.
    const absl::Status status = spoiled.ok() ? (*spoiled)->Finish(&got) : spoiled.status();
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("element 900 is non-finite"));
    for (size_t i = messages.size(); i-- > 0;) {
      const size_t promised = messages[i]->size();
      ASSERT_TRUE(messages[i]->Finish(&got).ok());
      EXPECT_EQ(got, want[i]) << "message " << i;
      if (i < of_floats) {
        EXPECT_EQ(got.size(), promised);
      } else {
        EXPECT_LE(got.size(), promised);
      }
    }
  }).join();
}

void ExpectSameIntegersAndComparisons(TensorCodec& codec) {
  std::vector<int32_t> ids(300);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 131) - 77;
  tensor::MemoryBlock block = *codec.memory().Allocate(4 * ids.size());
  const std::span<int32_t> placed(reinterpret_cast<int32_t*>(block.data()), ids.size());
  Bytes want, got;
  ASSERT_TRUE(codec.memory().CopyIn(block.data(), ids.data(), 4 * ids.size()).ok());
  ASSERT_TRUE(EncodeIntegers(ids, &want).ok() && codec.EncodeIntegers(placed, &got).ok());
  EXPECT_EQ(want, got);
  ASSERT_TRUE(codec.memory().Zero(block.data(), 4 * ids.size()).ok());
  ASSERT_TRUE(codec.DecodeIntegers(got, placed).ok());
  std::vector<int32_t> back(ids.size());
  ASSERT_TRUE(codec.memory().CopyOut(back.data(), block.data(), 4 * ids.size()).ok());
  EXPECT_EQ(ids, back);

  const Floats values = Normals(2000, "compared"), gradient = Normals(2000, "gradient");
  const Placed placed_values(codec.memory(), values), placed_gradient(codec.memory(), gradient);
  const CodecSpec spec = Spec("topk@10:int8");
  Selection selection;
  ASSERT_TRUE(codec.Encode(spec, Direction::kForward, placed_values.span(), nullptr, nullptr, &got, &selection).ok());
  const auto lost = codec.Compare(Direction::kForward, placed_values.span(), got, nullptr);
  const auto expected = CompareTensors(values, OnHost(spec, values).received);
  ASSERT_TRUE(lost.ok() && expected.ok());
  EXPECT_EQ(lost->relative_error, expected->relative_error);
  ASSERT_TRUE(codec.Encode(spec, Direction::kBackward, placed_gradient.span(), &selection, nullptr, &got, nullptr).ok());
  const auto kept = codec.Compare(Direction::kBackward, placed_gradient.span(), got, &selection);
  ASSERT_TRUE(kept.ok());
  EXPECT_GT(kept->relative_error, 0);
  EXPECT_LT(kept->relative_error, 0.02) << "of a gradient only the elements kept are compared";
}

}  // namespace fusionllm::compression::testing
