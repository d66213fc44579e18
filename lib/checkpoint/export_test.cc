#include "lib/checkpoint/export.h"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/checkpoint/testing/sample.h"

namespace fusionllm::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

TEST(ExportTest, MergesTheParametersOfAllShards) {
  const base::TempFolder folder;
  const auto path = SaveSample(folder.path(), 1, 3);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto written = ExportModel(*path, folder / "out.safetensors");
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(Sha256OfFile(folder / "out.safetensors").value(), written->sha256);
  const auto file = SafetensorsFile::Open(folder / "out.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tensors().size(), 3u) << "no optimizer state, no residuals";
  EXPECT_EQ(file->metadata().at("format"), "pt");
  for (int stage = 0; stage < 3; ++stage) {
    tensor::Tensor value({tensor::DType::kF32, {2, 3}});
    ASSERT_TRUE(file->Read(absl::StrCat("layer.", stage, ".weight"), value.view()).ok());
    EXPECT_EQ(value.f32()[1], static_cast<float>(1001 + 10 * stage));
  }
}

TEST(ExportTest, CopiesTensorsOfTypesThatItCannotHoldAsTheyLie) {
  const base::TempFolder folder;
  const std::string header =
      R"({"mask":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},"w":{"dtype":"F32","shape":[1],"data_offsets":[2,6]},)"
      R"("wide":{"dtype":"F64","shape":[1],"data_offsets":[6,14]},"late":{"dtype":"Q7","shape":[3],"data_offsets":[14,17]}})";
  const std::string data = "ab1234abcdefgh789";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size() & 255);
  length[1] = static_cast<char>(header.size() >> 8);
  const auto written = ExportModel(folder.Write("in.safetensors", length + header + data), folder / "out.safetensors");
  ASSERT_TRUE(written.ok()) << written.status();
  const auto file = SafetensorsFile::Open(folder / "out.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto text = [&](const char* name) {
    const TensorEntry& entry = *file->Find(name);
    std::string bytes(static_cast<size_t>(entry.bytes()), ' ');
    EXPECT_TRUE(file->ReadBytes(entry, 0, std::as_writable_bytes(std::span(bytes))).ok());
    return absl::StrCat(entry.dtype_name, entry.shape.ToString(), " ", bytes);
  };
  EXPECT_EQ(text("mask"), "BOOL[2] ab");
  EXPECT_EQ(text("wide"), "F64[1] abcdefgh");
  EXPECT_EQ(text("late"), "Q7[3] 789");
  EXPECT_EQ(text("w"), "F32[1] 1234");
  EXPECT_EQ(file->Find("wide")->begin % 8, 0) << "aligned to its elements";
}

TEST(ExportTest, LeavesTheOldFileWhenTheCheckpointIsBroken) {
  const base::TempFolder folder;
  folder.Write("out", "old");
  const auto path = SaveSample(folder.path(), 1, 2);
  ASSERT_TRUE(path.ok()) << path.status();
  std::filesystem::resize_file(*path + "/model-00002-of-00002.safetensors", 30);
  EXPECT_THAT(ExportModel(*path, folder / "out").status().message(), HasSubstr("model-00002-of-00002.safetensors"));
  EXPECT_EQ(base::ReadWholeFile(folder / "out"), "old");
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("latest", "out", "step-000001"));
}

TEST(ExportTest, RefusesToReplaceAFileOfACheckpoint) {
  const base::TempFolder folder;
  const auto path = SaveSample(folder.path(), 1, 3);
  ASSERT_TRUE(path.ok()) << path.status();
  std::filesystem::create_directory_symlink(*path, folder / "elsewhere");
  std::filesystem::create_symlink(*path + "/manifest.json", folder / "link.safetensors");
  for (const std::string& out : {*path + "/model-00002-of-00003.safetensors", *path + "/new.safetensors", folder / "latest/manifest.json",
                                 folder / "elsewhere/model-00001-of-00003.safetensors", folder / "link.safetensors"}) {
    const absl::Status status = ExportModel(folder / "latest", out).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << out;
    EXPECT_THAT(status.message(), HasSubstr(out));
  }
  EXPECT_TRUE(VerifyCheckpoint(*path).ok());
  EXPECT_EQ(NamesIn(*path).size(), 3 * 3 + 2u) << "three shards of three kinds, the index, the manifest";
}

TEST(ExportTest, RefusesToReplaceTheFilesOfOtherMakersThatItReads) {
  const base::TempFolder folder;
  const auto path = SaveSample(folder.path(), 1, 2);
  ASSERT_TRUE(path.ok()) << path.status();
  const std::string one = folder / "one.safetensors";
  ASSERT_TRUE(ExportModel(*path, one).ok());
  std::filesystem::create_hard_link(one, folder / "same.safetensors");
  for (const std::string& out : {one, folder / "same.safetensors"}) {
    EXPECT_EQ(ExportModel(one, out).status().code(), absl::StatusCode::kInvalidArgument) << out;
  }
  folder.Write("hub/model-00001-of-00002.safetensors", "a shard whose index is on its way");
  EXPECT_EQ(ExportModel(one, folder / "hub/model.safetensors").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(SafetensorsFile::Open(one).ok());
}

TEST(ExportTest, ReplacesWhatAnEarlierExportWrote) {
  const base::TempFolder folder;
  const auto path = SaveSample(folder.path(), 1, 2);
  ASSERT_TRUE(path.ok()) << path.status();
  folder.Write("out/config.json", "{}");
  folder.Write("out/model-small.safetensors", "another model");
  for (int time = 0; time < 2; ++time) EXPECT_TRUE(ExportModel(*path, folder / "out/model.safetensors").ok()) << time;
}

}  // namespace
}  // namespace fusionllm::checkpoint
