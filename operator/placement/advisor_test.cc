#include "operator/placement/advisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lib/kube/testing/fake_clock.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::op {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string PlanInParis() {
  return wire::PrintPlan(wire::PlanDocument{
      .strategy = "op-fence", .graph_hash = "0123456789abcdef", .stages = {{.index = 0, .devices = {"paris-0"}, .ops = {"a"}}}});
}

class AdvisorTest : public ::testing::Test {
 protected:
  // The scheduler answers only while the door is open.
  absl::StatusOr<std::string> Answer(const Question& question, absl::Duration patience, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    asked_.push_back(question.job_document);
    patience_ = patience;
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
  static JobIdentity Job(const std::string& name) { return {.name = name, .ns = "default", .uid = name + "-uid"}; }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool open_ = true;
  absl::StatusOr<std::string> answer_ = PlanInParis();
  std::vector<std::string> asked_, answered_;
  absl::Duration patience_;
  kube::testing::FakeClock clock_;
  Advisor advisor_{
      [this](const Question& question, absl::Duration patience, const std::stop_token& stop) { return Answer(question, patience, stop); },
      [this](const JobIdentity& job) {
        const std::lock_guard lock(mutex_);
        answered_.push_back(job.name);
        changed_.notify_all();
      },
      clock_};
};

TEST_F(AdvisorTest, AQuestionIsAskedOnceAndItsAnswerKept) {
  EXPECT_FALSE(advisor_.Advise(Job("train"), {"job", "profiles"}).has_value()) << "nobody waits for the scheduler";
  AwaitAnswered(1);
  for (int look = 0; look < 3; ++look) {
    const auto advice = advisor_.Advise(Job("train"), {"job", "profiles"});
    ASSERT_TRUE(advice.has_value());
    EXPECT_THAT(advice->ranking, ElementsAre(RankedCluster{"paris", 1}));
  }
  EXPECT_THAT(asked_, ElementsAre("job"));
  EXPECT_EQ(patience_, Advisor::kCallPatience);
}

TEST_F(AdvisorTest, AnotherQuestionOfTheJobIsAskedAnew) {
  (void)advisor_.Advise(Job("train"), {"job", "profiles"});
  AwaitAnswered(1);
  EXPECT_FALSE(advisor_.Advise(Job("train"), {"job", "other profiles"}).has_value());
  AwaitAnswered(2);
  EXPECT_TRUE(advisor_.Advise(Job("train"), {"job", "other profiles"}).has_value());
}

TEST_F(AdvisorTest, AnErrorIsAnAnswerToo) {
  answer_ = absl::UnavailableError("connection refused");
  (void)advisor_.Advise(Job("train"), {"job", "profiles"});
  AwaitAnswered(1);
  const auto advice = advisor_.Advise(Job("train"), {"job", "profiles"});
  ASSERT_TRUE(advice.has_value());
  EXPECT_EQ(advice->reason, kNoAnswer);
  EXPECT_THAT(advice->message, HasSubstr("connection refused"));
}

TEST_F(AdvisorTest, WhoeverWaitsTooLongGoesWithout) {
  SetOpen(false);
  (void)advisor_.Advise(Job("first"), {"a", "profiles"});
  AwaitAsked(1);
  (void)advisor_.Advise(Job("second"), {"b", "profiles"});
  clock_.Advance(Advisor::kPatience);
  // Of which it asks something else each time.
  EXPECT_EQ(advisor_.Advise(Job("second"), {"c", "profiles"})->reason, kNoAnswer);
  SetOpen(true);
  AwaitAnswered(2);
  EXPECT_THAT(asked_, ElementsAre("a")) << "the time for the second is up";
  EXPECT_THAT(advisor_.Advise(Job("second"), {"c", "profiles"})->message, HasSubstr("busy with other jobs"));
}

TEST_F(AdvisorTest, OfAQuestionThatHasChangedWhileItWaitedOnlyTheLastIsAsked) {
  SetOpen(false);
  (void)advisor_.Advise(Job("first"), {"a", "profiles"});
  AwaitAsked(1);
  (void)advisor_.Advise(Job("second"), {"b", "profiles"});
  (void)advisor_.Advise(Job("second"), {"c", "profiles"});
  SetOpen(true);
  AwaitAnswered(2);
  EXPECT_THAT(asked_, ElementsAre("a", "c"));
}

}  // namespace
}  // namespace fusionllm::op
