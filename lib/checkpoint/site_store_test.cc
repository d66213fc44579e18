#include "lib/checkpoint/site_store.h"

#include <array>
#include <barrier>
#include <filesystem>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/output_file.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/testing/sample.h"

namespace fusionllm::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

constexpr char kId[] = "0123456789abcdef";

class SiteStoreTest : public ::testing::Test {
 protected:
  // The folder in the site of the shard that is written.
  std::string Save(SiteStore& store, uint32_t epoch, int64_t step) {
    const auto files = store.Write(epoch, step, 1, 2, SampleShard(tensors_, step, 1));
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? files->front().site_folder : "";
  }
  bool Has(const std::string& site_folder) const { return fs::exists(absl::StrCat(site_, "/shards/", site_folder)); }

  const base::TempFolder folder_;
  const std::string site_ = folder_ / "site";
  SampleTensors tensors_;
  SiteStore store_{site_, kId, "paris-0"};
};

TEST_F(SiteStoreTest, AShardIsWrittenOnceWithItsSumsUnderANameOfItsOwn) {
  const auto files = store_.Write(1, 50, 1, 2, SampleShard(tensors_, 50, 1));
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 3u);
  const FileEntry& model = files->front();
  EXPECT_EQ(model.name, "model-00002-of-00002.safetensors");
  EXPECT_EQ(model.tensor_bytes, 24);
  const auto folder = ParseSiteFolder(model.site_folder);
  ASSERT_TRUE(folder.has_value()) << model.site_folder;
  EXPECT_EQ(folder->id, kId);
  EXPECT_EQ(folder->device, "paris-0");
  EXPECT_EQ(folder->step, 50);
  EXPECT_EQ(*Sha256OfFile(*store_.PathOf(model.site_folder, model.name)), model.sha256);
  EXPECT_NE(Save(store_, 2, 50), model.site_folder) << "the same step again, as after a restore";
  EXPECT_TRUE(Has(model.site_folder)) << "a manifest may name it";
}

TEST_F(SiteStoreTest, WhereShardsCanBeKeptIsKnownBeforeThereAreAny) {
  EXPECT_TRUE(CanKeepShards(site_).ok());
  EXPECT_TRUE(fs::is_directory(site_)) << "made";
  folder_.Write("file", "");
  const absl::Status none = CanKeepShards(folder_ / "file/site");
  EXPECT_FALSE(none.ok());
  EXPECT_THAT(std::string(none.message()), ::testing::HasSubstr("file/site"));
}

TEST_F(SiteStoreTest, ServesExistingShardsWithoutWriteAccess) {
  EXPECT_NE(Save(store_, 1, 50), "");
  EXPECT_TRUE(CanKeepShards(site_).ok());
}

TEST_F(SiteStoreTest, WhatCannotBeWrittenLeavesNothing) {
  ASSERT_TRUE(base::MakeFolders(site_).ok());
  folder_.Write("site/shards", "a file where the folder should be");
  EXPECT_FALSE(store_.Write(1, 50, 1, 2, SampleShard(tensors_, 50, 1)).ok());
  SiteStore other(folder_ / "other", kId, "paris-0");
  EXPECT_FALSE(other.Write(1, 50, 2, 2, SampleShard(tensors_, 50, 1)).ok()) << "no such stage";
  EXPECT_TRUE(fs::is_empty(folder_ / "other/shards/0123456789abcdef/paris-0"));
}

TEST_F(SiteStoreTest, NamesThatLeadOutOfTheFolderAreRefused) {
  const std::string good = "0123456789abcdef/paris-0/step-000050.fedcba9876543210";
  EXPECT_TRUE(store_.PathOf(good, "model.safetensors").ok());
  for (const std::string& bad :
       {std::string(), std::string(".."), "/" + good, good + "/..", good + "/x",
        std::string("0123456789abcdef/../step-000050.fedcba9876543210"), std::string("0123456789abcdef/paris-0/step-50.fedcba9876543210"),
        std::string("0123456789abcdef/paris-0/step-000050.fedcba987654321"),
        std::string("../0123456789abcdef/paris-0/step-000050.fedcba9876543210")}) {
    EXPECT_FALSE(store_.PathOf(bad, "model.safetensors").ok()) << bad;
  }
  for (const std::string bad : {"", "..", "../model.safetensors", "manifest.json", "model-/../../x.safetensors"}) {
    EXPECT_FALSE(store_.PathOf(good, bad).ok()) << bad;
  }
}

TEST_F(SiteStoreTest, WhatNoCheckpointHasIsRemovedAndWhatIsNotDecidedStays) {
  const std::string failed = Save(store_, 1, 10), kept = Save(store_, 1, 20), next = Save(store_, 1, 30), later = Save(store_, 2, 10);
  ASSERT_TRUE(store_.GarbageCollect({.epoch = 1, .step = 20, .kept = {kept}}).ok());
  EXPECT_FALSE(Has(failed));
  EXPECT_TRUE(Has(kept));
  EXPECT_TRUE(Has(next)) << "written already, while the step before became a checkpoint";
  EXPECT_TRUE(Has(later)) << "of a plan epoch that the order did not know";
  ASSERT_TRUE(store_.GarbageCollect({.epoch = 2, .step = 10, .kept = {later}}).ok());
  EXPECT_FALSE(Has(kept));
  EXPECT_FALSE(Has(next));
  EXPECT_TRUE(Has(later));
}

TEST_F(SiteStoreTest, WhatAnEarlierLifeHasLeftIsRemovedAtTheFirstWord) {
  std::string kept, left;
  {
    SiteStore before(site_, kId, "paris-0");
    kept = Save(before, 7, 90);
    left = Save(before, 7, 100);
  }
  ASSERT_TRUE(store_.GarbageCollect({.epoch = 1, .step = 95, .kept = {kept}}).ok());
  EXPECT_TRUE(Has(kept));
  EXPECT_FALSE(Has(left)) << "of a later step than the word is about, but nobody is left who could report it";
}

TEST_F(SiteStoreTest, OtherDevicesAreTidiedWhenTheyAreGoneAndOtherRunsNever) {
  SiteStore neighbour(site_, kId, "paris-1"), gone(site_, kId, "paris-2"), other_run(site_, "aaaaaaaaaaaaaaaa", "paris-2");
  const std::string of_neighbour = Save(neighbour, 1, 10), of_gone = Save(gone, 1, 10), of_gone_kept = Save(gone, 1, 20),
                    of_other_run = Save(other_run, 1, 10);
  ASSERT_TRUE(store_.GarbageCollect({.epoch = 1, .step = 20, .kept = {of_gone_kept}}).ok());
  EXPECT_TRUE(Has(of_neighbour) && Has(of_gone)) << "not asked to";
  const std::set<std::string> present = {"paris-0", "paris-1"};
  ASSERT_TRUE(store_.GarbageCollect({.epoch = 1, .step = 20, .kept = {of_gone_kept}, .present = &present}).ok());
  EXPECT_TRUE(Has(of_neighbour)) << "it may be reporting it";
  EXPECT_FALSE(Has(of_gone));
  EXPECT_TRUE(Has(of_gone_kept));
  EXPECT_TRUE(Has(of_other_run));
}

TEST_F(SiteStoreTest, TwoWhoRemoveTheSameDoNotComplainOfEachOther) {
  const std::set<std::string> present = {"paris-0", "paris-1"};
  for (int round = 0; round < 20; ++round) {
    SiteStore first(site_, kId, "paris-0"), second(site_, kId, "paris-1"), gone(site_, kId, "paris-2");
    for (int64_t step = 1; step <= 3; ++step) Save(gone, 1, step);
    std::array<absl::Status, 2> tidied;
    {
      std::barrier start(2);
      std::vector<std::jthread> threads;
      for (SiteStore* store : {&first, &second}) {
        threads.emplace_back([&, store] {
          start.arrive_and_wait();
          tidied[store == &first ? 0 : 1] = store->GarbageCollect({.epoch = 2, .step = 20, .present = &present});
        });
      }
    }
    for (const absl::Status& status : tidied) ASSERT_TRUE(status.ok()) << status;
  }
}

TEST_F(SiteStoreTest, AFolderOfCheckpointsKeepsItsId) {
  const std::string root = folder_ / "run/checkpoints";
  const auto id = ShardsIdOf(root);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_TRUE(IsShardsId(id->id));
  EXPECT_EQ(ShardsIdOf(root)->id, id->id);
  EXPECT_NE(ShardsIdOf(folder_ / "other")->id, id->id);
}

TEST_F(SiteStoreTest, MovedOrRemountedFolderKeepsItsId) {
  const std::string root = folder_ / "run/checkpoints", moved = folder_ / "elsewhere";
  const std::string id = ShardsIdOf(root)->id;
  std::filesystem::rename(root, moved);
  EXPECT_EQ(ShardsIdOf(moved)->id, id);
  // Another inode under the same path.
  std::filesystem::copy(moved, folder_ / "mounted");
  std::filesystem::rename(moved, folder_ / "before");
  std::filesystem::rename(folder_ / "mounted", moved);
  const auto mounted = ShardsIdOf(moved);
  EXPECT_EQ(mounted->id, id);
  EXPECT_EQ(mounted->copied_id, "");
  std::filesystem::rename(moved, root);
  EXPECT_EQ(ShardsIdOf(root)->id, id) << "it is known by the inode that it has now";
  std::filesystem::create_directory_symlink(root, folder_ / "link");
  EXPECT_EQ(ShardsIdOf(folder_ / "link")->id, id);
}

TEST_F(SiteStoreTest, ACopyGetsAnIdOfItsOwnAndReadsWhatTheOtherHasWithoutRemovingIt) {
  const std::string root = folder_ / "run/checkpoints", copy = folder_ / "copy/checkpoints";
  const std::string id = ShardsIdOf(root)->id;
  SiteStore of_root(site_, id, "paris-0");
  const std::string saved = Save(of_root, 1, 10);
  std::filesystem::create_directory(folder_ / "copy");
  std::filesystem::copy(root, copy, std::filesystem::copy_options::recursive);
  const auto own = ShardsIdOf(copy);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_NE(own->id, id);
  EXPECT_EQ(own->copied_id, id);
  EXPECT_EQ(own->copied_from, std::filesystem::canonical(root).string());
  SiteStore of_copy(site_, own->id, "paris-0");
  const std::set<std::string> no_devices;
  ASSERT_TRUE(of_copy.GarbageCollect({.epoch = 9, .step = 90, .present = &no_devices}).ok());
  const auto path = of_copy.PathOf(saved, "model-00002-of-00002.safetensors");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(std::filesystem::exists(*path));

  const auto again = ShardsIdOf(copy);
  EXPECT_EQ(again->id, own->id);
  EXPECT_EQ(again->copied_id, "") << "it is said once";
  EXPECT_EQ(ShardsIdOf(root)->id, id);
}

TEST_F(SiteStoreTest, AnIdOfAnEarlierReleaseStays) {
  const std::string root = folder_ / "run/checkpoints";
  folder_.Write("run/checkpoints/.shards-id", "0123456789abcdef\n");
  EXPECT_EQ(ShardsIdOf(root)->id, "0123456789abcdef");
  std::filesystem::copy(root, folder_ / "copy");
  EXPECT_NE(ShardsIdOf(folder_ / "copy")->id, "0123456789abcdef") << "it says by now where it belongs";
}

TEST_F(SiteStoreTest, AllWhoComeAtTheSameTimeGetTheSameId) {
  for (int round = 0; round < 50; ++round) {
    const std::string root = absl::StrCat(folder_ / "run", round);
    std::array<absl::StatusOr<ShardsId>, 4> ids;
    {
      std::barrier start(static_cast<ptrdiff_t>(ids.size()));
      std::vector<std::jthread> threads;
      for (absl::StatusOr<ShardsId>& id : ids) {
        threads.emplace_back([&] {
          start.arrive_and_wait();
          id = ShardsIdOf(root);
        });
      }
    }
    for (const absl::StatusOr<ShardsId>& id : ids) {
      ASSERT_TRUE(id.ok()) << id.status();
      EXPECT_EQ(id->id, ids[0]->id);
    }
  }
}

}  // namespace
}  // namespace fusionllm::checkpoint
