#include "lib/base/truncate_utf8.h"

#include <gtest/gtest.h>

namespace fusionllm::base {
namespace {

TEST(TruncateUtf8Test, KeepsWhatFits) {
  EXPECT_EQ(TruncateUtf8("", 0), "");
  EXPECT_EQ(TruncateUtf8("abc", 3), "abc");
  EXPECT_EQ(TruncateUtf8("abcd", 3), "abc");
}

TEST(TruncateUtf8Test, NeverCutsACharacter) {
  const std::string text = "a\u00e9\u4e2d\U0001f600";  // of 1, 2, 3 and 4 bytes
  const std::string whole[] = {
      "", "a", "a", "a\u00e9", "a\u00e9", "a\u00e9", "a\u00e9\u4e2d", "a\u00e9\u4e2d", "a\u00e9\u4e2d", "a\u00e9\u4e2d", text};
  for (size_t bytes = 0; bytes <= 10; ++bytes) EXPECT_EQ(TruncateUtf8(text, bytes), whole[bytes]) << bytes;
}

}  // namespace
}  // namespace fusionllm::base
