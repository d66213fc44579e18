#include "lib/collective/chain_messages.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace fusionllm::collective {
namespace {

using tensor::DType;
using tensor::TensorType;

TEST(ChainMessagesTest, AGreetingSaysWhatIsCalled) {
  const TensorType types[] = {{DType::kF32, {2, 3}}, {DType::kBF16, {7}}};
  const int chain[] = {0, 1};
  const CallHeader call_header = Describe("AllReduce", types, chain, 100);
  EXPECT_EQ(call_header.call, "AllReduce f32[6], bf16[7]");
  const auto again = ParseCallHeader(Encode(call_header));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, call_header);
}

TEST(ChainMessagesTest, CallHeaderListsFirstTensorsAndDigestsAll) {
  std::vector<TensorType> types(1000, {DType::kF32, {2}});
  const int chain[] = {0, 1};
  const CallHeader call_header = Describe("AllReduce", types, chain, 100);
  EXPECT_EQ(call_header.call, "AllReduce f32[2], f32[2], f32[2], f32[2], f32[2], f32[2] and 994 more");
  types.back() = {DType::kF32, {3}};
  const CallHeader other = Describe("AllReduce", types, chain, 100);
  EXPECT_EQ(other.call, call_header.call);
  EXPECT_NE(other.digest, call_header.digest);
  types.back() = {DType::kBF16, {2}};
  EXPECT_NE(Describe("AllReduce", types, chain, 100).digest, call_header.digest);
}

TEST(ChainMessagesTest, AFarewellKeepsItsStatus) {
  for (const CloseMessage& close_message :
       {CloseMessage{.why = absl::OkStatus(), .calls = 12}, CloseMessage{.why = absl::CancelledError("told to stop")}}) {
    const auto again = ParseCloseMessage(Encode(close_message));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->why, close_message.why);
    EXPECT_EQ(again->calls, close_message.calls);
  }
  const auto cut = ParseCloseMessage(Encode(CloseMessage{.why = absl::UnavailableError(std::string(100'000, 'x'))}));
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->why.message().size(), 2048u);
}

// Bytes from elsewhere: refused, or a text that a terminal shows.
TEST(ChainMessagesTest, AnyBytes) {
  std::mt19937 draw(1);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> bytes(i < 40 ? static_cast<size_t>(i) : draw() % 3000);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(draw() % 3 == 0 ? draw() : draw() % 2 * 10);
    const auto call_header = ParseCallHeader(bytes);
    const auto close_message = ParseCloseMessage(bytes);
    EXPECT_EQ(call_header.ok(), bytes.size() >= 8 && bytes.size() <= 8 + 512);
    refused += !close_message.ok();
    for (const absl::string_view text :
         {call_header.ok() ? call_header->call : "", close_message.ok() ? std::string(close_message->why.message()) : ""}) {
      for (const char c : text) EXPECT_FALSE(c >= 0 && c < ' ');
    }
  }
  EXPECT_GT(refused, 1000);
  std::vector<std::byte> no_code = Encode(CloseMessage{.why = absl::CancelledError("x")});
  for (const int code : {-1, 17, 127}) {
    no_code[8] = static_cast<std::byte>(code);
    if (code < 0) std::fill(no_code.begin() + 8, no_code.begin() + 16, std::byte{0xFF});
    EXPECT_EQ(ParseCloseMessage(no_code).status().message(), "17 bytes are no close message");
  }
}

}  // namespace
}  // namespace fusionllm::collective
