// Damaged messages of every codec against the decoders: nothing may crash, read or write out of bounds (run it under a sanitizer), allocate
// more than the message and the tensor warrant, or let a number through that is not finite.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/base/testing/fuzz.h"
#include "lib/compression/codec.h"
#include "lib/compression/rows.h"
#include "lib/compression/testing/every_codec.h"
#include "lib/compression/testing/topk_message.h"

namespace {
size_t greatest_allocation = 0;
}  // namespace

// Replaced for this program to see the size of every allocation. Not inlined, or the compiler takes free() for a mismatch.
[[gnu::noinline]] void* operator new(size_t size) {
  greatest_allocation = std::max(greatest_allocation, size);
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace fusionllm::compression {
namespace {

constexpr int kMutationsPerCodec = 25000;

struct Seed {
  std::string name;
  uint8_t decoder;   // as codec_fuzz.cc chooses: 0 forward, 1 backward, 2 backward with a mask, 3 integers, 7 bfloats, 15 and 63 rows
  std::string spec;  // empty: not floats
};

const Seed kSeeds[] = {
    {"int8 gradient", 1, "int4"},
    {"top-k offsets", 0, "topk@40:int8"},
    {"top-k bitmap", 0, "topk@3:fp16"},
    {"top-k of int4", 0, "topk@3:int4"},
    {"masked int8", 2, "topk@3:int8"},
    {"masked fp16", 2, "topk@3:fp16"},
    {"masked int8 of int4", 2, "topk@3:int4"},
    {"masked int4", 2, "int4"},
    {"integers", 3, ""},
    {"bfloats", 7, ""},
    {"rows of one", 15, "int8"},
    {"rows of four", 63, "fp32"},
    {"rows of four in int4", 63, "int4"},
};

std::vector<Seed> EverySeed() {
  std::vector<Seed> seeds(std::begin(kSeeds), std::end(kSeeds));
  for (const std::string& codec : testing::EveryCodec({})) seeds.push_back({codec, 0, codec});
  return seeds;
}

std::vector<uint8_t> ValidInput(const Seed& seed, std::mt19937_64& rng) {
  const size_t n = seed.decoder == 2 || rng() % 2 ? rng() % 400 + 1 : rng() % 3000 + 1;
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& x : values) x = normal(rng);
  std::vector<std::byte> message;
  absl::Status status;
  if (seed.decoder % 16 == 15) {
    const size_t columns = seed.decoder / 16 + 1;
    values.resize(std::max(columns, n / columns * columns));
    for (size_t i = 0; i < values.size(); ++i) values[i] = i / columns % (1 + n % 5) == 0 ? values[i] : 0;
    std::vector<float> residual;
    status = EncodeRows(*ParseCodecSpec(seed.spec), columns, values, &residual, &message);
  } else if (seed.decoder == 7) {
    std::vector<uint16_t> bfloats(n);
    for (uint16_t& x : bfloats) x = static_cast<uint16_t>(rng());
    status = EncodeBf16(Direction::kForward, bfloats, &message);
  } else if (seed.spec.empty()) {
    std::vector<int32_t> integers(n);
    for (int32_t& x : integers) x = static_cast<int32_t>(rng() % (rng() % 2 ? 200 : 60000));
    status = EncodeIntegers(integers, &message);
  } else {
    std::vector<uint32_t> indices;
    for (size_t i = 0; i < n; i += 3) indices.push_back(static_cast<uint32_t>(i));
    const Mask mask = seed.decoder == 2 ? Mask::FromIndices(static_cast<int64_t>(n), indices) : Mask();
    const auto direction = seed.decoder == 0 ? Direction::kForward : Direction::kBackward;
    const CodecSpec spec = *ParseCodecSpec(seed.spec);
    if (seed.decoder == 2 && spec.kind == CodecKind::kInt4) {
      message = testing::TopKMessage(ValueKind::kInt4, direction, mask, std::span(values).first(indices.size()));
    } else {
      status = Encode(spec, direction, values, &mask, nullptr, &message, nullptr);
    }
  }
  EXPECT_TRUE(status.ok()) << seed.name << ": " << status;
  const size_t elements = values.size();
  std::vector<uint8_t> input = {seed.decoder, static_cast<uint8_t>(elements), static_cast<uint8_t>(elements >> 8)};
  input.resize(3 + message.size());
  std::memcpy(input.data() + 3, message.data(), message.size());
  return input;
}

// The header is where lies do most harm, so half of the damage goes there.
void Mutate(std::vector<uint8_t>& input, std::mt19937_64& rng) {
  for (uint64_t edits = rng() % 4 + 1; edits > 0; --edits) {
    const size_t reach = rng() % 2 ? std::min<size_t>(input.size(), 3 + kHeaderBytes) : input.size();
    const size_t at = 3 + rng() % std::max<size_t>(1, reach - std::min<size_t>(reach, 3));
    switch (rng() % 7) {
      case 0:
        if (at < input.size()) input[at] ^= static_cast<uint8_t>(1u << rng() % 8);
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<uint8_t>(rng());
        break;
      case 2:
        if (at + 2 <= input.size()) input[at] = input[at + 1] = rng() % 2 ? 0xff : 0x7f;
        break;
      case 3:
        input.resize(3 + rng() % (input.size() - 2));
        break;
      case 4:
        input.resize(input.size() + rng() % 40, static_cast<uint8_t>(rng()));
        break;
      case 5:
        if (at + 4 <= input.size()) std::memset(input.data() + at, rng() % 2 ? 0xff : 0, 4);
        break;
      case 6:
        input[1] = static_cast<uint8_t>(rng());  // another expected size
        break;
    }
  }
}

class MutationTest : public ::testing::TestWithParam<Seed> {};

TEST_P(MutationTest, DamagedMessagesAreHarmless) {
  const uint64_t seed = base::StableHash(GetParam().name);
  std::mt19937_64 rng(seed);
  const base::FuzzTarget target = base::TheFuzzTarget();
  for (int i = 0; i < kMutationsPerCodec; ++i) {
    std::vector<uint8_t> input = ValidInput(GetParam(), rng);
    Mutate(input, rng);
    const size_t elements = input[1] | size_t{input[2]} << 8;
    greatest_allocation = 0;
    target.accepts(absl::string_view(reinterpret_cast<const char*>(input.data()), input.size()));
    ASSERT_LE(greatest_allocation, std::max<size_t>(1024, 4 * elements + input.size())) << "seed " << seed << ", mutation " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryCodec, MutationTest, ::testing::ValuesIn(EverySeed()), [](const ::testing::TestParamInfo<Seed>& info) {
  std::string name = info.param.name;
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name;
});

TEST(UntrustedSizesTest, AHeaderThatClaimsMuchAllocatesLittle) {
  // Claims 2^30 elements, of which it keeps 2^30, in 16 bytes, while 4 elements are expected; and 2^30 of the 4.
  std::vector<std::byte> message(16, std::byte{0});
  const Mask mask = Mask::FromIndices(4, std::vector<uint32_t>{1, 3});
  const uint32_t claim = 1u << 30;
  for (const uint32_t elements : {claim, 4u}) {
    for (int form = 0; form < 9 * 2 * 4; ++form) {
      const int layout = form / 8, backward = form / 4 % 2, values = form % 4;
      message[0] = std::byte{1};
      message[1] = static_cast<std::byte>(layout);
      message[2] = static_cast<std::byte>(backward);
      message[3] = static_cast<std::byte>(values);
      std::memcpy(message.data() + 4, &elements, 4);
      std::memcpy(message.data() + 8, &claim, 4);
      float out[4];
      greatest_allocation = 0;
      for (const Mask* given : {&mask, static_cast<const Mask*>(nullptr)}) {
        EXPECT_FALSE(Decode(backward == 1 ? Direction::kBackward : Direction::kForward, message, given, out, nullptr).ok());
      }
      EXPECT_LE(greatest_allocation, 1024u) << "layout " << layout << ", direction " << backward << ", values " << values;
    }
  }
}

}  // namespace
}  // namespace fusionllm::compression
