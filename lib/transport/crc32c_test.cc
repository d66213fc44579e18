#include "lib/transport/crc32c.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace fusionllm::transport {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(ExtendCrc32c(0, Bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(ExtendCrc32c(0, Bytes(std::string(32, '\0'))), 0x8a9136aau);  // RFC 3720 appendix B.4
  EXPECT_EQ(ExtendCrc32c(0, {}), 0u);
}

TEST(Crc32c, TablesAndInstructionAgreeOnAnyLengthAndSplit) {
  constexpr uint32_t kSeed = 20240;
  std::mt19937 draw(kSeed);
  std::vector<std::byte> bytes(300);
  for (auto& b : bytes) b = static_cast<std::byte>(draw());
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::span<const std::byte> all(bytes.data() + n % 7, n > 7 ? n - 7 : 0);
    const size_t split = all.empty() ? 0 : draw() % all.size();
    const uint32_t whole = internal::ExtendCrc32cByTable(0, all);
    EXPECT_EQ(ExtendCrc32c(0, all), whole);
    EXPECT_EQ(ExtendCrc32c(ExtendCrc32c(0, all.first(split)), all.subspan(split)), whole);
  }
}

}  // namespace
}  // namespace fusionllm::transport
