#include "services/broker/shard_fetcher.h"

#include <chrono>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/testing/sample.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A checkpoint with three files in paris; executors are the tests'.
class ShardFetcherTest : public ::testing::Test {
 protected:
  ShardFetcherTest() {
    checkpoint::Manifest manifest = checkpoint::SampleManifest(20);
    for (const char* kind : {"model", "optimizer", "residuals"}) {
      files_.push_back({.name = absl::StrCat(kind, "-00002-of-00002.safetensors"),
                        .bytes = 9,
                        .sha256 = std::string(64, 'a'),
                        .tensors = {kind},
                        .site = "paris",
                        .site_folder = "0123456789abcdef/paris-0/step-000020.fedcba9876543210"});
    }
    manifest.files = files_;
    saved_ = folder_ / "step-000020";
    folder_.Write("step-000020/manifest.json", checkpoint::FormatManifest(manifest));
  }

  const base::TempFolder folder_;
  std::string saved_;
  std::vector<checkpoint::FileEntry> files_;
};

TEST_F(ShardFetcherTest, AWaitForASiteIsReportedWithReasonAndTimeAndAgain) {
  ShardFetcher fetcher({.absence_timeout = std::chrono::seconds(100), .notify_interval = std::chrono::milliseconds(1)});
  std::mutex mutex;
  std::vector<WaitingForSite> notices;
  fetcher.OnWaiting([&](const WaitingForSite& awaited) {
    const std::lock_guard lock(mutex);
    notices.push_back(awaited);
  });
  const auto notice_count = [&] {
    const std::lock_guard lock(mutex);
    return notices.size();
  };
  const auto bring = [&] { return fetcher.FetchShard(saved_, files_.at(0), [] { return false; }); };
  auto brought = std::async(std::launch::async, bring);
  while (notice_count() < 2) std::this_thread::yield();
  const WaitingForSite at_first = [&] {
    const std::lock_guard lock(mutex);
    return notices[0];
  }();
  EXPECT_EQ(at_first.site, "paris");
  EXPECT_EQ(at_first.folder, saved_);
  EXPECT_EQ(at_first.first, files_.at(0).name);
  EXPECT_EQ(at_first.files, 3);
  EXPECT_THAT(at_first.left.count(), AllOf(::testing::Gt(90), ::testing::Le(100)));

  fetcher.CancelWaits();
  const absl::Status given_up = brought.get();
  EXPECT_TRUE(absl::IsUnavailable(given_up)) << given_up;
  const size_t before = notice_count();
  EXPECT_TRUE(absl::IsUnavailable(bring())) << "nor is it waited for again";
  EXPECT_EQ(notice_count(), before);
}

TEST_F(ShardFetcherTest, ClosedRunDoesNotWaitForSites) {
  ShardFetcher fetcher({.absence_timeout = std::chrono::seconds(100), .fixed_executors = true});
  int notices = 0;
  fetcher.OnWaiting([&](const WaitingForSite&) { ++notices; });
  const absl::Status status = fetcher.FetchShard(saved_, files_.at(0), [] { return false; });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), AllOf(HasSubstr("site paris"), HasSubstr("--listen")));
  EXPECT_EQ(notices, 0);
}

TEST_F(ShardFetcherTest, WaitsForShutDownSiteUntilRunEnds) {
  ShardFetcher fetcher({.absence_timeout = std::chrono::hours(1)});
  std::mutex mutex;
  int notices = 0;
  fetcher.OnWaiting([&](const WaitingForSite&) {
    const std::lock_guard lock(mutex);
    ++notices;
  });
  const auto was_notified = [&] {
    const std::lock_guard lock(mutex);
    return notices > 0;
  };
  fetcher.AddExecutor("paris-0", "paris");
  fetcher.MarkLeaving("paris-0");
  fetcher.RemoveExecutor("paris-0");
  auto brought = std::async(std::launch::async, [&] { return fetcher.FetchShard(saved_, files_.at(0), [] { return false; }); });
  while (!was_notified()) std::this_thread::yield();
  EXPECT_NE(brought.wait_for(std::chrono::seconds(0)), std::future_status::ready) << "its Pod may have been drained: another comes";
  fetcher.SetShutdownTimeout(std::chrono::hours(1));
  const absl::Status status = brought.get();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("asked to end"));
}

TEST_F(ShardFetcherTest, AllShuttingDownWhereEachHolderOfTheSitesWasOrderedToEnd) {
  constexpr std::chrono::milliseconds kNow{0};
  ShardFetcher fetcher;
  for (const char* executor : {"paris-0", "paris-1"}) fetcher.AddExecutor(executor, "paris");
  fetcher.AddExecutor("oslo-0", "oslo");
  fetcher.MarkLeaving("paris-0");
  EXPECT_FALSE(fetcher.AllShuttingDown({"paris"}, kNow)) << "of one nothing is known";
  fetcher.MarkLeaving("paris-1");
  EXPECT_TRUE(fetcher.AllShuttingDown({"paris"}, kNow));
  EXPECT_FALSE(fetcher.AllShuttingDown({"paris", "oslo"}, kNow));
  for (const char* executor : {"paris-0", "paris-1"}) fetcher.RemoveExecutor(executor);
  EXPECT_TRUE(fetcher.AllShuttingDown({"paris"}, kNow));
  fetcher.RemoveExecutor("oslo-0");
  EXPECT_FALSE(fetcher.AllShuttingDown({"oslo"}, kNow)) << "it was lost, and may come back";
  EXPECT_FALSE(fetcher.AllShuttingDown({"lima"}, kNow)) << "nobody of that site was there";
}

TEST_F(ShardFetcherTest, AllShuttingDownWaitsForExecutorsThatAreEnding) {
  ShardFetcher fetcher;
  fetcher.AddExecutor("paris-0", "paris");
  auto all = std::async(std::launch::async, [&] { return fetcher.AllShuttingDown({"paris"}, std::chrono::hours(1)); });
  fetcher.MarkLeaving("paris-0");
  EXPECT_TRUE(all.get());
}

TEST_F(ShardFetcherTest, AtTheEndOfTheRunAnExecutorThatWasLostIsStillAwaited) {
  ShardFetcher fetcher({.absence_timeout = std::chrono::hours(1)});
  std::promise<void> notices;
  fetcher.OnWaiting([&](const WaitingForSite&) { notices.set_value(); });
  for (const char* executor : {"paris-0", "paris-1"}) fetcher.AddExecutor(executor, "paris");
  fetcher.MarkLeaving("paris-0");
  fetcher.RemoveExecutor("paris-0");
  fetcher.RemoveExecutor("paris-1");
  fetcher.SetShutdownTimeout(std::chrono::hours(1));
  auto brought = std::async(std::launch::async, [&] { return fetcher.FetchShard(saved_, files_.at(0), [] { return false; }); });
  EXPECT_EQ(notices.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  fetcher.CancelWaits();
  EXPECT_TRUE(absl::IsUnavailable(brought.get()));
}

TEST_F(ShardFetcherTest, WhoSendsAnotherFileFirstIsNotSilent) {
  constexpr auto kSilence = std::chrono::seconds(2);
  const auto never = [] { return false; };
  ShardFetcher fetcher({.silence_timeout = kSilence, .rounds = 1});
  std::mutex mutex;
  std::vector<uint64_t> asked;
  const auto asked_so_far = [&] {
    const std::lock_guard lock(mutex);
    return asked.size();
  };
  fetcher.SendBy([&](const std::string&, const v1::BrokerMessage& order) {
    const std::lock_guard lock(mutex);
    asked.push_back(order.send_shard().recall());
    return true;
  });
  fetcher.AddExecutor("paris-0", "paris");
  const auto bring = [&](const std::string& name) { return fetcher.FetchShard(folder_ / "step", {.name = name, .site = "paris"}, never); };
  auto first = std::async(std::launch::async, bring, "first");
  while (asked_so_far() < 1) std::this_thread::yield();
  auto second = std::async(std::launch::async, bring, "second");
  while (asked_so_far() < 2) std::this_thread::yield();
  {
    const auto arrival = fetcher.Take("paris-0", asked[0], [] {});
    ASSERT_TRUE(arrival.ok()) << arrival.status();
    const auto until = std::chrono::steady_clock::now() + 3 * kSilence;
    while (std::chrono::steady_clock::now() < until) {
      (*arrival)->Moved();
      std::this_thread::yield();
    }
    const auto next = fetcher.Take("paris-0", asked[1], [] {});
    ASSERT_TRUE(next.ok()) << next.status();
    (*arrival)->Done(absl::OkStatus());
    (*next)->Done(absl::OkStatus());
  }
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

}  // namespace
}  // namespace fusionllm::services
