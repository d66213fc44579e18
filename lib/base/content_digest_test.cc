#include "lib/base/content_digest.h"

#include <filesystem>
#include <vector>

#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::base {
namespace {

std::string DigestOf(const std::vector<std::string>& paths) {
  const auto digest = ContentDigest(paths);
  EXPECT_TRUE(digest.ok()) << digest.status();
  return digest.value_or("");
}

TEST(ContentDigestTest, ContentsAndOrderCountAndNamesDoNot) {
  const TempFolder folder;
  const std::string a = folder.Write("a", "some text"), b = folder.Write("b", "another"), copy = folder.Write("deep/copy", "some text");
  EXPECT_EQ(DigestOf({a}), DigestOf({copy}));
  EXPECT_NE(DigestOf({a}), DigestOf({b}));
  EXPECT_NE(DigestOf({a, b}), DigestOf({b, a}));
  EXPECT_NE(DigestOf({a}), DigestOf({folder.Write("c", "some texT")}));
  EXPECT_NE(DigestOf({folder.Write("d", "some "), folder.Write("e", "text")}), DigestOf({a}));
  EXPECT_NE(DigestOf({}), DigestOf({folder.Write("empty", "")}));
}

TEST(ContentDigestTest, OfAFileTooLargeToReadItsEndsAndItsLengthCount) {
  const TempFolder folder;
  const std::string path = folder.Write("large", "begin");
  std::filesystem::resize_file(path, int64_t{100} << 20);  // a hole
  const std::string before = DigestOf({path});
  std::filesystem::resize_file(path, (int64_t{100} << 20) + 1);
  EXPECT_NE(DigestOf({path}), before);
  std::filesystem::resize_file(path, int64_t{100} << 20);
  EXPECT_EQ(DigestOf({path}), before);
  folder.Write("large", "Begin");
  std::filesystem::resize_file(path, int64_t{100} << 20);
  EXPECT_NE(DigestOf({path}), before);
}

TEST(ContentDigestTest, AFileThatIsNotThereIsNamed) {
  const std::vector<std::string> nowhere = {"/nowhere/f"};
  EXPECT_TRUE(absl::IsNotFound(ContentDigest(nowhere).status()));
}

}  // namespace
}  // namespace fusionllm::base
