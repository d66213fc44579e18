#include "lib/collective/chain_letters.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace fusionllm::collective {
namespace {

using tensor::DType;
using tensor::TensorType;

TEST(ChainLettersTest, AGreetingSaysWhatIsCalled) {
  const TensorType types[] = {{DType::kF32, {2, 3}}, {DType::kBF16, {7}}};
  const int chain[] = {0, 1};
  const Greeting greeting = Describe("AllReduce", types, chain, 100);
  EXPECT_EQ(greeting.call, "AllReduce f32[6], bf16[7]");
  const auto again = ParseGreeting(Encode(greeting));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, greeting);
}

TEST(ChainLettersTest, OfManyTensorsTheFirstAreToldAndTheDigestKnowsAll) {
  std::vector<TensorType> types(1000, {DType::kF32, {2}});
  const int chain[] = {0, 1};
  const Greeting greeting = Describe("AllReduce", types, chain, 100);
  EXPECT_EQ(greeting.call, "AllReduce f32[2], f32[2], f32[2], f32[2], f32[2], f32[2] and 994 more");
  types.back() = {DType::kF32, {3}};
  const Greeting other = Describe("AllReduce", types, chain, 100);
  EXPECT_EQ(other.call, greeting.call);
  EXPECT_NE(other.digest, greeting.digest);
  types.back() = {DType::kBF16, {2}};
  EXPECT_NE(Describe("AllReduce", types, chain, 100).digest, greeting.digest);
}

TEST(ChainLettersTest, AFarewellKeepsItsStatus) {
  for (const Farewell& farewell : {Farewell{.why = absl::OkStatus(), .calls = 12}, Farewell{.why = absl::CancelledError("told to stop")}}) {
    const auto again = ParseFarewell(Encode(farewell));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->why, farewell.why);
    EXPECT_EQ(again->calls, farewell.calls);
  }
  const auto cut = ParseFarewell(Encode(Farewell{.why = absl::UnavailableError(std::string(100'000, 'x'))}));
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->why.message().size(), 2048u);
}

// Bytes from elsewhere: refused, or a text that a terminal shows.
TEST(ChainLettersTest, AnyBytes) {
  std::mt19937 draw(1);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> bytes(i < 40 ? static_cast<size_t>(i) : draw() % 3000);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(draw() % 3 == 0 ? draw() : draw() % 2 * 10);
    const auto greeting = ParseGreeting(bytes);
    const auto farewell = ParseFarewell(bytes);
    EXPECT_EQ(greeting.ok(), bytes.size() >= 8 && bytes.size() <= 8 + 512);
    refused += !farewell.ok();
    for (const absl::string_view text : {greeting.ok() ? greeting->call : "", farewell.ok() ? std::string(farewell->why.message()) : ""}) {
      for (const char c : text) EXPECT_FALSE(c >= 0 && c < ' ');
    }
  }
  EXPECT_GT(refused, 1000);
  std::vector<std::byte> no_code = Encode(Farewell{.why = absl::CancelledError("x")});
  for (const int code : {-1, 17, 127}) {
    no_code[8] = static_cast<std::byte>(code);
    if (code < 0) std::fill(no_code.begin() + 8, no_code.begin() + 16, std::byte{0xFF});
    EXPECT_EQ(ParseFarewell(no_code).status().message(), "17 bytes are no farewell");
  }
}

}  // namespace
}  // namespace fusionllm::collective
