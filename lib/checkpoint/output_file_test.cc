#include "lib/checkpoint/output_file.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::checkpoint {
namespace {

using ::testing::HasSubstr;

TEST(Sha256Test, GivesThePublishedDigests) {
  const base::TempFolder folder;  // the examples of FIPS 180-4's companion document
  EXPECT_EQ(Sha256OfFile(folder.Write("abc", "abc")).value(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256OfFile(folder.Write("empty", "")).value(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256OfFile(folder.Write("million", std::string(1'000'000, 'a'))).value(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(WriteFile(folder / "x", "abc")->sha256, Sha256OfFile(folder / "abc").value());
}

TEST(OutputFileTest, LeavesNothingWhenItIsNotFinished) {
  const base::TempFolder folder;
  {
    auto file = OutputFile::Create(folder / "f");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write(std::as_bytes(std::span("abc"))).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

TEST(OutputFileTest, NamesThePathThatCannotBeWritten) {
  const base::TempFolder folder;
  const absl::Status missing = OutputFile::Create(folder / "no/f").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(folder / "no/f"));
}

TEST(FileErrorTest, OnlyPeersAreUnavailable) {
  EXPECT_EQ(FileError(ENOSPC, "write", "f").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FileError(EROFS, "write", "f").code(), absl::StatusCode::kPermissionDenied);
  for (const int error : {EIO, EMFILE, ENOTDIR, EFBIG, EISDIR}) {
    EXPECT_EQ(FileError(error, "write", "f").code(), absl::StatusCode::kInternal) << error << ": would be tried again for ever";
  }
}

}  // namespace
}  // namespace fusionllm::checkpoint
