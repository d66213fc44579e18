#include "lib/checkpoint/incoming_file.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/testing/sample.h"

namespace fusionllm::checkpoint {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr char kName[] = "model-00001-of-00002.safetensors";

class IncomingFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<IncomingFile> Begin(int64_t bytes, uint64_t distinct = 1) {
    return *IncomingFile::Create(folder_.path(), 7, kName, bytes, distinct);
  }
  static std::span<const std::byte> Bytes(absl::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
  static std::string Sum(absl::string_view text) {
    Sha256 hash;
    hash.Update(Bytes(text));
    return hash.HexDigest();
  }
  std::string Staged() const { return StagingFolder(folder_.path(), 7) + "/" + kName; }

  const base::TempFolder folder_;
};

TEST_F(IncomingFileTest, AppearsUnderItsNameWhenItIsWhole) {
  const auto file = Begin(6);
  ASSERT_TRUE(file->Write(Bytes("abc")).ok());
  ASSERT_TRUE(file->Write(Bytes("def")).ok());
  EXPECT_FALSE(fs::exists(Staged()));
  const auto written = file->Seal(Sum("abcdef"));
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->bytes, 6);
  ASSERT_TRUE(file->Stage().ok());
  EXPECT_EQ(*base::ReadSmallFile(Staged(), 100), "abcdef");
}

TEST_F(IncomingFileTest, ShortLongAndAlteredFilesAreRefusedAndLeaveNothing) {
  {
    const auto file = Begin(6);
    EXPECT_TRUE(absl::IsOutOfRange(file->Write(Bytes("abcdefg"))));
  }
  {
    const auto file = Begin(6);
    ASSERT_TRUE(file->Write(Bytes("abc")).ok());
    const auto sealed = file->Seal(Sum("abc"));
    EXPECT_TRUE(absl::IsDataLoss(sealed.status()));
    EXPECT_THAT(sealed.status().message(), HasSubstr("after 3 of the 6 bytes"));
  }
  {
    const auto file = Begin(6);
    ASSERT_TRUE(file->Write(Bytes("abcdeF")).ok());
    EXPECT_TRUE(absl::IsDataLoss(file->Seal(Sum("abcdef")).status()));
  }
  EXPECT_TRUE(fs::is_empty(folder_.path())) << "the staging folder went with its last file";
}

TEST_F(IncomingFileTest, OneThatIsOvertakenHarmsNothing) {
  auto old = Begin(3, 1);
  const auto young = Begin(3, 2);
  ASSERT_TRUE(old->Write(Bytes("a")).ok());
  ASSERT_TRUE(young->Write(Bytes("new")).ok());
  ASSERT_TRUE(young->Seal(Sum("new")).ok());
  ASSERT_TRUE(young->Stage().ok());
  old.reset();
  EXPECT_EQ(*base::ReadSmallFile(Staged(), 100), "new");
}

TEST_F(IncomingFileTest, ShardsThatWereSentMakeTheSameCheckpointAsThoseWrittenInPlace) {
  const base::TempFolder other;
  ASSERT_TRUE(SaveSample(other.path(), 7, 2).ok());
  SampleTensors tensors;
  Manifest manifest = SampleManifest(7);
  manifest.files = *WriteShard(folder_.path(), 7, 0, 2, SampleShard(tensors, 7, 0));
  const auto left_by_a_crash = StagingFolder(folder_.path(), 7) + "/.model-00002-of-00002.safetensors.99";
  ASSERT_TRUE(base::WriteFile(left_by_a_crash, "half").ok());
  const ShardContents contents = SampleShard(tensors, 7, 1);
  const auto files = *LayOutShard(7, 1, 2, contents);
  for (const ShardFileImage& file : files) {
    ASSERT_TRUE(IsShardFileOf(file.name, 1, 2)) << file.name;
    const auto incoming = *IncomingFile::Create(folder_.path(), 7, file.name, file.image.bytes(), 1);
    Sha256 hash;
    ASSERT_TRUE(file.image
                    .ForEachPiece(7,
                                  [&](std::span<const std::byte> piece) {
                                    EXPECT_LE(piece.size(), 7);
                                    hash.Update(piece);
                                    return incoming->Write(piece);
                                  })
                    .ok());
    const auto written = incoming->Seal(hash.HexDigest());
    ASSERT_TRUE(written.ok()) << written.status();
    ASSERT_TRUE(incoming->Stage().ok());
    manifest.files.push_back({.name = file.name, .bytes = written->bytes, .sha256 = written->sha256, .tensors = file.image.tensors()});
  }
  const auto committed = CommitCheckpoint(folder_.path(), manifest, 0);
  ASSERT_TRUE(committed.ok()) << committed.status();
  const std::string& path = committed->path;
  for (const auto& entry : fs::directory_iterator(other / "step-000007")) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(*base::ReadSmallFile(path + "/" + name, 1 << 20), *base::ReadSmallFile(entry.path().string(), 1 << 20)) << name;
  }
  EXPECT_FALSE(fs::exists(path + "/.model-00002-of-00002.safetensors.99")) << "no part of the checkpoint";
}

}  // namespace
}  // namespace fusionllm::checkpoint
