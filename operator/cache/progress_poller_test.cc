// Brokers that do not answer cost others little.
#include "operator/cache/progress_poller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::op::cache {
namespace {

using ::testing::Each;
using ::testing::Ne;

class ProgressPollerTest : public ::testing::Test {
 protected:
  ~ProgressPollerTest() override { Allow(1 << 20); }

  // "gone" keeps who asks waiting while it is away, and does not answer; "closed" says no at once.
  absl::StatusOr<std::string> Fetch(const std::string& address) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return allowed_ > 0; });
    --allowed_;
    asked_.push_back(address);
    changed_.notify_all();
    if (address == "closed") return absl::UnavailableError("connection refused");
    if (address == "slow") clock_.Advance(absl::Milliseconds(900));
    if (address != "gone" || !away_) return R"({"step":1})";
    clock_.Advance(absl::Seconds(2));
    return absl::DeadlineExceededError("no answer");
  }
  void Allow(int questions) {
    const std::lock_guard lock(mutex_);
    allowed_ += questions;
    asked_.clear();
    changed_.notify_all();
  }
  // The next so many questions.
  std::vector<std::string> Next(int questions) {
    Allow(questions);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ssize(asked_) == questions; });
    return asked_;
  }
  static int64_t Of(const std::vector<std::string>& asked, const std::string& address) {
    return std::count(asked.begin(), asked.end(), address);
  }

  kube::testing::SelfAdvancingClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> asked_;
  int allowed_ = 0;
  bool away_ = true;
};

TEST_F(ProgressPollerTest, WhoKeepsItWaitingIsAskedLessAndLess) {
  ProgressPoller watch(
      clock_, [this](const std::string& address) { return Fetch(address); }, [](const kube::WorkKey&) {}, {}, {}, /*threads=*/1);
  watch.Follow({"", "default", "a"}, "a", "closed");
  watch.Follow({"", "default", "b"}, "b", "gone");
  watch.Follow({"", "default", "c"}, "c", "here");
  const std::vector<std::string> first = Next(30), later = (Next(200), Next(240));
  EXPECT_GE(Of(first, "gone"), 2);
  // Every five seconds the others, that one once a minute.
  EXPECT_THAT(Of(later, "gone"), ::testing::AllOf(::testing::Ge(8), ::testing::Le(12)));
  EXPECT_GE(Of(later, "here"), 110);
  EXPECT_GE(Of(later, "closed"), 110) << "a refusal costs nothing, and may be of one that starts";
  {
    const std::lock_guard lock(mutex_);
    away_ = false;
  }
  (void)Next(60);
  EXPECT_EQ(Of(Next(30), "gone"), 10) << "it answers: as often as the others";
  watch.Forget("b");
  (void)Next(3);  // a round that had begun
  EXPECT_THAT(Next(20), Each(Ne("gone")));
  Allow(1 << 20);  // the watch ends first
}

TEST_F(ProgressPollerTest, WhoAnswersSlowlyIsAskedLess) {
  ProgressPoller watch(
      clock_, [this](const std::string& address) { return Fetch(address); }, [](const kube::WorkKey&) {}, {}, {}, /*threads=*/1);
  watch.Follow({"", "default", "a"}, "a", "slow");
  watch.Follow({"", "default", "b"}, "b", "here");
  (void)Next(20);
  const std::vector<std::string> asked = Next(100);
  // Each 18 s, twenty times as long as its page takes, and a bit; the other each five.
  EXPECT_THAT(Of(asked, "slow"), ::testing::AllOf(::testing::Ge(15), ::testing::Le(25)));
  Allow(1 << 20);
}

// Pages that do not come while a test holds them.
class HeldPages {
 public:
  absl::StatusOr<std::string> Fetch(const std::string& address) {
    std::unique_lock lock(mutex_);
    ++asked_[address];
    changed_.notify_all();
    if (address.starts_with("held")) {
      ++held_;
      peak_ = std::max(peak_, held_);
      changed_.wait(lock, [this] { return released_; });
      --held_;
    }
    return R"({"step":1})";
  }
  void AwaitAsked(const std::string& address, int times) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_[address] >= times; });
  }
  void AwaitHeld(int pages) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return held_ == pages; });
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  int peak() {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> asked_;
  int held_ = 0, peak_ = 0;
  bool released_ = false;
};

TEST_F(ProgressPollerTest, ATenantsSlowPagesDoNotHoldUpOthers) {
  HeldPages pages;
  ProgressPoller watch(
      clock_, [&](const std::string& address) { return pages.Fetch(address); }, [](const kube::WorkKey&) {});
  for (int i = 0; i < 20; ++i) {
    const std::string name = absl::StrCat("held-", i);
    watch.Follow({"", "tenant", name}, name, name);
  }
  pages.AwaitHeld(ProgressPoller::kThreads / 2);
  watch.Follow({"", "default", "a"}, "a", "here");
  pages.AwaitAsked("here", 100);  // again and again while none has let go of the others
  EXPECT_EQ(pages.peak(), ProgressPoller::kThreads / 2);
  pages.Release();
  pages.AwaitAsked("held-19", 1);
}

}  // namespace
}  // namespace fusionllm::op::cache
