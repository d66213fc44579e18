#include "lib/archive/mirror.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "lib/archive/folder_mirror_target.h"
#include "lib/archive/object_store_mirror_target.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/objectstore/testing/fake_s3.h"

namespace fusionllm::archive {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLongEnough = absl::Seconds(30);

class MirrorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Mirror> Make(MirrorOptions options = {}) {
    options.initial_backoff = absl::Milliseconds(1);
    options.max_backoff = absl::Milliseconds(5);
    options.on_event = [this](const MirrorEvent& news) {
      const std::lock_guard lock(mutex_);
      news_.push_back(news);
      said_.notify_all();
    };
    return std::make_unique<Mirror>(
        [this](Transfer transfer) {
          objectstore::StoreOptions options = objectstore::testing::FastRetryOptions(1);
          options.progress = transfer.progress;
          options.stop = transfer.stop;
          return std::make_unique<ObjectStoreMirrorTarget>(base::ObjectUri{.bucket = "models", .key = "a"}, server_.Settings(), options);
        },
        options);
  }
  std::string Save(int64_t step, int64_t keep = 0) { return checkpoint::SaveSample(root_, step, 1, keep).value(); }
  bool WaitFor(const std::function<bool()>& holds) {
    std::unique_lock lock(mutex_);
    return said_.wait_for(lock, std::chrono::seconds(30), holds);
  }
  std::vector<std::string> InStore() {
    ObjectStoreMirrorTarget place({.bucket = "models", .key = "a"}, server_.Settings(), objectstore::testing::FastRetryOptions());
    return place.List().value();
  }

  base::TempFolder folder_;
  const std::string root_ = folder_ / "checkpoints";
  objectstore::testing::FakeS3 server_;
  std::mutex mutex_;
  std::condition_variable said_;
  std::vector<MirrorEvent> news_;
};

TEST_F(MirrorTest, WhatIsOfferedGetsThereAndOnlyTheNewestAreKept) {
  const auto mirror = Make({.keep = 2});
  for (const int64_t step : {10, 20, 30}) mirror->Offer(Save(step), step);
  EXPECT_TRUE(mirror->Finish(kLongEnough, {}).ok());
  EXPECT_FALSE(mirror->behind());
  EXPECT_THAT(InStore(), ElementsAre("step-000030", "step-000020"));
  ASSERT_EQ(news_.size(), 3u);
  EXPECT_TRUE(news_[0].copied);
  EXPECT_EQ(news_[0].message, "s3://models/a/step-000010");
}

TEST_F(MirrorTest, WhoWaitsHasHeardOfAllThatIsThere) {
  std::atomic<bool> heard = false, waited_for = false;
  Mirror* self = nullptr;
  Mirror mirror([this](Transfer) { return std::make_unique<FolderMirrorTarget>(folder_ / "elsewhere", Transfer{}); },
                {.on_event = [&](const MirrorEvent&) {
                  waited_for = self->behind();  // as long as it is, Finish() waits
                  heard = true;
                }});
  self = &mirror;
  mirror.Offer(Save(10), 10);
  EXPECT_TRUE(mirror.Finish(kLongEnough, {}).ok());
  EXPECT_TRUE(heard);
  EXPECT_TRUE(waited_for);
}

TEST_F(MirrorTest, UnavailableStoreIsReportedOnceAndCatchesUp) {
  std::atomic<bool> away = true;
  std::atomic<int> asked = 0;
  server_.SetHook([&](const auto&, kube::testing::RawConnection& connection) {
    if (away) ++asked;
    said_.notify_all();
    return away && connection.Answer(503, objectstore::testing::FakeS3::Error("SlowDown", "Later."));
  });
  const auto mirror = Make();
  for (const int64_t step : {10, 20}) mirror->Offer(Save(step), step);
  ASSERT_TRUE(WaitFor([&] { return asked > 5; }));  // it is tried again and again
  {
    const std::lock_guard lock(mutex_);
    ASSERT_EQ(news_.size(), 1u);
    EXPECT_FALSE(news_[0].copied);
    EXPECT_THAT(news_[0].message, ::testing::AllOf(HasSubstr("step 10"), HasSubstr("503 SlowDown: Later."), HasSubstr("s3://models/a")));
  }
  away = false;
  EXPECT_TRUE(mirror->Finish(kLongEnough, {}).ok());
  EXPECT_THAT(InStore(), ElementsAre("step-000020", "step-000010"));
  EXPECT_EQ(news_.size(), 3u);
}

TEST_F(MirrorTest, WhatTheFolderHasRemovedMeanwhileIsPassedOver) {
  std::atomic<bool> away = true;
  server_.SetHook([&](const auto&, kube::testing::RawConnection& connection) { return away && connection.Answer(500, ""); });
  const auto mirror = Make({.keep = 1});
  for (const int64_t step : {10, 20, 30}) mirror->Offer(Save(step, /*keep=*/1), step);
  ASSERT_TRUE(WaitFor([&] { return !news_.empty(); }));
  away = false;
  EXPECT_TRUE(mirror->Finish(kLongEnough, {}).ok());
  EXPECT_EQ(InStore().front(), "step-000030");
}

TEST_F(MirrorTest, ADamagedCheckpointIsPassedOverAndTheNextOneCopied) {
  const std::string damaged = Save(10), good = Save(20);
  std::string bytes = base::ReadWholeFile(damaged + "/optimizer.safetensors");
  bytes.back() ^= 1;
  std::ofstream(damaged + "/optimizer.safetensors", std::ios::binary) << bytes;
  const auto mirror = Make();
  mirror->Offer(damaged, 10);
  mirror->Offer(good, 20);
  EXPECT_TRUE(mirror->Finish(kLongEnough, {}).ok());
  EXPECT_THAT(InStore(), ElementsAre("step-000020"));
  EXPECT_THAT(news_[0].message, HasSubstr("passed over"));
}

TEST_F(MirrorTest, OnlySomeStepsAreCopiedAndTheLast) {
  const auto mirror = Make({.every_steps = 20});
  for (const int64_t step : {10, 20, 30, 40, 50}) mirror->Offer(Save(step), step);
  EXPECT_TRUE(mirror->behind());
  EXPECT_TRUE(mirror->Finish(kLongEnough, {}).ok());
  EXPECT_THAT(InStore(), ElementsAre("step-000050", "step-000040", "step-000020"));
}

TEST_F(MirrorTest, FinishReportsWhyStoreIsUnavailable) {
  server_.SetHook([&](const auto&, kube::testing::RawConnection& connection) { return connection.Answer(403, ""); });
  const auto mirror = Make();
  mirror->Offer(Save(10), 10);
  const absl::Status status = mirror->Finish(absl::Milliseconds(100), {});
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(mirror->behind());
}

TEST_F(MirrorTest, ATransferThatHangsIsGivenUpWithTheMirror) {
  std::atomic<bool> hangs = false;
  server_.SetHook([&](const auto&, kube::testing::RawConnection& connection) {
    {
      const std::lock_guard lock(mutex_);
      hangs = true;
      said_.notify_all();
    }
    connection.WaitForClose();
    return true;
  });
  auto mirror = Make();
  mirror->Offer(Save(10), 10);
  ASSERT_TRUE(WaitFor([&] { return hangs.load(); }));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(mirror->Finish(kLongEnough, stop.get_token()).ok());
  mirror.reset();
}

}  // namespace
}  // namespace fusionllm::archive
