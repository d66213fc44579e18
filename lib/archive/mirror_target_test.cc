// What every place promises, asked of each kind of it.
#include "lib/archive/mirror_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/archive/folder_mirror_target.h"
#include "lib/archive/object_store_mirror_target.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/objectstore/testing/fake_s3.h"

namespace fusionllm::archive {
namespace {

using checkpoint::SaveSample;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A place that can be damaged.
class Ground {
 public:
  virtual ~Ground() = default;
  virtual std::unique_ptr<MirrorTarget> Make() = 0;
  // Changes one byte of the parameters of a step.
  virtual void Damage(int64_t step) = 0;
};

class FolderGround : public Ground {
 public:
  std::unique_ptr<MirrorTarget> Make() override { return std::make_unique<FolderMirrorTarget>(folder_ / "copies"); }
  void Damage(int64_t step) override {
    const std::string path = absl::StrCat(folder_ / "copies", "/", checkpoint::StepFolderName(step), "/model.safetensors");
    std::string bytes = base::ReadWholeFile(path);
    bytes.back() ^= 1;
    std::ofstream(path, std::ios::binary) << bytes;
  }

 private:
  base::TempFolder folder_;
};

class StoreGround : public Ground {
 public:
  std::unique_ptr<MirrorTarget> Make() override {
    return std::make_unique<ObjectStoreMirrorTarget>(base::ObjectUri{.bucket = "models", .key = "runs/a"}, server_.Settings(),
                                                     objectstore::testing::FastRetryOptions());
  }
  void Damage(int64_t step) override {
    const std::string key = absl::StrCat("runs/a/", checkpoint::StepFolderName(step), "/model.safetensors");
    std::string bytes = *server_.Get("models", key);
    bytes.back() ^= 1;
    server_.Put("models", key, bytes);
  }
  objectstore::testing::FakeS3& server() { return server_; }

 private:
  objectstore::testing::FakeS3 server_;
};

enum class Kind { kFolder, kStore };

class MirrorTargetTest : public ::testing::TestWithParam<Kind> {
 protected:
  MirrorTargetTest() {
    if (GetParam() == Kind::kFolder) ground_ = std::make_unique<FolderGround>();
    if (GetParam() == Kind::kStore) ground_ = std::make_unique<StoreGround>();
    target_ = ground_->Make();
  }
  absl::Status Save(int64_t step) {
    const absl::StatusOr<std::string> path = SaveSample(local_.path(), step, 1);
    if (!path.ok()) return path.status();
    const absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::LoadManifest(*path);
    if (!manifest.ok()) return manifest.status();
    return target_->Put(*path, *manifest).status();
  }
  std::vector<int64_t> Steps() {
    std::vector<int64_t> steps;
    const auto names = target_->List();
    if (!names.ok()) return {-1};
    for (const std::string& name : *names) steps.push_back(target_->Describe(name)->step);
    return steps;
  }

  std::unique_ptr<Ground> ground_;
  std::unique_ptr<MirrorTarget> target_;
  base::TempFolder local_, other_;
};

TEST_P(MirrorTargetTest, APlaceThatIsNotThereYetIsEmpty) { EXPECT_EQ(target_->List().value(), std::vector<std::string>()); }

TEST_P(MirrorTargetTest, WhatIsPutIsListedNewestFirstAndFetchedAsItWas) {
  for (const int64_t step : {10, 20, 15}) ASSERT_TRUE(Save(step).ok());
  EXPECT_THAT(Steps(), ElementsAre(15, 20, 10));
  const auto fetched = target_->Fetch(target_->List()->front(), other_ / "back");
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(*fetched, other_ / "back/step-000015");
  EXPECT_TRUE(checkpoint::VerifyCheckpoint(*fetched).ok());
  EXPECT_EQ(base::ReadWholeFile(*fetched + "/manifest.json"), base::ReadWholeFile(local_ / "step-000015/manifest.json"));
  EXPECT_EQ(checkpoint::FindLatestComplete(other_ / "back")->path, *fetched);
  EXPECT_EQ(checkpoint::CheckpointReader::Open(other_ / "back")->path(), *fetched);  // by `latest`
}

TEST_P(MirrorTargetTest, PuttingTheSameAgainChangesNothing) {
  ASSERT_TRUE(Save(10).ok());
  const auto manifest = checkpoint::LoadManifest(local_ / "step-000010");
  ASSERT_TRUE(target_->Put(local_ / "step-000010", *manifest).ok());
  EXPECT_THAT(Steps(), ElementsAre(10));
}

TEST_P(MirrorTargetTest, AnotherRunsCheckpointOfTheSameStepStays) {
  ASSERT_TRUE(Save(10).ok());
  base::TempFolder mine;
  checkpoint::Manifest other = *checkpoint::StageSample(mine.path(), 10, 1);
  other.job_name = "another";
  other.first_sequence = 5;
  const auto committed = checkpoint::CommitCheckpoint(mine.path(), other, 0);
  ASSERT_TRUE(committed.ok());
  const auto manifest = checkpoint::LoadManifest(committed->path);
  ASSERT_TRUE(target_->Put(committed->path, *manifest).ok());
  EXPECT_EQ(target_->Describe(target_->List()->front())->job_name, "another");
  // A folder has set the other aside, where no list has it.
  EXPECT_EQ(Steps().size(), GetParam() == Kind::kStore ? 2u : 1u);
}

TEST_P(MirrorTargetTest, DamageIsFoundWhenItIsFetchedAndLeavesNothing) {
  ASSERT_TRUE(Save(10).ok());
  ground_->Damage(10);
  const absl::Status status = target_->Fetch(target_->List()->front(), other_ / "back").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.safetensors"));
  EXPECT_FALSE(checkpoint::FindLatestComplete(other_ / "back")->path.has_value());
  EXPECT_TRUE(!std::filesystem::exists(other_ / "back") || std::filesystem::is_empty(other_ / "back"));
}

TEST_P(MirrorTargetTest, AFolderThatIsDamagedHereIsNotCopied) {
  const std::string path = SaveSample(local_.path(), 10, 1).value();
  std::ofstream(path + "/model.safetensors", std::ios::binary | std::ios::in) << "damage";
  EXPECT_EQ(target_->Put(path, *checkpoint::LoadManifest(path)).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(Steps().empty());
}

TEST_P(MirrorTargetTest, TheNewestAreKeptAndOtherRunsLeftAlone) {
  for (const int64_t step : {10, 20, 30, 40}) ASSERT_TRUE(Save(step).ok());  // sequences 1 to 4
  ASSERT_TRUE(target_->Prune(1, /*first_sequence=*/2).ok());
  EXPECT_THAT(Steps(), ElementsAre(40, 10));
  ASSERT_TRUE(target_->Prune(0, 0).ok());
  EXPECT_THAT(Steps(), ElementsAre(40, 10));
}

TEST_P(MirrorTargetTest, ShardsOfSeveralStagesGoAlong) {
  const std::string path = SaveSample(local_.path(), 10, 3).value();
  ASSERT_TRUE(target_->Put(path, *checkpoint::LoadManifest(path)).ok());
  const auto fetched = target_->Fetch(target_->List()->front(), other_.path());
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_TRUE(checkpoint::VerifyCheckpoint(*fetched).ok());
}

INSTANTIATE_TEST_SUITE_P(All, MirrorTargetTest, ::testing::Values(Kind::kFolder, Kind::kStore),
                         [](const auto& info) { return info.param == Kind::kFolder ? "Folder" : "Store"; });

// ---- Of an object store alone -----------------------------------------------------------------------------------------------------------

TEST(ObjectStoreMirrorTargetOrderTest, FilesGoBeforeTheManifestAndLatestGoesLast) {
  StoreGround ground;
  base::TempFolder local;
  const std::string path = SaveSample(local.path(), 10, 1).value();
  ASSERT_TRUE(ground.Make()->Put(path, *checkpoint::LoadManifest(path)).ok());
  std::vector<std::string> writes;
  for (const std::string& line : ground.server().Log()) {
    if (line.starts_with("PUT")) writes.push_back(line);
  }
  EXPECT_THAT(writes, ElementsAre("PUT models/runs/a/step-000010/model.safetensors", "PUT models/runs/a/step-000010/optimizer.safetensors",
                                  "PUT models/runs/a/step-000010/residuals.safetensors", "PUT models/runs/a/step-000010/manifest.json",
                                  "PUT models/runs/a/latest"));
  EXPECT_EQ(ground.server().Get("models", "runs/a/latest"), "step-000010\n");
}

TEST(ObjectStoreMirrorTargetOrderTest, ATransferThatEndsEarlyLeavesWhatWasThereAndIsMadeGoodLater) {
  StoreGround ground;
  base::TempFolder local;
  const std::string first = SaveSample(local.path(), 10, 1).value(), second = SaveSample(local.path(), 20, 2).value();
  const auto place = ground.Make();
  ASSERT_TRUE(place->Put(first, *checkpoint::LoadManifest(first)).ok());
  ground.server().SetHook([](const objectstore::testing::FakeRequest& request, kube::testing::RawConnection& connection) {
    return request.method == "PUT" && request.key.ends_with("manifest.json") &&
           connection.Answer(403, objectstore::testing::FakeS3::Error("AccessDenied", ""));
  });
  EXPECT_EQ(place->Put(second, *checkpoint::LoadManifest(second)).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(place->List().value(), ElementsAre("step-000010"));
  ground.server().SetHook(nullptr);
  // Left by an attempt with another number of stages.
  ground.server().Put("models", "runs/a/step-000020/model.safetensors", "old");
  ASSERT_TRUE(place->Put(second, *checkpoint::LoadManifest(second)).ok());
  EXPECT_THAT(place->List().value(), ElementsAre("step-000020", "step-000010"));
  EXPECT_FALSE(ground.server().Get("models", "runs/a/step-000020/model.safetensors").has_value());
}

TEST(ObjectStoreMirrorTargetOrderTest, TheLastWordThatAnInterruptedWriterOwedIsSaid) {
  StoreGround ground;
  base::TempFolder local;
  const auto place = ground.Make();
  for (const int64_t step : {10, 20}) {
    const std::string path = SaveSample(local.path(), step, 1).value();
    ASSERT_TRUE(place->Put(path, *checkpoint::LoadManifest(path)).ok());
  }
  ground.server().Put("models", "runs/a/latest", "step-000010\n");
  ASSERT_TRUE(place->Put(local / "step-000010", *checkpoint::LoadManifest(local / "step-000010")).ok());
  ASSERT_TRUE(place->Put(local / "step-000020", *checkpoint::LoadManifest(local / "step-000020")).ok());
  EXPECT_EQ(ground.server().Get("models", "runs/a/latest"), "step-000020\n");
  ASSERT_TRUE(place->Put(local / "step-000010", *checkpoint::LoadManifest(local / "step-000010")).ok());
  EXPECT_EQ(ground.server().Get("models", "runs/a/latest"), "step-000020\n");  // never back
}

}  // namespace
}  // namespace fusionllm::archive
