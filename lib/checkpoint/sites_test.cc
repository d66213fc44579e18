// Checkpoints with files in other sites: what manifest, writer, reader and catalog make of them.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/export.h"
#include "lib/checkpoint/incoming_file.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/site_store.h"
#include "lib/checkpoint/testing/sample.h"
#include "nlohmann/json.hpp"

namespace fusionllm::checkpoint {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
namespace fs = std::filesystem;

constexpr char kThere[] = "model-00002-of-00002.safetensors";

class SitesTest : public ::testing::Test {
 protected:
  // Stage 0 beside the committer, stage 1 in site paris.
  Manifest Staged(int64_t step) {
    Manifest manifest = SampleManifest(step);
    manifest.files = *WriteShard(root_, step, 0, 2, SampleShard(tensors_, step, 0));
    auto files = *site_.Write(1, step, 1, 2, SampleShard(tensors_, step, 1));
    for (FileEntry& file : files) {
      file.site = "paris";
      manifest.files.push_back(file);
    }
    return manifest;
  }
  std::string Saved(int64_t step, int64_t keep = 0) {
    const auto committed = CommitCheckpoint(root_, Staged(step), keep);
    EXPECT_TRUE(committed.ok()) << committed.status();
    return committed.ok() ? committed->path : "";
  }
  void BringHere(const std::string& checkpoint) {
    const Manifest manifest = *LoadManifest(checkpoint);
    for (const FileEntry& file : manifest.files) {
      if (file.site.empty()) continue;
      const std::string bytes = *base::ReadSmallFile(*site_.PathOf(file.site_folder, file.name), 1 << 20);
      auto incoming = *IncomingFile::CreateIn(checkpoint, file.name, file.bytes);
      ASSERT_TRUE(incoming->Write(std::as_bytes(std::span(bytes))).ok());
      ASSERT_TRUE(incoming->Seal(file.sha256).ok());
      ASSERT_TRUE(incoming->Stage().ok());
    }
  }

  static void Damage(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
    ASSERT_TRUE(file.good());
  }

  const base::TempFolder folder_;
  const std::string root_ = folder_ / "run/checkpoints";
  SampleTensors tensors_;
  SiteStore site_{folder_ / "paris", "0123456789abcdef", "paris-0"};
};

TEST_F(SitesTest, TheManifestSaysWhereAFileLiesAndWhatItHolds) {
  const Manifest staged = Staged(50);
  const std::string text = FormatManifest(staged);
  EXPECT_EQ(json::parse(text)["format_version"], kSitesFormatVersion) << "an earlier release would look for the file";
  const auto read = ParseManifest(text);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->files.size(), staged.files.size());
  EXPECT_EQ(read->files[0].site, "");
  const FileEntry& file = read->files[3];
  EXPECT_EQ(file.name, kThere);
  EXPECT_EQ(file.site, "paris");
  EXPECT_EQ(file.site_folder, staged.files[3].site_folder);
  EXPECT_THAT(file.tensors, ElementsAre("layer.1.weight"));
  EXPECT_TRUE(read->files[0].tensors.empty()) << "the file says it itself";
  EXPECT_EQ(json::parse(FormatManifest(SampleManifest(50)))["format_version"], kFormatVersion);
}

TEST_F(SitesTest, AManifestWithABadSiteIsRefused) {
  const auto refused = [&](const std::function<void(json&)>& spoil) {
    json document = json::parse(FormatManifest(Staged(50)));
    document.erase("sha256");
    document["format_version"] = 1;  // which needs no checksum of its own
    spoil(document["files"][3]);
    return std::string(ParseManifest(document.dump()).status().message());
  };
  EXPECT_EQ(refused([](json&) {}), "");
  EXPECT_THAT(refused([](json& file) { file["site"] = ""; }), HasSubstr("'site'"));
  EXPECT_THAT(refused([](json& file) { file["site"] = 3; }), HasSubstr("'site'"));
  EXPECT_THAT(refused([](json& file) { file.erase("site_folder"); }), HasSubstr("'site_folder'"));
  EXPECT_THAT(refused([](json& file) { file["site_folder"] = "../../etc"; }), HasSubstr("'site_folder'"));
  EXPECT_THAT(refused([](json& file) { file.erase("tensors"); }), HasSubstr("'tensors'"));
  EXPECT_THAT(refused([](json& file) { file["tensors"] = {1}; }), HasSubstr("'tensors'"));
}

TEST_F(SitesTest, RejectsCommitOfUnreadableShards) {
  const std::string before = Saved(40);
  const auto refused = [&](const std::function<void(FileEntry&)>& spoil) {
    Manifest manifest = Staged(50);
    spoil(manifest.files[3]);
    return std::string(CommitCheckpoint(root_, manifest, 0).status().message());
  };
  EXPECT_THAT(refused([](FileEntry& file) { file.site = std::string(300, 'x'); }), HasSubstr("'site'"));
  EXPECT_THAT(refused([](FileEntry& file) { file.site_folder = "../../etc"; }), HasSubstr("'site_folder'"));
  EXPECT_THAT(refused([](FileEntry& file) { file.sha256 = "none"; }), HasSubstr("SHA-256"));
  EXPECT_THAT(refused([](FileEntry& file) { file.tensors = {std::string(static_cast<size_t>(kMaxManifestBytes), 'x')}; }),
              HasSubstr("are not read"));
  EXPECT_EQ(*FindLatestComplete(root_)->path, before);
  EXPECT_FALSE(fs::exists(root_ + "/step-000050"));
  EXPECT_EQ(refused([](FileEntry&) {}), "");
}

TEST_F(SitesTest, ACopyHasTheFilesOfAllSites) {
  const std::string saved = Saved(50), other = folder_ / "replica";
  BringHere(saved);
  const Manifest manifest = *LoadManifest(saved);
  const auto stage = [&] {
    fs::create_directories(StagingFolder(other, 50));
    for (const FileEntry& file : manifest.files) fs::copy_file(fs::path(saved) / file.name, fs::path(StagingFolder(other, 50)) / file.name);
  };
  stage();
  const auto installed = InstallCheckpoint(other, manifest);
  ASSERT_TRUE(installed.ok()) << installed.status();
  EXPECT_TRUE(VerifyCheckpoint(*installed).ok()) << VerifyCheckpoint(*installed);
  stage();
  fs::remove(fs::path(StagingFolder(other, 50)) / kThere);
  EXPECT_TRUE(absl::IsFailedPrecondition(InstallCheckpoint(other, manifest).status())) << "one without them is no copy";
}

TEST_F(SitesTest, ShardsStayInTheirSiteAndTheIndexNamesThemAll) {
  const std::string saved = Saved(50);
  EXPECT_FALSE(fs::exists(absl::StrCat(saved, "/", kThere)));
  const json index = json::parse(*base::ReadSmallFile(absl::StrCat(saved, "/", kIndexName), 1 << 20));
  EXPECT_EQ(index["weight_map"]["layer.1.weight"], kThere);
  EXPECT_EQ(index["metadata"]["total_size"], 48) << "of both";
  EXPECT_EQ(fs::read_symlink(absl::StrCat(root_, "/latest")), "step-000050");
}

TEST_F(SitesTest, CommitsWithoutFilesBesideTheCommitter) {
  Manifest manifest = SampleManifest(50);
  auto files = *site_.Write(1, 50, 0, 1, SampleShard(tensors_, 50, 0));
  for (FileEntry& file : files) {
    file.site = "paris";
    manifest.files.push_back(file);
  }
  const auto committed = CommitCheckpoint(root_, manifest, 0);
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_THAT(CheckpointReader::Open(committed->path, SiteFilesPolicy::kSkip)->files_in_other_sites(), SizeIs(3));
}

TEST_F(SitesTest, ATensorInTwoShardsIsFoundByTheWordOfWhoWroteThem) {
  Manifest manifest = Staged(50);
  manifest.files[3].tensors.push_back("layer.0.weight");
  EXPECT_TRUE(absl::IsFailedPrecondition(CommitCheckpoint(root_, manifest, 0).status()));
  EXPECT_FALSE(fs::exists(root_ + "/step-000050"));
}

TEST_F(SitesTest, ACrashBetweenShardAndCommitLeavesNoCheckpoint) {
  const std::string before = Saved(40);
  (void)Staged(50);  // and nothing more happens
  EXPECT_THAT(*ListCheckpoints(root_), SizeIs(1));
  EXPECT_EQ(*FindLatestComplete(root_)->path, before);
  const auto named = SiteFoldersOf(root_);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_THAT(named->at("paris"), ElementsAre(HasSubstr("/paris-0/step-000040.")));
  ASSERT_TRUE(site_.GarbageCollect({.epoch = 1, .step = 50, .kept = named->at("paris")}).ok());
  int saves = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "paris/shards/0123456789abcdef/paris-0")) saves += entry.is_directory() ? 1 : 0;
  EXPECT_EQ(saves, 1) << "and what was left is gone at the next word";
}

TEST_F(SitesTest, OpenListsFilesInOtherSites) {
  const std::string saved = Saved(50);
  for (const absl::Status& status : {CheckpointReader::Open(saved).status(), VerifyCheckpoint(saved), VerifyCheckpoint(root_),
                                     ExportModel(saved, folder_ / "out.safetensors").status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(kThere), HasSubstr("in site paris"), HasSubstr("replica")));
  }
  EXPECT_TRUE(VerifyCheckpoint(saved, SiteFilesPolicy::kSkip).ok());
  const CheckpointInfo info = ListCheckpoints(root_)->front();
  EXPECT_EQ(info.problem, "");
  EXPECT_THAT(info.other_sites, HasSubstr("in site paris"));
  const auto reader = CheckpointReader::Open(saved, SiteFilesPolicy::kSkip);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(reader->Contains("layer.0.weight"));
  EXPECT_FALSE(reader->Contains("layer.1.weight"));
  EXPECT_THAT(reader->files_in_other_sites(), SizeIs(3));
}

TEST_F(SitesTest, WhatIsDamagedHereIsFoundAllTheSame) {
  const std::string saved = Saved(50);
  std::ofstream(absl::StrCat(saved, "/model-00001-of-00002.safetensors"), std::ios::app) << "x";
  EXPECT_TRUE(absl::IsDataLoss(VerifyCheckpoint(saved, SiteFilesPolicy::kSkip)));
  EXPECT_FALSE(FindLatestComplete(root_)->path.has_value());
}

TEST_F(SitesTest, FilesThatWereBroughtHereCountAsAnyOther) {
  const std::string saved = Saved(50);
  BringHere(saved);
  EXPECT_TRUE(VerifyCheckpoint(saved).ok()) << VerifyCheckpoint(saved);
  EXPECT_TRUE(CheckpointReader::Open(saved)->Contains("layer.1.weight.exp_avg"));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(saved)) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, Not(Contains(HasSubstr(".recalled"))));
  fs::resize_file(absl::StrCat(saved, "/", kThere), 5);
  EXPECT_THAT(FilesInOtherSites(saved, *LoadManifest(saved)), SizeIs(1)) << "the site still has it";
}

TEST_F(SitesTest, WhatWasBroughtHereAndIsDamagedHereIsStillInItsSite) {
  const std::string saved = Saved(50), brought = absl::StrCat(saved, "/", kThere);
  BringHere(saved);
  Damage(brought);
  EXPECT_TRUE(absl::IsDataLoss(VerifyCheckpoint(saved))) << "who only looks changes nothing";
  EXPECT_TRUE(fs::exists(brought));
  EXPECT_EQ(FindLatestComplete(root_)->path, saved);
  EXPECT_FALSE(fs::exists(brought)) << "it is asked of the site again";
  EXPECT_THAT(FilesInOtherSites(saved, *LoadManifest(saved)), SizeIs(1));
}

// Its site may be gone by now: this may be the only one.
TEST_F(SitesTest, WhatWasBroughtHereAndCannotBeReadNowStays) {
  const std::string saved = Saved(50), brought = absl::StrCat(saved, "/", kThere);
  BringHere(saved);
  // Root reads everything.
  for (const auto& file : fs::directory_iterator(saved)) fs::permissions(file.path(), fs::perms(0644));
  for (fs::path folder = saved; folder != fs::path(folder_.path()).parent_path(); folder = folder.parent_path()) {
    fs::permissions(folder, fs::perms(0777));
  }
  fs::permissions(brought, fs::perms::none);
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const absl::Status verified = VerifyToRestore(saved);
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_THAT(verified.message(), HasSubstr(kThere)) << verified;
  EXPECT_TRUE(absl::IsPermissionDenied(verified)) << "nothing is known to be damaged: " << verified;
  EXPECT_TRUE(fs::exists(brought));
}

TEST_F(SitesTest, WhatWasBroughtHereStaysWhereTheCheckpointIsDamagedAllTheSame) {
  const std::string saved = Saved(50), brought = absl::StrCat(saved, "/", kThere);
  BringHere(saved);
  Damage(brought);
  Damage(absl::StrCat(saved, "/model-00001-of-00002.safetensors"));
  EXPECT_FALSE(FindLatestComplete(root_)->path.has_value());
  EXPECT_TRUE(fs::exists(brought)) << "for the user to look at";
}

TEST_F(SitesTest, FilesThatDoNotArriveWholeAreNotThere) {
  const std::string saved = Saved(50);
  const FileEntry file = LoadManifest(saved)->files[3];
  {
    auto incoming = *IncomingFile::CreateIn(saved, file.name, file.bytes);
    const std::string other(static_cast<size_t>(file.bytes), 'x');
    ASSERT_TRUE(incoming->Write(std::as_bytes(std::span(other))).ok());
    EXPECT_TRUE(absl::IsDataLoss(incoming->Seal(file.sha256).status()));
  }
  EXPECT_THAT(FilesInOtherSites(saved, *LoadManifest(saved)), SizeIs(3));
  EXPECT_TRUE(fs::exists(saved + "/manifest.json"));
}

TEST_F(SitesTest, OldOnesArePrunedAndNoLongerNamed) {
  for (const int64_t step : {10, 20, 30}) Saved(step, /*keep=*/2);
  EXPECT_THAT(SiteFoldersOf(root_)->at("paris"), ElementsAre(HasSubstr("step-000020."), HasSubstr("step-000030.")));
}

TEST_F(SitesTest, AManifestThatCannotBeReadNowLetsNothingBeRemoved) {
  Saved(10);
  fs::create_directories(root_ + "/step-000020/manifest.json");  // a folder: no file that could be read
  EXPECT_FALSE(SiteFoldersOf(root_).ok());
}

TEST_F(SitesTest, AManifestOfALaterReleaseLetsNothingBeRemoved) {
  Saved(10);
  json document = json::parse(FormatManifest(SampleManifest(20)));
  document.erase("sha256");
  document["format_version"] = kSitesFormatVersion + 1;
  folder_.Write("run/checkpoints/step-000020/manifest.json", document.dump());
  EXPECT_TRUE(absl::IsUnimplemented(SiteFoldersOf(root_).status())) << SiteFoldersOf(root_).status();
}

TEST_F(SitesTest, ADamagedManifestLetsNothingBeRemoved) {
  Saved(10);
  const std::string manifest = Saved(20) + "/manifest.json", text = *base::ReadSmallFile(manifest, 1 << 20);
  for (const std::string& damaged : {text.substr(0, text.size() / 2), absl::StrReplaceAll(text, {{"paris", "parys"}})}) {
    std::ofstream(manifest, std::ios::trunc) << damaged;
    const absl::Status status = SiteFoldersOf(root_).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr("step-000020"));
  }
  fs::remove(manifest);
  EXPECT_THAT(SiteFoldersOf(root_).status().message(), HasSubstr("step-000020")) << "what it named is not known any more";
  fs::rename(root_ + "/step-000020", root_ + "/step-000020.earlier-1");
  EXPECT_FALSE(SiteFoldersOf(root_).ok()) << "set aside";
  fs::remove_all(root_ + "/step-000020.earlier-1");
  std::ofstream(root_ + "/step-000020.tar") << "a user's own";
  EXPECT_TRUE(SiteFoldersOf(root_).ok());
}

TEST_F(SitesTest, CheckpointsThatAreNotEligibleArePassedOver) {
  const std::string first = Saved(10), second = Saved(20), third = Saved(30);
  EXPECT_EQ(*FindLatestComplete(root_, {.unusable = {third}})->path, second);
  EXPECT_EQ(*FindLatestComplete(root_, {.unusable = {third, second}})->path, first);
  EXPECT_FALSE(FindLatestComplete(root_, {.first_sequence = 3, .unusable = {third}})->path.has_value()) << "the others are another run's";
}

}  // namespace
}  // namespace fusionllm::checkpoint
