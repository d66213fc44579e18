#include "lib/archive/fetch_latest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "lib/archive/folder_mirror_target.h"
#include "lib/archive/object_store_mirror_target.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/objectstore/testing/fake_s3.h"

namespace fusionllm::archive {
namespace {

using ::testing::HasSubstr;

class FetchLatestTest : public ::testing::Test {
 protected:
  // Saves a checkpoint in the run's folder and in the places.
  void Save(int64_t step, const std::vector<MirrorTarget*>& places) {
    const std::string path = checkpoint::SaveSample(root_, step, 1).value();
    for (MirrorTarget* const place : places) ASSERT_TRUE(place->Put(path, *checkpoint::LoadManifest(path)).ok());
  }
  static void Damage(const std::string& path) {
    std::string bytes = base::ReadWholeFile(path);
    ASSERT_FALSE(bytes.empty());
    bytes.back() ^= 1;
    std::ofstream(path, std::ios::binary) << bytes;
  }

  base::TempFolder folder_;
  const std::string root_ = folder_ / "checkpoints";
  objectstore::testing::FakeS3 server_;
  ObjectStoreMirrorTarget store_{{.bucket = "models", .key = "a"}, server_.Settings(), objectstore::testing::FastRetryOptions(2)};
  FolderMirrorTarget replica_{folder_ / "replica"};
  const std::vector<MirrorTarget*> targets_ = {&store_, &replica_};
};

TEST_F(FetchLatestTest, RunStartsFreshOnlyWithoutAnyCheckpoint) {
  const auto newest = FetchLatest(root_, targets_);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_FALSE(newest->path.has_value());
  server_.SetHook([](const auto&, kube::testing::RawConnection& connection) { return connection.Answer(503, ""); });
  EXPECT_EQ(FetchLatest(root_, targets_).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(FetchLatestTest, ReportsNewestCopyOfLaterRelease) {
  Save(10, {});
  const auto put = [this](int64_t sequence) {
    checkpoint::Manifest manifest = checkpoint::SampleManifest(20);
    manifest.sequence = sequence;
    manifest.format_version = 9;
    folder_.Write("replica/step-000020/manifest.json", checkpoint::FormatManifest(manifest));
  };
  put(7);
  auto newest = FetchLatest(root_, {&replica_});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->path, root_ + "/step-000010");
  ASSERT_EQ(newest->skipped.size(), 1u);
  EXPECT_TRUE(newest->skipped[0].newer_format);
  EXPECT_EQ(LatestSequence({&replica_}).value(), 7) << "who begins anew must come after it";
  put(0);
  newest = FetchLatest(root_, {&replica_});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_TRUE(newest->skipped.empty()) << "what is here was made after it";
}

TEST_F(FetchLatestTest, WhatIsHereIsNotFetched) {
  Save(10, targets_);
  const auto newest = FetchLatest(root_, targets_);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->path, root_ + "/step-000010");
  EXPECT_EQ(newest->from, "");
  for (const std::string& line : server_.Log()) EXPECT_FALSE(line.ends_with("model.safetensors") && line.starts_with("GET")) << line;
}

TEST_F(FetchLatestTest, ALostFolderComesBackFromTheStore) {
  Save(10, targets_);
  Save(20, targets_);
  std::filesystem::remove_all(root_);
  const auto newest = FetchLatest(root_, targets_);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->path, root_ + "/step-000020");
  EXPECT_EQ(newest->from, "s3://models/a");
  EXPECT_TRUE(checkpoint::VerifyCheckpoint(*newest->path).ok());
}

TEST_F(FetchLatestTest, ADamagedCopyIsPassedOverForTheReplica) {
  Save(10, targets_);
  Save(20, targets_);
  std::filesystem::remove_all(root_);
  std::string bytes = *server_.Get("models", "a/step-000020/model.safetensors");
  bytes.back() ^= 1;
  server_.Put("models", "a/step-000020/model.safetensors", bytes);
  const auto newest = FetchLatest(root_, targets_);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->path, root_ + "/step-000020");
  EXPECT_EQ(newest->from, folder_ / "replica");
  ASSERT_EQ(newest->skipped.size(), 1u);
  EXPECT_EQ(newest->skipped[0].path, "step-000020 of s3://models/a");
  EXPECT_THAT(newest->skipped[0].reason, HasSubstr("checksum"));
}

TEST_F(FetchLatestTest, ADamagedFolderOfTheRunIsPassedOverAndLeftToLookAt) {
  Save(10, {});
  Save(20, {&replica_});
  Damage(root_ + "/step-000020/model.safetensors");
  const auto newest = FetchLatest(root_, {&replica_});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->path, root_ + "/step-000020");
  EXPECT_EQ(newest->from, folder_ / "replica");
  EXPECT_TRUE(std::filesystem::exists(root_ + "/step-000020.earlier-1"));
}

TEST_F(FetchLatestTest, AStoreThatIsAwayIsPassedOverWhereAnotherHasSomething) {
  Save(10, targets_);
  std::filesystem::remove_all(root_);
  server_.SetHook([](const auto&, kube::testing::RawConnection& connection) { return connection.Answer(503, ""); });
  const auto newest = FetchLatest(root_, targets_);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->from, folder_ / "replica");
  ASSERT_EQ(newest->skipped.size(), 1u);
  EXPECT_EQ(newest->skipped[0].path, "s3://models/a");
  EXPECT_FALSE(LatestSequence(targets_).ok());
}

TEST_F(FetchLatestTest, ACopyStandsInForWhatIsHereAndCannotBeUsed) {
  Save(10, {});
  Save(20, {&replica_});
  const std::string unusable = root_ + "/step-000020";
  auto newest = FetchLatest(root_, {}, {.unusable = {unusable}});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->path, root_ + "/step-000010");
  EXPECT_FALSE(FetchLatest(root_, {&replica_}, {.first_sequence = 3, .unusable = {unusable}})->path.has_value()) << "another run's";
  newest = FetchLatest(root_, {&replica_}, {.unusable = {unusable}});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->path, unusable) << "in its place";
  EXPECT_EQ(newest->from, folder_ / "replica");
  EXPECT_TRUE(std::filesystem::exists(unusable + ".earlier-1"));
}

TEST_F(FetchLatestTest, FreshRunNumbersAboveHighestSequence) {
  EXPECT_EQ(LatestSequence(targets_).value(), 0);
  Save(10, {&store_});
  Save(20, {&replica_});
  EXPECT_EQ(LatestSequence(targets_).value(), 2);
}

}  // namespace
}  // namespace fusionllm::archive
