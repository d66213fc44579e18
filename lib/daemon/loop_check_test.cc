#include "lib/daemon/loop_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <thread>

namespace fusionllm::daemon {
namespace {

using ::testing::HasSubstr;

// Posted tasks that run when the test says so.
struct Tasks {
  std::deque<std::function<void()>> waiting;
  void operator()(std::function<void()> task) { waiting.push_back(std::move(task)); }
  void RunAll() {
    for (; !waiting.empty(); waiting.pop_front()) waiting.front()();
  }
};

TEST(LoopCheckTest, ALoopThatRunsTasksIsWell) {
  LoopCheck check("the loop", [](std::function<void()> task) { std::thread(std::move(task)).join(); });
  EXPECT_TRUE(check.Check().ok());
  EXPECT_TRUE(check.Check().ok());
}

TEST(LoopCheckTest, ALoopThatDoesNotIsNamedAndMayRecover) {
  Tasks tasks;
  LoopCheck check("the loop", std::ref(tasks), absl::Milliseconds(1));
  EXPECT_THAT(std::string(check.Check().message()), HasSubstr("the loop has not answered"));
  EXPECT_FALSE(check.Check().ok());
  EXPECT_EQ(tasks.waiting.size(), 1u) << "questions do not pile up in a loop that is stuck";
  tasks.RunAll();
  LoopCheck well(
      "the loop", [](const std::function<void()>& task) { task(); }, absl::Milliseconds(1));
  EXPECT_TRUE(well.Check().ok());
  EXPECT_FALSE(check.Check().ok()) << "the old answer is not an answer to a new question";
  EXPECT_EQ(tasks.waiting.size(), 1u);
  tasks.RunAll();
}

TEST(LoopCheckTest, ALateTaskMayOutliveTheCheck) {
  Tasks tasks;
  {
    LoopCheck check("the loop", std::ref(tasks), absl::Milliseconds(1));
    EXPECT_FALSE(check.Check().ok());
  }
  tasks.RunAll();
}

}  // namespace
}  // namespace fusionllm::daemon
