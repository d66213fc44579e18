#include "lib/base/file_format.h"

#include <gtest/gtest.h>

#include <string>

namespace fusionllm::base {
namespace {

std::string NameOf(const std::string& bytes) {
  const FileFormat* const format = FormatOf(absl::string_view(bytes).substr(0, kFormatPrefixBytes), static_cast<int64_t>(bytes.size()));
  return format == nullptr ? "" : std::string(format->name);
}

TEST(FileFormatTest, FormatsAreKnownByTheirFirstBytes) {
  EXPECT_EQ(NameOf("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"), "a pointer of Git LFS");
  EXPECT_EQ(NameOf("/annex/objects/SHA256E-s5--0.bin\n"), "a pointer of git-annex");
  EXPECT_EQ(NameOf(std::string("\x1f\x8b\x08\0\0\0", 6)), "compressed (gzip)");
  EXPECT_EQ(NameOf("BZh91AY&SY.."), "compressed (bzip2)");
  EXPECT_EQ(NameOf("PK\x03\x04.."), "a zip archive");
  EXPECT_EQ(NameOf(std::string(257, 'x') + std::string("ustar\0", 6)), "a tar archive");
  EXPECT_EQ(NameOf("\x93NUMPY\x01"), "a .npy file");
  EXPECT_EQ(NameOf("PAR1.."), "a Parquet file");
  EXPECT_EQ(NameOf(std::string("ARROW1\0\0..", 10)), "an Arrow file");
  EXPECT_EQ(NameOf("GGUF\x03"), "a GGUF file");
  EXPECT_EQ(NameOf(std::string("\xff\xfe\0\0", 4)), "UTF-32");
  EXPECT_EQ(NameOf("\xff\xfe"
                   "a"),
            "UTF-16");
  EXPECT_EQ(NameOf("<!DOCTYPE HTML><html>"), "a web page");
  EXPECT_EQ(NameOf(std::string("\x40\0\0\0\0\0\0\0{\"a\":", 13)), "a safetensors file");
}

TEST(FileFormatTest, TextAndWhatIsTooShortIsOfNone) {
  for (const char* text : {"", "P", "some text", "{\"text\": \"a line of JSON\"}", "version 2 of a text"})
    EXPECT_EQ(NameOf(text), "") << text;
}

TEST(FileFormatTest, ATextAboutAPointerIsNone) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\n";
  EXPECT_EQ(NameOf(pointer + std::string(2000, 'x')), "");
}

}  // namespace
}  // namespace fusionllm::base
