#include "lib/checkpoint/reader.h"

#include <unistd.h>

#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/testing/sample.h"

namespace fusionllm::checkpoint {
namespace {

namespace fs = std::filesystem;
using tensor::DType;
using tensor::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string OpenError(const std::string& path) { return std::string(CheckpointReader::Open(path).status().message()); }

TEST(ReaderTest, TheHeadlessGpt2ThatIsPublishedHasTheNamesOfTheHeadedOne) {
  const base::TempFolder folder;
  Tensor embedding({DType::kF32, {4, 2}}), norm({DType::kF32, {2}});
  embedding.f32()[3] = 7;
  ASSERT_TRUE(WriteSafetensors(folder / "m.safetensors", std::vector<NamedTensor>{{"wte.weight", embedding.view()},
                                                                                  {"h.0.ln_1.weight", norm.view()},
                                                                                  {"lm_head.weight", norm.view()},
                                                                                  {"extra.scale", norm.view()}})
                  .ok());
  const auto reader = CheckpointReader::Open(folder / "m.safetensors");
  ASSERT_TRUE(reader.ok()) << reader.status();
  Tensor value({DType::kF32, {4, 2}});
  ASSERT_TRUE(reader->Read("transformer.wte.weight", value.view()).ok());
  EXPECT_EQ(value.f32()[3], 7);
  EXPECT_TRUE(reader->Contains("transformer.h.0.ln_1.weight"));
  EXPECT_FALSE(reader->Contains("wte.weight"));
  EXPECT_TRUE(reader->Contains("lm_head.weight") && reader->Contains("extra.scale")) << "what is not of the body";
}

TEST(ReaderTest, AModelThatIsNotSupportedIsNotCalledDamaged) {
  const base::TempFolder folder;
  folder.Write("zip.safetensors", absl::StrCat("PK\x03\x04", std::string(100, 'x')));
  EXPECT_TRUE(absl::IsUnimplemented(VerifyCheckpoint(folder / "zip.safetensors")));
  folder.Write("cut.safetensors", std::string("\xff\0\0\0\0\0\0\0{", 9));
  EXPECT_TRUE(absl::IsDataLoss(VerifyCheckpoint(folder / "cut.safetensors")));
}

TEST(ReaderTest, ReadsEveryNameWhateverTheNumberOfShards) {
  for (const int stages : {1, 2, 3}) {
    const base::TempFolder folder;
    // The same three parameters, dealt to more or fewer stages.
    SampleTensors tensors;
    Manifest manifest = SampleManifest(5);
    for (int stage = 0; stage < stages; ++stage) {
      ShardContents contents;
      for (int layer = stage; layer < 3; layer += stages) {
        const ShardContents one = SampleShard(tensors, 5, layer);
        contents.model.insert(contents.model.end(), one.model.begin(), one.model.end());
        contents.optimizer.insert(contents.optimizer.end(), one.optimizer.begin(), one.optimizer.end());
      }
      const auto files = WriteShard(folder.path(), 5, stage, stages, contents);
      ASSERT_TRUE(files.ok()) << files.status();
      manifest.files.insert(manifest.files.end(), files->begin(), files->end());
    }
    ASSERT_TRUE(CommitCheckpoint(folder.path(), manifest, 0).ok());
    const auto reader = CheckpointReader::Open(folder.path());
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->tensors().size(), 9u);
    EXPECT_EQ(reader->manifest()->samples_consumed, 160);
    for (int layer = 0; layer < 3; ++layer) {
      Tensor value({DType::kF32, {2, 3}});
      const std::string name = absl::StrCat("layer.", layer, ".weight");
      ASSERT_TRUE(reader->Read(name, value.view()).ok());
      EXPECT_EQ(value.f32()[5], static_cast<float>(5005 + 10 * layer)) << stages << " stages";
      ASSERT_TRUE(reader->Read(name + ".exp_avg_sq", value.view()).ok());
      EXPECT_EQ(value.f32()[0], static_cast<float>(5100 + 10 * layer));
      EXPECT_TRUE(reader->IsParameter(reader->tensors().at(name)));
      EXPECT_FALSE(reader->IsParameter(reader->tensors().at(name + ".exp_avg")));
    }
    Tensor value({DType::kF32, {2, 3}});
    EXPECT_EQ(reader->Read("layer.9.weight", value.view()).code(), absl::StatusCode::kNotFound);
    EXPECT_FALSE(reader->Contains("layer.9.weight"));
  }
}

TEST(ReaderTest, OpensALinkAFolderOfCheckpointsAFileAndForeignFolders) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 1, 2).ok());
  ASSERT_TRUE(SaveSample(folder.path(), 2, 2).ok());
  EXPECT_EQ(CheckpointReader::Open(folder / "latest")->manifest()->step, 2);
  EXPECT_EQ(CheckpointReader::Open(folder.path() + "/")->manifest()->step, 2);
  EXPECT_EQ(CheckpointReader::Open(folder / "step-000001")->manifest()->step, 1);
  EXPECT_EQ(CheckpointReader::Open(folder / "step-000001/model-00001-of-00002.safetensors")->tensors().size(), 1u);

  const base::TempFolder hub;  // as downloaded: an index and shards, no manifest
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}) {
    fs::copy(folder / absl::StrCat("step-000001/", name), hub / name);
  }
  EXPECT_EQ(CheckpointReader::Open(hub.path())->tensors().size(), 2u);
  const base::TempFolder single;
  fs::copy(folder / "step-000001/model-00001-of-00002.safetensors", single / "model.safetensors");
  const auto reader = CheckpointReader::Open(single.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->tensors().size(), 1u);
  EXPECT_FALSE(reader->manifest().has_value());
}

TEST(ReaderTest, LatestThatIsAFolderIsReadOnlyWhileNoneIsNewer) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 1, 1).ok());
  fs::remove(folder / "latest");
  fs::copy(folder / "step-000001", folder / "latest");
  for (const std::string& path : {folder.path(), folder / "latest", folder / "latest/"}) {
    EXPECT_TRUE(CheckpointReader::Open(path).ok()) << path;
    EXPECT_TRUE(VerifyCheckpoint(path).ok()) << path;
  }
  EXPECT_FALSE(SaveSample(folder.path(), 2, 1).ok()) << "saved, but not pointed to";
  const auto is_refused = HasSubstr(absl::StrCat("is no link but a copy of step 1, and ", folder / "step-000002", " is newer"));
  for (const std::string& path : {folder.path(), folder / "latest", folder / "latest/"}) {
    EXPECT_THAT(OpenError(path), is_refused) << path;
    EXPECT_THAT(std::string(VerifyCheckpoint(path).message()), is_refused) << path;
  }
  EXPECT_TRUE(CheckpointReader::Open(folder / "step-000002").ok());
  fs::resize_file(folder / "step-000002/model.safetensors", 9);
  EXPECT_TRUE(CheckpointReader::Open(folder / "latest").ok()) << "the newer one is not whole";
}

TEST(ReaderTest, LatestThatIsAFileGivesWayToTheNewestCheckpoint) {
  const base::TempFolder folder;
  for (const int64_t step : {1, 2}) ASSERT_TRUE(SaveSample(folder.path(), step, 1).ok());
  fs::remove(folder / "latest");
  folder.Write("latest", "step-000001\n");  // as an object store has it
  const auto reader = CheckpointReader::Open(folder.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->manifest()->step, 2);
}

TEST(ReaderTest, KeepsReadingWhatItOpenedWhenLatestMovesOn) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 1, 1, 1).ok());
  const auto reader = CheckpointReader::Open(folder / "latest");
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_TRUE(SaveSample(folder.path(), 2, 1, 1).ok());
  Tensor value({DType::kF32, {2, 3}});
  ASSERT_TRUE(reader->Read("layer.0.weight", value.view()).ok());
  EXPECT_EQ(value.f32()[0], 1000);
  EXPECT_EQ(reader->path(), folder / "step-000001");
}

TEST(ReaderTest, SaysWhatIsWrongWithAPath) {
  const base::TempFolder folder;
  EXPECT_THAT(OpenError(folder / "none"), HasSubstr("does not exist"));
  EXPECT_THAT(OpenError(folder.path()), HasSubstr("is no checkpoint"));
  folder.Write("run/events.jsonl", "");
  EXPECT_THAT(OpenError(folder / "run"), HasSubstr(absl::StrCat("no checkpoints in ", folder / "run", " yet; ")));
  std::filesystem::create_directories(folder / "other/checkpoints");
  EXPECT_THAT(OpenError(folder / "other"), HasSubstr(absl::StrCat("no checkpoints in ", folder / "other", " yet; ")));
  EXPECT_THAT(OpenError(folder / "other/checkpoints"), HasSubstr("/checkpoints yet; "));
  EXPECT_THAT(OpenError("/dev/null"), HasSubstr("neither a file nor a folder"));
  folder.Write("h/model.safetensors.index.json", R"({"weight_map":{"a":"gone.safetensors"}})");
  EXPECT_THAT(OpenError(folder / "h"), HasSubstr("gone.safetensors"));
  folder.Write("h/model.safetensors.index.json", R"({"weight_map":{"a":"../gone"}})");
  EXPECT_THAT(OpenError(folder / "h"), HasSubstr("'../gone'"));
  folder.Write("h/model.safetensors.index.json", R"({"weight_map":{"a":1}})");
  EXPECT_THAT(OpenError(folder / "h"), HasSubstr("no file for tensor 'a'"));
  folder.Write("h/model.safetensors.index.json", "{");
  EXPECT_THAT(OpenError(folder / "h"), HasSubstr("is no JSON"));
  folder.Write("h/model.safetensors.index.json", "{}");
  EXPECT_THAT(OpenError(folder / "h"), HasSubstr("no weight_map"));
  EXPECT_THAT(OpenError(folder / "h/model.safetensors.index.json"), HasSubstr("name the folder that holds them"));
  SampleTensors tensors;
  ASSERT_TRUE(WriteSafetensors(folder / "h/s.safetensors", tensors.Make({"b"}, 0)).ok());
  folder.Write("h/model.safetensors.index.json", R"({"weight_map":{"a":"s.safetensors"}})");
  EXPECT_THAT(OpenError(folder / "h"), HasSubstr("says that tensor 'a' is in s.safetensors, but it is not"));
}

// As from_pretrained has it: what a later save_pretrained of a smaller model leaves behind is an index.
TEST(ReaderTest, OfOneFileAndAnIndexBesideItTheFileIsRead) {
  const base::TempFolder folder;
  SampleTensors tensors;
  ASSERT_TRUE(WriteSafetensors(folder / "shard.safetensors", tensors.Make({"old"}, 0)).ok());
  folder.Write("model.safetensors.index.json", R"({"weight_map":{"old":"shard.safetensors"}})");
  ASSERT_TRUE(CheckpointReader::Open(folder.path())->Contains("old"));
  ASSERT_TRUE(WriteSafetensors(folder / "model.safetensors", tensors.Make({"new"}, 0)).ok());
  const auto reader = CheckpointReader::Open(folder.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(reader->Contains("new"));
  EXPECT_FALSE(reader->Contains("old"));
}

TEST(ReaderTest, OfATensorInTwoShardsTheIndexSaysWhichOneCounts) {
  const base::TempFolder folder;
  SampleTensors tensors;
  ASSERT_TRUE(WriteSafetensors(folder / "1.safetensors", tensors.Make({"a", "both"}, 0)).ok());
  ASSERT_TRUE(WriteSafetensors(folder / "2.safetensors", tensors.Make({"b", "both"}, 0)).ok());
  folder.Write("model.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors","both":"2.safetensors"}})");
  const auto reader = CheckpointReader::Open(folder.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->tensors().at("both").file->path(), folder / "2.safetensors");
  EXPECT_TRUE(VerifyCheckpoint(folder.path()).ok());
  folder.Write("model.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  EXPECT_THAT(OpenError(folder.path()), HasSubstr("tensor 'both' is both in"));
}

TEST(VerifyTest, FindsOneFlippedBitInAnyFile) {
  const base::TempFolder folder;
  const auto path = SaveSample(folder.path(), 1, 2);
  ASSERT_TRUE(path.ok()) << path.status();
  ASSERT_TRUE(VerifyCheckpoint(*path).ok());
  const Manifest manifest = LoadManifest(*path).value();
  for (const FileEntry& file : manifest.files) {
    const std::string name = absl::StrCat("step-000001/", file.name);
    const std::string good = base::ReadWholeFile(folder / name);
    std::string bad = good;
    bad.back() ^= 1;
    folder.Write(name, bad);
    const absl::Status status = VerifyCheckpoint(*path);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(folder / name), HasSubstr("checksum")));
    folder.Write(name, good);
  }
  EXPECT_TRUE(VerifyCheckpoint(*path).ok());
}

TEST(VerifyTest, ListsEveryFileThatIsCutOffOrMissing) {
  const base::TempFolder folder;
  const auto path = SaveSample(folder.path(), 1, 2);
  ASSERT_TRUE(path.ok()) << path.status();
  fs::resize_file(*path + "/model-00001-of-00002.safetensors", 50);
  fs::remove(*path + "/optimizer-00002-of-00002.safetensors");
  EXPECT_THAT(VerifyCheckpoint(*path).message(), AllOf(HasSubstr("model-00001-of-00002.safetensors has 50 bytes instead of"),
                                                       HasSubstr("optimizer-00002-of-00002.safetensors cannot be read")));
  EXPECT_EQ(CheckpointReader::Open(*path).status().code(), absl::StatusCode::kDataLoss);
}

TEST(VerifyTest, WhatMayNotBeReadIsNotSaidToBeDamaged) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 1, 1).ok());
  const std::string step = folder / "step-000001";
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(step, fs::perms(0755));
  for (const auto& file : fs::directory_iterator(step)) fs::permissions(file.path(), fs::perms(0644));
  const auto verify = [&] {
    const bool root = geteuid() == 0;  // which may read everything
    EXPECT_EQ(root ? seteuid(65534) : 0, 0);
    const absl::Status status = VerifyCheckpoint(step);
    EXPECT_EQ(root ? seteuid(0) : 0, 0);
    return status;
  };
  EXPECT_TRUE(verify().ok()) << verify();
  fs::permissions(step + "/model.safetensors", fs::perms::none);
  EXPECT_TRUE(absl::IsPermissionDenied(verify())) << verify();
  fs::resize_file(step + "/optimizer.safetensors", 9);
  EXPECT_TRUE(absl::IsDataLoss(verify())) << "something is damaged for sure: " << verify();
  fs::permissions(step, fs::perms::none);
  EXPECT_TRUE(absl::IsPermissionDenied(verify())) << "whether it has a manifest cannot be seen: " << verify();
  fs::permissions(step, fs::perms(0755));
}

TEST(VerifyTest, WithoutItsManifestACheckpointOfOursIsNotWhole) {
  const base::TempFolder folder;
  ASSERT_TRUE(SaveSample(folder.path(), 1, 2).ok());
  fs::remove(folder / "step-000001/manifest.json");
  const auto expect_lost = [](const std::string& path) {
    const absl::Status status = VerifyCheckpoint(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << path << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("has no manifest.json"));
  };
  expect_lost(folder / "step-000001");
  expect_lost(folder / "latest");
  fs::rename(folder / "step-000001", folder / "step-000001.earlier-1");
  expect_lost(folder / "step-000001.earlier-1");
  fs::rename(folder / "step-000001.earlier-1", folder / "copied");
  expect_lost(folder / "copied");
  // The shards of the model alone are what others publish.
  for (const char* kind : {"optimizer", "residuals"}) {
    for (const int stage : {1, 2}) fs::remove(folder / absl::StrCat("copied/", kind, "-0000", stage, "-of-00002.safetensors"));
  }
  EXPECT_TRUE(VerifyCheckpoint(folder / "copied").ok());
}

TEST(ReaderTest, AnIndexThatNamesAFileWithControlCharactersIsRefused) {
  const base::TempFolder folder;
  SampleTensors tensors;
  ASSERT_TRUE(WriteSafetensors(folder / "m-1.safetensors", tensors.Make({"a"}, 1)).ok());
  for (const char* end : {"\\u0000x", "\\n", "\\u001b"}) {
    folder.Write(kIndexName, absl::StrCat(R"({"weight_map":{"a":"m-1.safetensors)", end, R"("}})"));
    EXPECT_THAT(OpenError(folder.path()), ::testing::AllOf(HasSubstr("gives the file 'm-1.safetensors\\"), HasSubstr("beside the index")))
        << end;
  }
}

TEST(ReaderTest, ADamagedIndexIsRefusedOrMeansFilesOfItsFolder) {
  const base::TempFolder folder;
  SampleTensors tensors;
  ASSERT_TRUE(WriteSafetensors(folder / "outside.safetensors", tensors.Make({"a"}, 1)).ok());
  fs::create_directory(folder / "h");
  ASSERT_TRUE(WriteSafetensors(folder / "h/m-1.safetensors", tensors.Make({"a"}, 1)).ok());
  ASSERT_TRUE(WriteSafetensors(folder / "h/m-2.safetensors", tensors.Make({"b", "c"}, 2)).ok());
  const std::string good =
      R"({"metadata":{"total_size":72},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-2.safetensors"}})";
  int opened = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 engine(seed);
    std::string bad = good;
    for (unsigned edits = seed == 0 ? 0 : 1 + engine() % 3; edits > 0; --edits) {
      const size_t at = engine() % bad.size();
      switch (engine() % 4) {
        case 0:
          bad[at] = static_cast<char>(engine());
          break;
        case 1:
          bad.erase(at, 1 + engine() % 6);
          break;
        case 2:
          bad.insert(at, bad.substr(engine() % bad.size(), engine() % 20));
          break;
        default:
          bad.replace(at, engine() % 6, engine() % 2 == 0 ? "../outside.safetensors" : "\"b\":");
      }
      if (bad.empty()) bad = " ";
    }
    fs::remove(folder / absl::StrCat("h/", kIndexName));  // a new file each time: ext4 flushes one that is rewritten
    folder.Write(absl::StrCat("h/", kIndexName), bad);
    const auto reader = CheckpointReader::Open(folder / "h");
    if (!reader.ok()) {
      EXPECT_FALSE(reader.status().message().empty());
      continue;
    }
    ++opened;
    for (const auto& [name, tensor] : reader->tensors()) {
      EXPECT_EQ(fs::path(tensor.file->path()).parent_path(), fs::path(folder / "h")) << name;
      Tensor value({DType::kF32, {2, 3}});
      EXPECT_TRUE(reader->Read(name, value.view()).ok()) << name;
    }
  }
  EXPECT_GT(opened, 1);
  EXPECT_LT(opened, 500);
}

}  // namespace
}  // namespace fusionllm::checkpoint
