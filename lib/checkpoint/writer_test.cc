#include "lib/checkpoint/writer.h"

#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/testing/sample.h"
#include "nlohmann/json.hpp"

namespace fusionllm::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::set<std::string> Listing(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

float FirstElement(const std::string& path, absl::string_view name) {
  const auto reader = CheckpointReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  tensor::Tensor value({tensor::DType::kF32, {2, 3}});
  const absl::Status status = reader->Read(name, value.view());
  EXPECT_TRUE(status.ok()) << status;
  return value.f32()[0];
}

TEST(WriterTest, WritesThreeStagesAsHuggingFaceShards) {
  const base::TempFolder folder;
  const auto path = SaveSample(folder.path(), 50, 3);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, folder / "step-000050");
  EXPECT_THAT(Listing(*path), ElementsAre("manifest.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                          "model-00003-of-00003.safetensors", "model.safetensors.index.json",
                                          "optimizer-00001-of-00003.safetensors", "optimizer-00002-of-00003.safetensors",
                                          "optimizer-00003-of-00003.safetensors", "residuals-00001-of-00003.safetensors",
                                          "residuals-00002-of-00003.safetensors", "residuals-00003-of-00003.safetensors"));
  const auto index = nlohmann::json::parse(base::ReadWholeFile(*path + "/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 3 * 6 * 4);
  EXPECT_EQ(index["weight_map"]["layer.1.weight"], "model-00002-of-00003.safetensors");
  EXPECT_THAT(Listing(folder.path()), ElementsAre("latest", "step-000050"));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-000050");
}

TEST(WriterTest, WritesASingleStageWithoutNumbers) {
  const base::TempFolder folder;
  SampleTensors tensors;
  ShardContents contents = SampleShard(tensors, 0, 0);
  contents.residuals.clear();
  const auto files = WriteShard(folder.path(), 0, 0, 1, contents);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 2u);
  EXPECT_THAT((*files)[1].tensors, ElementsAre("layer.0.weight.exp_avg", "layer.0.weight.exp_avg_sq"));
  Manifest manifest = SampleManifest(0);
  manifest.files = *files;
  const auto committed = CommitCheckpoint(folder.path(), manifest, 0);
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_THAT(Listing(committed->path), ElementsAre("manifest.json", "model.safetensors", "optimizer.safetensors"));
  EXPECT_TRUE(VerifyCheckpoint(committed->path).ok());
}

TEST(WriterTest, ACrashBeforeTheCommitLeavesTheEarlierCheckpoint) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 50, 2).ok());
  ASSERT_TRUE(StageSample(folder.path(), 100, 2).ok());  // and the process dies here
  EXPECT_TRUE(fs::exists(folder / ".step-000100.partial"));
  const auto newest = FindLatestComplete(folder.path());
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(*newest->path, folder / "step-000050");
  EXPECT_THAT(newest->skipped, IsEmpty());
  EXPECT_THAT(CleanStaging(folder.path()).value(), ElementsAre(".step-000100.partial"));
  EXPECT_THAT(Listing(folder.path()), ElementsAre("latest", "step-000050"));
  EXPECT_EQ(FirstElement(folder.path(), "layer.1.weight"), 50010);
}

TEST(WriterTest, ACrashInTheMiddleOfAShardIsForgottenByTheNextAttempt) {
  const base::TempFolder folder;
  fs::create_directories(folder / ".step-000050.partial");
  folder.Write(".step-000050.partial/model-00001-of-00002.safetensors", "torn");
  ASSERT_TRUE(SaveSample(folder.path(), 50, 2).ok());
  EXPECT_TRUE(VerifyCheckpoint(folder / "step-000050").ok());
}

TEST(WriterTest, AMissingShardIsNoCheckpoint) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 50, 2).ok());
  const auto manifest = StageSample(folder.path(), 100, 2);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const std::string lost = folder / ".step-000100.partial/optimizer-00002-of-00002.safetensors";
  fs::resize_file(lost, 10);
  EXPECT_THAT(CommitCheckpoint(folder.path(), *manifest, 1).status().message(), AllOf(HasSubstr(lost), HasSubstr("10 bytes instead of")));
  ASSERT_TRUE(StageSample(folder.path(), 100, 2).ok());
  fs::remove(lost);
  EXPECT_THAT(CommitCheckpoint(folder.path(), *manifest, 1).status().message(), AllOf(HasSubstr(lost), HasSubstr("not there")));
  EXPECT_THAT(Listing(folder.path()), ElementsAre("latest", "step-000050"));
}

TEST(WriterTest, RefusesATensorInTwoShards) {
  const base::TempFolder folder;
  Manifest manifest = SampleManifest(1);
  SampleTensors tensors;
  for (int stage = 0; stage < 2; ++stage) {
    const auto files = WriteShard(folder.path(), 1, stage, 2, {.model = tensors.Make({"shared"}, 1)});
    ASSERT_TRUE(files.ok()) << files.status();
    manifest.files.insert(manifest.files.end(), files->begin(), files->end());
  }
  EXPECT_THAT(CommitCheckpoint(folder.path(), manifest, 0).status().message(), HasSubstr("'shared' is both in"));
  EXPECT_THAT(Listing(folder.path()), IsEmpty());
}

TEST(WriterTest, ReplacesACheckpointOfTheSameStep) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 50, 3).ok());
  ASSERT_TRUE(SaveSample(folder.path(), 50, 1).ok());
  EXPECT_TRUE(VerifyCheckpoint(folder / "step-000050").ok());
  EXPECT_THAT(Listing(folder.path()), ElementsAre("latest", "step-000050"));
  EXPECT_EQ(LoadManifest(folder / "step-000050")->files.size(), 3u);
}

TEST(WriterTest, SetsAsideWhatAnEarlierRunLeftOfTheSameStep) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 50, 3).ok());
  // Fresh runs begin with sequences of their own.
  const auto save = [&](int64_t first_sequence) {
    Manifest manifest = *StageSample(folder.path(), 50, 1);
    manifest.first_sequence = first_sequence;
    return *CommitCheckpoint(folder.path(), manifest, 1);
  };
  const CommittedCheckpoint second = save(2);
  EXPECT_EQ(second.path, folder / "step-000050");
  EXPECT_EQ(second.set_aside, folder / "step-000050.earlier-1");
  EXPECT_EQ(save(2).set_aside, "") << "its own";
  EXPECT_EQ(save(4).set_aside, folder / "step-000050.earlier-2");
  EXPECT_THAT(Listing(folder.path()), ElementsAre("latest", "step-000050", "step-000050.earlier-1", "step-000050.earlier-2"));
  EXPECT_TRUE(VerifyCheckpoint(folder / "step-000050.earlier-1").ok());
  EXPECT_EQ(LoadManifest(folder / "step-000050.earlier-1")->sequence, 1);
  EXPECT_THAT(*ListCheckpoints(folder.path()), ::testing::SizeIs(1)) << "what is set aside is no checkpoint of the folder";
}

TEST(WriterTest, SetsAsideWhatDoesNotTellWhoseItIs) {
  const std::vector<std::pair<std::string, std::function<void(const std::string& manifest)>>> damages = {
      {"one byte flipped",
       [](const std::string& manifest) {
         std::string text = base::ReadWholeFile(manifest);
         text.front() ^= 1;
         std::ofstream(manifest) << text;
       }},
      {"missing", [](const std::string& manifest) { fs::remove(manifest); }},
      {"step -5",
       [](const std::string& manifest) {
         auto json = nlohmann::json::parse(base::ReadWholeFile(manifest));
         json["step"] = -5;
         std::ofstream(manifest) << json;
       }},
  };
  for (const auto& [name, damage] : damages) {
    SCOPED_TRACE(name);
    const base::TempFolder folder;
    ASSERT_TRUE(SaveSample(folder.path(), 40, 2).ok());
    damage(folder / "step-000040/manifest.json");
    const auto committed = CommitCheckpoint(folder.path(), *StageSample(folder.path(), 40, 1), 1);
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_EQ(committed->set_aside, folder / "step-000040.earlier-1");
    EXPECT_TRUE(fs::exists(folder / "step-000040.earlier-1/model-00002-of-00002.safetensors"));
    EXPECT_TRUE(VerifyCheckpoint(folder / "step-000040").ok());
  }
}

TEST(WriterTest, KeepsTheNewestAndTheOneBeingRead) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 10, 1, 2).ok());
  auto reader = CheckpointReader::Open(folder / "step-000010");
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const int64_t step : {20, 30, 40}) ASSERT_TRUE(SaveSample(folder.path(), step, 1, 2).ok());
  EXPECT_THAT(Listing(folder.path()), ElementsAre("latest", "step-000010", "step-000030", "step-000040"));
  { const CheckpointReader done = *std::move(reader); }
  ASSERT_TRUE(SaveSample(folder.path(), 50, 1, 2).ok());
  EXPECT_THAT(Listing(folder.path()), ElementsAre("latest", "step-000040", "step-000050"));
}

TEST(WriterTest, AFreshRunInAnOldFolderCountsAsNewer) {
  const base::TempFolder folder;
  for (const int64_t step : {100, 200}) ASSERT_TRUE(SaveSample(folder.path(), step, 1, 2).ok());
  ASSERT_TRUE(SaveSample(folder.path(), 10, 1, 2).ok());
  EXPECT_EQ(*FindLatestComplete(folder.path())->path, folder / "step-000010");
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-000010");
  EXPECT_THAT(Listing(folder.path()), ElementsAre("latest", "step-000010", "step-000200"));
}

TEST(WriterTest, NeverPrunesWholeOnesInFavourOfBrokenOnes) {
  const base::TempFolder folder;
  for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(SaveSample(folder.path(), step, 1).ok());
  fs::resize_file(folder / "step-000030/model.safetensors", 20);
  ASSERT_TRUE(SaveSample(folder.path(), 40, 1, 2).ok());
  EXPECT_THAT(Listing(folder.path()), ElementsAre("latest", "step-000020", "step-000030", "step-000040"));
}

TEST(WriterTest, AbandonsWhatWasStaged) {
  const base::TempFolder folder;
  ASSERT_TRUE(StageSample(folder.path(), 7, 2).ok());
  EXPECT_TRUE(AbandonCheckpoint(folder.path(), 7).ok());
  EXPECT_THAT(Listing(folder.path()), IsEmpty());
  EXPECT_TRUE(AbandonCheckpoint(folder.path(), 7).ok());
  EXPECT_THAT(CleanStaging(folder / "nowhere").value(), IsEmpty());
}

TEST(WriterTest, NamesStagesThatCannotBe) {
  const base::TempFolder folder;
  EXPECT_THAT(WriteShard(folder.path(), 1, 2, 2, {}).status().message(), HasSubstr("stage 2 of 2"));
  EXPECT_THAT(WriteShard(folder.path(), -1, 0, 1, {}).status().message(), HasSubstr("step -1"));
  EXPECT_FALSE(WriteShard(folder.path(), 1, 0, 1 << 30, {}).ok());
  const std::string file = folder.Write("file", "");
  EXPECT_THAT(WriteShard(file, 1, 0, 1, {}).status().message(), HasSubstr(file));
}

// A disk of 256 KiB.
class FullDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=256k") == 0) {
      mounted_ = true;
    } else if (errno == EPERM || errno == EACCES || errno == ENODEV) {
      GTEST_SKIP() << "a small disk cannot be mounted here: " << std::strerror(errno);
    } else {
      FAIL() << "mount: " << std::strerror(errno);
    }
  }
  void TearDown() override {
    if (!mounted_) return;
    EXPECT_EQ(umount(folder_.path().c_str()), 0) << std::strerror(errno);
  }
  const base::TempFolder folder_;
  bool mounted_ = false;
};

TEST_F(FullDiskTest, SaysSoAndLeavesEarlierCheckpointsWhole) {
  ASSERT_TRUE(SaveSample(folder_.path(), 50, 1).ok());
  SampleTensors tensors;
  const auto files =
      WriteShard(folder_.path(), 100, 0, 1, {.model = tensors.Make({"small"}, 1), .optimizer = tensors.Make({"big"}, 1, {256, 1024})});
  EXPECT_EQ(files.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(files.status().message(), AllOf(HasSubstr("cannot write"), HasSubstr("optimizer.safetensors"), HasSubstr("No space left")));
  EXPECT_THAT(Listing(folder_.path()), ElementsAre("latest", "step-000050"));
  EXPECT_TRUE(VerifyCheckpoint(folder_ / "step-000050").ok());
  EXPECT_TRUE(SaveSample(folder_.path(), 100, 1).ok()) << "the space is there again";
}

TEST_F(FullDiskTest, AtTheCommitRemovesTheStagingFolder) {
  ASSERT_TRUE(SaveSample(folder_.path(), 50, 1).ok());
  auto manifest = StageSample(folder_.path(), 100, 2);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->resolved_job = std::string(300'000, 'x');
  const absl::Status status = CommitCheckpoint(folder_.path(), *manifest, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("manifest.json"));
  EXPECT_THAT(Listing(folder_.path()), ElementsAre("latest", "step-000050"));
  EXPECT_TRUE(VerifyCheckpoint(folder_ / "latest").ok());
}

TEST(LayoutTest, ParsesOnlyTheNamesOfStepFolders) {
  EXPECT_EQ(StepFolderName(50), "step-000050");
  EXPECT_EQ(StepFolderName(12345678), "step-12345678");
  for (const int64_t step : {0, 50, 12345678}) EXPECT_EQ(ParseStepFolderName(StepFolderName(step)), step);
  for (const char* name : {"step-50", "step-00005x", "latest", ".step-000050.partial", "step--00050", "step-9999999999999999999"}) {
    EXPECT_EQ(ParseStepFolderName(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace fusionllm::checkpoint
