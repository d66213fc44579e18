#include "lib/kube/queue/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WorkQueueTest : public ::testing::Test {
 protected:
  static WorkKey Key(const std::string& name, const std::string& cluster = "") { return {cluster, "ns", name}; }
  // The names of all that can be had now, each done at once.
  std::vector<std::string> TakeAll() {
    std::vector<std::string> names;
    while (queue_.Depth() > 0) {
      names.push_back(queue_.Get()->name);
      queue_.Done({"", "ns", names.back()});
      for (const char* cluster : {"a", "b"}) queue_.Done({cluster, "ns", names.back()});
    }
    return names;
  }
  // The next key, for which the clock moves on just as far as need be.
  std::string Await() {
    clock_.jumps_ = true;
    const std::string name = queue_.Get()->name;
    clock_.jumps_ = false;
    queue_.Done(Key(name));
    return name;
  }

  // Moved by the test, but while one waits for a key whose time will come: by hand that would be a race with the one who waits.
  class Clock : public testing::SelfAdvancingClock {
   public:
    void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, absl::Duration deadline) override {
      jumps_ ? SelfAdvancingClock::WaitUntil(lock, changed, deadline) : FakeClock::WaitUntil(lock, changed, deadline);
    }
    std::atomic<bool> jumps_ = false;
  };

  Clock clock_;
  metrics::Registry registry_{"p", "1"};
  QueueMetrics metrics_{registry_};
  WorkQueue queue_{"jobs", clock_, &metrics_};
};

// Bytes that malloc() has given out.
size_t InUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST_F(WorkQueueTest, KeysComeOnceAndInOrder) {
  for (const char* name : {"b", "a", "b", "c", "a"}) queue_.Add(Key(name));
  EXPECT_THAT(TakeAll(), ElementsAre("b", "a", "c"));
}

TEST_F(WorkQueueTest, AKeyAddedWhileItIsWorkedOnComesOnceMoreAndOnlyAfterwards) {
  queue_.Add(Key("a"));
  const WorkKey key = *queue_.Get();
  queue_.Add(key);
  queue_.Add(key);
  EXPECT_EQ(queue_.Depth(), 0u);  // no other can take it
  queue_.Done(key);
  EXPECT_THAT(TakeAll(), ElementsAre("a"));
}

TEST_F(WorkQueueTest, NoKeyIsWithTwoWorkersAtATime) {
  constexpr int kKeys = 5;
  std::atomic<int> holders[kKeys] = {};
  std::atomic<bool> shared = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (const auto key = queue_.Get()) {
        std::atomic<int>& mine = holders[std::stoi(key->name)];
        if (++mine != 1) shared = true;
        std::this_thread::yield();
        --mine;
        queue_.Done(*key);
      }
    });
  }
  for (int i = 0; i < 2000; ++i) queue_.Add(Key(std::to_string(i % kKeys)));
  EXPECT_TRUE(queue_.ShutDownWithDrain(absl::InfiniteDuration()));
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(shared);
}

TEST_F(WorkQueueTest, ClustersTakeTurns) {
  for (const char* name : {"1", "2", "3"}) queue_.Add(Key(name, "a"));
  queue_.Add(Key("4", "b"));
  EXPECT_THAT(TakeAll(), ElementsAre("1", "4", "2", "3"));
}

TEST_F(WorkQueueTest, HighPriorityGoesFirstButLowIsNotStarved) {
  for (int i = 0; i < 3; ++i) queue_.Add(Key("low" + std::to_string(i)), Priority::kLow);
  for (int i = 0; i < 9; ++i) queue_.Add(Key("high" + std::to_string(i)));
  EXPECT_THAT(TakeAll(),
              ElementsAre("high0", "high1", "high2", "high3", "high4", "high5", "high6", "low0", "high7", "high8", "low1", "low2"));
}

TEST_F(WorkQueueTest, AWaitingKeyTakesTheHigherPriority) {
  for (const char* name : {"a", "b", "c"}) queue_.Add(Key(name), Priority::kLow);
  queue_.Add(Key("c"));
  queue_.Add(Key("c"), Priority::kLow);
  EXPECT_EQ(queue_.Depth(), 3u);
  EXPECT_THAT(TakeAll(), ElementsAre("c", "a", "b"));
}

TEST_F(WorkQueueTest, APriorityRaisedDuringWorkHoldsAfterIt) {
  queue_.Add(Key("a"), Priority::kLow);
  const WorkKey key = *queue_.Get();
  queue_.Add(key, Priority::kLow);
  queue_.Add(Key("b"), Priority::kLow);
  queue_.Add(key);
  queue_.Done(key);
  EXPECT_THAT(TakeAll(), ElementsAre("a", "b"));
}

TEST_F(WorkQueueTest, OfSeveralTimesTheEarliestCounts) {
  queue_.AddAfter(Key("a"), absl::Seconds(5));
  queue_.AddAfter(Key("a"), absl::Seconds(1));
  queue_.AddAfter(Key("a"), absl::Seconds(9));
  const absl::Duration start = clock_.Monotonic();
  EXPECT_EQ(Await(), "a");
  EXPECT_GE(clock_.Monotonic() - start, absl::Seconds(1));
  EXPECT_LT(clock_.Monotonic() - start, absl::Seconds(5));
  clock_.Advance(absl::Seconds(20));
  queue_.Add(Key("b"));
  EXPECT_THAT(TakeAll(), ElementsAre("b"));  // the later times are forgotten
}

TEST_F(WorkQueueTest, AKeyWhoseTimeComesDuringItsWorkWaitsForTheEndOfIt) {
  queue_.Add(Key("a"));
  const WorkKey key = *queue_.Get();
  queue_.AddAfter(key, absl::Seconds(1));
  clock_.Advance(absl::Seconds(2));
  queue_.Add(Key("b"));
  EXPECT_EQ(*queue_.Get(), Key("b"));
  queue_.Done(Key("b"));
  EXPECT_EQ(queue_.Depth(), 0u);
  queue_.Done(key);
  EXPECT_THAT(TakeAll(), ElementsAre("a"));
}

TEST_F(WorkQueueTest, FailuresWaitEverLongerUntilASuccess) {
  for (int i = 0; i < 6; ++i) {
    const absl::Duration start = clock_.Monotonic();
    queue_.AddRateLimited(Key("a"));
    EXPECT_EQ(Await(), "a");
    EXPECT_GE(clock_.Monotonic() - start, absl::Milliseconds(5 << i));
  }
  EXPECT_EQ(queue_.Failures(Key("a")), 6);
  queue_.Forget(Key("a"));
  EXPECT_EQ(queue_.Failures(Key("a")), 0);
}

TEST_F(WorkQueueTest, OneClusterDoesNotUseUpTheSharesOfOthers) {
  for (int i = 0; i < 1000; ++i) queue_.AddRateLimited(Key(std::to_string(i), "a"));
  queue_.AddRateLimited(Key("x", "b"));
  queue_.AddRateLimited(Key("y", "a"));
  clock_.Advance(absl::Milliseconds(6));  // the own delay of each key; 100 of "a" at once, then ten a second
  std::vector<std::string> names;
  for (int i = 0; i < 101; ++i) {
    const WorkKey key = *queue_.Get();
    names.push_back(key.name);
    queue_.Done(key);
  }
  EXPECT_EQ(queue_.Depth(), 0u);
  EXPECT_THAT(names, ::testing::Contains("x"));
}

TEST_F(WorkQueueTest, ShutDownTakesNoMoreAndHandsOutWhatIsThere) {
  queue_.Add(Key("a"));
  queue_.AddAfter(Key("later"), absl::Seconds(1));
  queue_.ShutDown();
  queue_.Add(Key("b"));
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(*queue_.Get(), Key("a"));
  EXPECT_EQ(queue_.Get(), std::nullopt);
}

TEST_F(WorkQueueTest, ShutDownWakesThoseWhoWait) {
  std::thread worker([&] { EXPECT_EQ(queue_.Get(), std::nullopt); });
  queue_.ShutDown();
  worker.join();
}

// Insurance against a wake-up that was lost.
TEST(WaitingWorkerTest, LooksAgainEveryTenSeconds) {
  class NotingClock : public testing::SelfAdvancingClock {
   public:
    void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, absl::Duration deadline) override {
      waits_.push_back(deadline - Monotonic());
      SelfAdvancingClock::WaitUntil(lock, changed, deadline);
    }
    std::vector<absl::Duration> waits_;
  } clock;
  WorkQueue queue("jobs", clock, nullptr);
  queue.AddAfter({"", "ns", "later"}, absl::Seconds(25));
  EXPECT_EQ(queue.Get()->name, "later");
  EXPECT_THAT(clock.waits_, ElementsAre(absl::Seconds(10), absl::Seconds(10), absl::Seconds(5)));
}

TEST_F(WorkQueueTest, ADrainWaitsForThoseAtWork) {
  queue_.Add(Key("a"));
  const WorkKey key = *queue_.Get();
  EXPECT_FALSE(queue_.ShutDownWithDrain(absl::ZeroDuration()));
  std::thread worker([&] { queue_.Done(key); });
  EXPECT_TRUE(queue_.ShutDownWithDrain(absl::InfiniteDuration()));
  worker.join();
}

TEST_F(WorkQueueTest, TellsHowLongItsKeysWaitAndWhoIsStuck) {
  queue_.Add(Key("a"));
  queue_.Add(Key("b"));
  queue_.AddAfter(Key("c"), absl::Hours(1));
  EXPECT_THAT(registry_.Text(), HasSubstr("workqueue_depth{controller=\"jobs\",name=\"jobs\"} 2\n"));
  clock_.Advance(absl::Seconds(3));
  const WorkKey a = *queue_.Get();
  clock_.Advance(absl::Seconds(10));
  const WorkKey b = *queue_.Get();
  clock_.Advance(absl::Seconds(20));
  const std::string text = registry_.Text();
  for (const char* line :
       {"workqueue_depth{controller=\"jobs\",name=\"jobs\"} 0\n", "workqueue_adds_total{controller=\"jobs\",name=\"jobs\"} 2\n",
        "workqueue_retries_total{controller=\"jobs\",name=\"jobs\"} 1\n",
        "workqueue_unfinished_work_seconds{controller=\"jobs\",name=\"jobs\"} 50\n",
        "workqueue_longest_running_processor_seconds{controller=\"jobs\",name=\"jobs\"} 30\n",
        "workqueue_queue_duration_seconds_sum{controller=\"jobs\",name=\"jobs\"} 16\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  queue_.Done(a);
  queue_.Done(b);
  EXPECT_THAT(registry_.Text(), HasSubstr("workqueue_work_duration_seconds_sum{controller=\"jobs\",name=\"jobs\"} 50\n"));
}

TEST_F(WorkQueueTest, AQueueThatIsGoneTellsNothing) {
  { WorkQueue queue("short-lived", clock_, &metrics_); }
  EXPECT_THAT(registry_.Text(), ::testing::Not(HasSubstr("workqueue_depth{controller=\"short-lived\"")));
}

// The operator has a queue for each cluster, and thousands of jobs that come at once wait in all of them.
TEST_F(WorkQueueTest, ManyKeysThatWaitTakeLittleMemoryAndLeaveNone) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' malloc() does not say what it has given out";
#endif
  constexpr size_t kKeys = 1000, kMaxBytesPerKey = 300;
  const size_t before = InUse();
  for (size_t i = 0; i < kKeys; ++i) queue_.Add(Key("job-" + std::to_string(i)), Priority::kLow);
  EXPECT_LT((InUse() - before) / kKeys, kMaxBytesPerKey);
  for (size_t i = 0; i < kKeys; ++i) queue_.Add(Key("job-" + std::to_string(i)), Priority::kHigh);
  EXPECT_LT((InUse() - before) / kKeys, kMaxBytesPerKey) << "what was raised is still where it was";
  EXPECT_EQ(TakeAll().size(), kKeys);
  EXPECT_LT(InUse() - before, size_t{64} << 10);
}

}  // namespace
}  // namespace fusionllm::kube
