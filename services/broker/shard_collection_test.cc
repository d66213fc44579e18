// Parts of a checkpoint that are brought from several sites when a run ends; the sites are the tests'.
#include "services/broker/shard_collection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kSites = {"london", "oslo", "paris", "rome"};
constexpr absl::Duration kLong = absl::Hours(1);

// Two files in each site.
std::vector<checkpoint::FileEntry> Files() {
  std::vector<checkpoint::FileEntry> files;
  for (const char* kind : {"model", "optimizer"}) {
    for (const std::string& site : kSites) files.push_back({.name = absl::StrCat(kind, "-", site), .bytes = 9, .site = site});
  }
  return files;
}

class ShardCollectionTest : public ::testing::Test {
 protected:
  std::future<absl::Status> Collect(ShardFetcher& fetcher, absl::Duration silence = kLong) {
    return std::async(std::launch::async, [&fetcher, silence, this] { return CollectShards(fetcher, folder_ / "step", Files(), silence); });
  }

  const base::TempFolder folder_;
};

TEST_F(ShardCollectionTest, SitesThatAreAwayAreAwaitedAtTheSameTime) {
  ShardFetcher fetcher({.absence_timeout = std::chrono::hours(1)});
  std::mutex mutex;
  std::set<std::string> awaited;
  std::promise<void> all;
  fetcher.OnWaiting([&](const WaitingForSite& site) {
    const std::lock_guard lock(mutex);
    if (awaited.insert(site.site).second && awaited.size() == kSites.size()) all.set_value();
  });
  auto collected = Collect(fetcher);
  ASSERT_EQ(all.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready) << "while none has been given up";
  fetcher.CancelWaits();
  const absl::Status status = collected.get();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  for (const std::string& site : kSites) EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("site ", site, ": ")));
}

TEST_F(ShardCollectionTest, SilentSitesAreGivenUpTogetherAndOneThatSendsIsNot) {
  ShardFetcher fetcher({.silence_timeout = std::chrono::hours(1), .rounds = 1});
  // Paris sends what it is asked for; the others hear the order and say nothing.
  std::vector<std::thread> senders;
  std::mutex mutex;
  fetcher.SendBy([&](const std::string& executor, const v1::BrokerMessage& order) {
    if (executor != "paris-0") return true;
    const std::lock_guard lock(mutex);
    senders.emplace_back([&fetcher, id = order.send_shard().recall()] {
      const auto arrival = fetcher.Take("paris-0", id, [] {});
      ASSERT_TRUE(arrival.ok()) << arrival.status();
      (*arrival)->Done(absl::OkStatus());
    });
    return true;
  });
  for (const std::string& site : kSites) fetcher.AddExecutor(absl::StrCat(site, "-0"), site);
  const absl::Status status = Collect(fetcher, absl::Milliseconds(300)).get();
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(senders.size(), 2) << "files of paris";
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("site london: nothing has come for 300ms"), HasSubstr("site rome: "), Not(HasSubstr("paris"))));
}

TEST_F(ShardCollectionTest, DoesNotWaitForSitesOfADeletedJob) {
  ShardFetcher fetcher({.absence_timeout = std::chrono::hours(1)});
  int notices = 0;
  fetcher.OnWaiting([&](const WaitingForSite&) { ++notices; });
  for (const std::string& site : kSites) {
    fetcher.AddExecutor(absl::StrCat(site, "-0"), site);
    fetcher.MarkLeaving(absl::StrCat(site, "-0"));
    fetcher.RemoveExecutor(absl::StrCat(site, "-0"));
  }
  fetcher.SetShutdownTimeout(std::chrono::hours(1));
  auto collected = Collect(fetcher);
  ASSERT_EQ(collected.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const absl::Status status = collected.get();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("site london: "), HasSubstr("site rome: "), HasSubstr("asked to end")));
  EXPECT_EQ(notices, 0);
}

}  // namespace
}  // namespace fusionllm::services
