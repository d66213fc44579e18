#include "operator/placement/hint_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lib/kube/testing/fake_clock.h"
#include "lib/plan/plan.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::op::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string PlanInParis() {
  return wire::PrintPlan(
      plan::Plan{.strategy = "op-fence", .graph_hash = "0123456789abcdef", .stages = {{.index = 0, .devices = {"paris-0"}, .ops = {"a"}}}});
}

class HintCacheTest : public ::testing::Test {
 protected:
  // The scheduler answers only while the door is open.
  absl::StatusOr<std::string> Answer(const PlacementQuery& query, absl::Duration timeout, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    asked_.push_back(query.job_document);
    timeout_ = timeout;
    changed_.notify_all();
    if (!changed_.wait(lock, stop, [this] { return open_; })) return absl::CancelledError("stopped");
    return answer_;
  }
  void SetOpen(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  void AwaitAsked(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_.size() >= count; });
  }
  void AwaitAnswered(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answered_.size() >= count; });
  }
  static manifests::JobIdentity Job(const std::string& name) { return {.name = name, .ns = "default", .uid = name + "-uid"}; }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool open_ = true;
  absl::StatusOr<std::string> answer_ = PlanInParis();
  std::vector<std::string> asked_, answered_;
  absl::Duration timeout_;
  kube::testing::FakeClock clock_;
  HintCache hints_{
      [this](const PlacementQuery& query, absl::Duration timeout, const std::stop_token& stop) { return Answer(query, timeout, stop); },
      [this](const manifests::JobIdentity& job) {
        const std::lock_guard lock(mutex_);
        answered_.push_back(job.name);
        changed_.notify_all();
      },
      clock_};
};

TEST_F(HintCacheTest, AQuestionIsAskedOnceAndItsAnswerKept) {
  EXPECT_FALSE(hints_.HintFor(Job("train"), {"job", "profiles"}).has_value()) << "nobody waits for the scheduler";
  AwaitAnswered(1);
  for (int look = 0; look < 3; ++look) {
    const auto hint = hints_.HintFor(Job("train"), {"job", "profiles"});
    ASSERT_TRUE(hint.has_value());
    EXPECT_THAT(hint->ranking, ElementsAre(RankedCluster{"paris", 1}));
  }
  EXPECT_THAT(asked_, ElementsAre("job"));
  EXPECT_EQ(timeout_, HintCache::kCallTimeout);
}

TEST_F(HintCacheTest, ChangedQueryIsAskedAgain) {
  (void)hints_.HintFor(Job("train"), {"job", "profiles"});
  AwaitAnswered(1);
  EXPECT_FALSE(hints_.HintFor(Job("train"), {"job", "other profiles"}).has_value());
  AwaitAnswered(2);
  EXPECT_TRUE(hints_.HintFor(Job("train"), {"job", "other profiles"}).has_value());
}

TEST_F(HintCacheTest, AnErrorIsAnAnswerToo) {
  answer_ = absl::UnavailableError("connection refused");
  (void)hints_.HintFor(Job("train"), {"job", "profiles"});
  AwaitAnswered(1);
  const auto hint = hints_.HintFor(Job("train"), {"job", "profiles"});
  ASSERT_TRUE(hint.has_value());
  EXPECT_EQ(hint->reason, kSchedulerUnavailable);
  EXPECT_THAT(hint->message, HasSubstr("connection refused"));
}

TEST_F(HintCacheTest, NoHintAfterTimeout) {
  SetOpen(false);
  (void)hints_.HintFor(Job("first"), {"a", "profiles"});
  AwaitAsked(1);
  (void)hints_.HintFor(Job("second"), {"b", "profiles"});
  clock_.Advance(HintCache::kTimeout);
  // Of which it asks something else each time.
  EXPECT_EQ(hints_.HintFor(Job("second"), {"c", "profiles"})->reason, kSchedulerUnavailable);
  SetOpen(true);
  AwaitAnswered(2);
  EXPECT_THAT(asked_, ElementsAre("a")) << "the time for the second is up";
  EXPECT_THAT(hints_.HintFor(Job("second"), {"c", "profiles"})->message, HasSubstr("busy with other jobs"));
}

TEST_F(HintCacheTest, OfAQuestionThatHasChangedWhileItWaitedOnlyTheLastIsAsked) {
  SetOpen(false);
  (void)hints_.HintFor(Job("first"), {"a", "profiles"});
  AwaitAsked(1);
  (void)hints_.HintFor(Job("second"), {"b", "profiles"});
  (void)hints_.HintFor(Job("second"), {"c", "profiles"});
  SetOpen(true);
  AwaitAnswered(2);
  EXPECT_THAT(asked_, ElementsAre("a", "c"));
}

}  // namespace
}  // namespace fusionllm::op::placement
