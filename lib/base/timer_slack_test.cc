#include "lib/base/timer_slack.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <thread>

namespace fusionllm::base {
namespace {

TEST(TimerSlackTest, IsMinimalForTheCallingThreadAlone) {
  int before = prctl(PR_GET_TIMERSLACK);
  int there = 0;
  std::thread([&] {
    SetMinimalTimerSlack();
    there = prctl(PR_GET_TIMERSLACK);
  }).join();
  EXPECT_EQ(there, 1);
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK), before);
}

}  // namespace
}  // namespace fusionllm::base
