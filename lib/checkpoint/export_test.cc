#include "lib/checkpoint/export.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/checkpoint/testing/sample.h"

namespace fusionllm::checkpoint {
namespace {

using ::testing::HasSubstr;

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

TEST(ExportTest, LeavesTheOldFileWhenTheCheckpointIsBroken) {
  const base::TempFolder folder;
  folder.Write("out", "old");
  const auto path = SaveSample(folder.path(), 1, 2);
  ASSERT_TRUE(path.ok()) << path.status();
  std::filesystem::resize_file(*path + "/model-00002-of-00002.safetensors", 30);
  EXPECT_THAT(ExportModel(*path, folder / "out").status().message(), HasSubstr("model-00002-of-00002.safetensors"));
  EXPECT_EQ(base::ReadWholeFile(folder / "out"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "out.partial"));
}

}  // namespace
}  // namespace fusionllm::checkpoint
