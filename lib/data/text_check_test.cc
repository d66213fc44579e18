#include "lib/data/text_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::data {
namespace {

using ::testing::HasSubstr;

TEST(TextCheckTest, SequencesMayLieAcrossTheEndOfWhatIsReadAtATime) {
  const base::TempFolder folder;
  for (const size_t before : {(size_t{1} << 20) - 3, (size_t{1} << 20) - 2, (size_t{1} << 20) - 1, size_t{1} << 20}) {
    const std::string path = folder.Write("long", std::string(before, 'x') + "\xf0\x9f\x99\x82 and on");
    const auto file = base::SourceFile::Open(path, true);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(WhyNotText(*file, file->size())->why, "");
    EXPECT_EQ(WhyNotText(*file, static_cast<int64_t>(before) + 2)->why, "") << "cut off by the limit alone";
    const auto broken = base::SourceFile::Open(folder.Write("broken", std::string(before, 'x') + "\xf0\x9f\x99"), true);
    EXPECT_THAT(WhyNotText(*broken, broken->size())->why, HasSubstr(absl::StrCat("byte 0xf0 at offset ", before)));
  }
  EXPECT_EQ(FirstNotUtf8("\xc0\x80", true), 0) << "overlong";
  EXPECT_EQ(FirstNotUtf8("a\xed\xa0\x80", true), 1) << "a surrogate";
}

}  // namespace
}  // namespace fusionllm::data
