#include "lib/checkpoint/hashed_file.h"

#include <filesystem>

#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::checkpoint {
namespace {

TEST(Sha256Test, GivesThePublishedDigests) {
  const base::TempFolder folder;  // the examples of FIPS 180-4's companion document
  EXPECT_EQ(Sha256OfFile(folder.Write("abc", "abc")).value(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256OfFile(folder.Write("empty", "")).value(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256OfFile(folder.Write("million", std::string(1'000'000, 'a'))).value(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(HashedFileTest, KnowsLengthAndChecksumOfWhatItWroteInPieces) {
  const base::TempFolder folder;
  auto file = HashedFile::Create(folder / "f");
  ASSERT_TRUE(file.ok()) << file.status();
  HashedFile moved = *std::move(file);
  for (const absl::string_view piece : {"a", "bc"}) ASSERT_TRUE(moved.Write(std::as_bytes(std::span(piece.data(), piece.size()))).ok());
  const auto written = moved.Finish();
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->bytes, 3);
  EXPECT_EQ(written->sha256, Sha256OfFile(folder / "f").value());
  EXPECT_EQ(WriteHashedFile(folder / "x", "abc")->sha256, written->sha256);
}

TEST(HashedFileTest, LeavesNothingWhenItIsNotFinished) {
  const base::TempFolder folder;
  {
    auto file = HashedFile::Create(folder / "f");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write(std::as_bytes(std::span("abc"))).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

}  // namespace
}  // namespace fusionllm::checkpoint
