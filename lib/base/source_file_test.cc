#include "lib/base/source_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::base {
namespace {

TEST(SourceFileTest, NamesTheFileThatShrankWhileInUse) {
  const TempFolder folder;
  const std::string path = folder.Write("f", "0123456789");
  for (const bool keep_open : {true, false}) {
    std::filesystem::resize_file(path, 10);
    const auto file = SourceFile::Open(path, keep_open);
    ASSERT_TRUE(file.ok()) << file.status();
    std::filesystem::resize_file(path, 4);
    std::vector<std::byte> bytes(6);
    const absl::Status status = file->ReadAt(2, bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(absl::StrContains(status.message(), path) && absl::StrContains(status.message(), "ends at byte 4")) << status;
    const absl::Status beyond = file->ReadAt(8, std::span(bytes).first(2));
    EXPECT_TRUE(absl::StrContains(beyond.message(), "ends at byte 4 but had 10 bytes")) << beyond;
  }
}

TEST(SmallFileTest, APipeIsReadOnlyWhereAUserNamedIt) {
  const TempFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadSmallFile(pipe, 100).status()));  // at once: there is no writer
  std::thread writer([&] { folder.Write("pipe", "words"); });
  EXPECT_EQ(ReadSmallInput(pipe, 100).value_or(""), "words");
  writer.join();
}

TEST(SourceFileTest, OpensOnlyRegularFilesAndNeverBlocksOnPipes) {
  const TempFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, folder.path(), std::string("/dev/zero")}) {
    const absl::Status status = SourceFile::Open(path, /*keep_open=*/true).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), path) && absl::StrContains(status.message(), "not a regular file")) << status;
  }
  const std::string path = folder.Write("f", "0123456789");
  const auto file = SourceFile::Open(path, /*keep_open=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::rename(pipe, path);
  std::vector<std::byte> bytes(1);
  EXPECT_EQ(file->ReadAt(0, bytes).code(), absl::StatusCode::kInvalidArgument) << "it may have become one since";
}

TEST(ReadSmallFileTest, ReadsAllOrSaysWhyNot) {
  const TempFolder folder;
  const std::string path = folder.Write("f", std::string(70'000, 'x'));
  EXPECT_EQ(ReadSmallFile(path, 70'000).value(), std::string(70'000, 'x'));
  EXPECT_EQ(ReadSmallFile(folder.Write("empty", ""), 0).value(), "");
  const absl::Status longer = ReadSmallFile(path, 69'999).status();
  EXPECT_EQ(longer.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(longer.message(), path) && absl::StrContains(longer.message(), "69999")) << longer;
  EXPECT_EQ(ReadSmallFile(folder / "none", 10).status().code(), absl::StatusCode::kNotFound);
  const absl::Status directory = ReadSmallFile(folder.path(), 10).status();
  EXPECT_EQ(directory.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(directory.message(), folder.path())) << directory;
}

}  // namespace
}  // namespace fusionllm::base
