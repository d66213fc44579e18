// Brokers that do not answer cost others little.
#include "operator/progress/progress_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::op {
namespace {

using ::testing::Each;
using ::testing::Ne;

class ProgressWatchTest : public ::testing::Test {
 protected:
  ~ProgressWatchTest() override { Allow(1 << 20); }

  // "gone" keeps who asks waiting while it is away, and does not answer; "closed" says no at once.
  absl::StatusOr<std::string> Fetch(const std::string& address) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return allowed_ > 0; });
    --allowed_;
    asked_.push_back(address);
    changed_.notify_all();
    if (address == "closed") return absl::UnavailableError("connection refused");
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

  kube::testing::JumpingClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> asked_;
  int allowed_ = 0;
  bool away_ = true;
};

TEST_F(ProgressWatchTest, WhoKeepsItWaitingIsAskedLessAndLess) {
  ProgressWatch watch(
      clock_, [this](const std::string& address) { return Fetch(address); }, [](const kube::WorkKey&) {});
  watch.Follow({"", "default", "a"}, "a", "closed");
  watch.Follow({"", "default", "b"}, "b", "gone");
  watch.Follow({"", "default", "c"}, "c", "here");
  const std::vector<std::string> first = Next(30), later = (Next(200), Next(240));
  EXPECT_GE(Of(first, "gone"), 2);
  // Every five seconds the others, that one once a minute.
  EXPECT_THAT(Of(later, "gone"), testing::AllOf(testing::Ge(8), testing::Le(12)));
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

}  // namespace
}  // namespace fusionllm::op
