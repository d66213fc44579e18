#include "lib/kube/queue/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <map>
#include <mutex>
#include <stdexcept>

#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::kube {
namespace {

using ::testing::HasSubstr;

class ControllerTest : public ::testing::Test {
 protected:
  WorkKey Key(const std::string& name) { return {"", "ns", name}; }

  testing::FakeClock clock_;
  metrics::Registry registry_{"p", "1"};
  QueueMetrics queue_metrics_{registry_};
  ControllerMetrics metrics_{registry_};
  WorkQueue queue_{"jobs", clock_, &queue_metrics_};
};

TEST_F(ControllerTest, ASlowKeyDoesNotHoldUpOthers) {
  std::latch other_ran(1);
  Controller controller(queue_, clock_, &metrics_, [&](const WorkKey& key, std::stop_token) {
    if (key.name == "slow") other_ran.wait();  // for ever, if there were one worker
    if (key.name == "quick") other_ran.count_down();
    return ReconcileResult::Done();
  });
  queue_.Add(Key("slow"));
  queue_.Add(Key("quick"));
  EXPECT_TRUE(controller.Stop(absl::InfiniteDuration()));
}

TEST_F(ControllerTest, FailuresAreTriedAgainAndSuccessEndsTheirCount) {
  std::latch done(3);
  int calls = 0;
  Controller controller(queue_, clock_, &metrics_,
                        [&](const WorkKey&, std::stop_token) {
                          done.count_down();
                          return ++calls < 3 ? ReconcileResult::Failed(absl::UnavailableError("later")) : ReconcileResult::Done();
                        },
                        {.workers = 1});
  queue_.Add(Key("a"));
  while (!done.try_wait()) clock_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(controller.Stop(absl::InfiniteDuration()));
  EXPECT_EQ(queue_.Failures(Key("a")), 0);
  EXPECT_THAT(registry_.Text(), HasSubstr("controller_runtime_reconcile_total{controller=\"jobs\",result=\"error\"} 2\n"));
  EXPECT_THAT(registry_.Text(), HasSubstr("controller_runtime_reconcile_total{controller=\"jobs\",result=\"success\"} 1\n"));
  EXPECT_THAT(registry_.Text(), HasSubstr("controller_runtime_reconcile_errors_total{controller=\"jobs\"} 2\n"));
  EXPECT_THAT(registry_.Text(), HasSubstr("controller_runtime_active_workers{controller=\"jobs\"} 0\n"));
}

TEST_F(ControllerTest, FailuresAreCountedFromZero) {
  Controller controller(queue_, clock_, &metrics_, [](const WorkKey&, std::stop_token) { return ReconcileResult::Done(); });
  const std::string text = registry_.Text();
  for (const char* result : {"success", "error", "requeue", "requeue_after"}) {
    EXPECT_THAT(text, HasSubstr("controller_runtime_reconcile_total{controller=\"jobs\",result=\"" + std::string(result) + "\"} 0\n"));
  }
  for (const char* family : {"reconcile_errors", "terminal_reconcile_errors", "reconcile_panics", "reconcile_timeouts"}) {
    EXPECT_THAT(text, HasSubstr("controller_runtime_" + std::string(family) + "_total{controller=\"jobs\"} 0\n"));
  }
}

TEST_F(ControllerTest, AnExceptionCostsItsKeyATryAndNothingElse) {
  std::vector<std::string> reports;
  std::mutex mutex;
  Controller controller(queue_, clock_, &metrics_,
                        [&](const WorkKey& key, std::stop_token) -> ReconcileResult {
                          if (key.name == "bad") throw std::runtime_error("no such node");
                          if (key.name == "odd") throw 7;
                          return ReconcileResult::Done();
                        },
                        {.workers = 2, .report = [&](const WorkKey& key, const absl::Status& status) {
                           const std::lock_guard lock(mutex);
                           reports.push_back(key.name + ": " + std::string(status.message()));
                         }});
  for (const char* name : {"bad", "odd", "good"}) queue_.Add(Key(name));
  EXPECT_TRUE(controller.Stop(absl::InfiniteDuration()));
  EXPECT_THAT(reports, ::testing::UnorderedElementsAre("bad: the reconciler threw: no such node",
                                                       "odd: the reconciler threw: an exception of unknown type"));
  EXPECT_THAT(registry_.Text(), HasSubstr("controller_runtime_reconcile_panics_total{controller=\"jobs\"} 2\n"));
  EXPECT_THAT(registry_.Text(), HasSubstr("result=\"success\"} 1\n"));
}

TEST_F(ControllerTest, LinesOfAReconcileSayWhatItIsOfAndThatTheyBelongTogether) {
  std::vector<base::LogFields> worked, reported;  // one worker
  const auto describe = [](const WorkKey& key) { return base::LogFields{{"job", key.name}}; };
  Controller controller(queue_, clock_, &metrics_,
                        [&](const WorkKey&, std::stop_token) {
                          worked.push_back(base::LogContext::Current());
                          return ReconcileResult::TerminalError(absl::UnavailableError("refused"));
                        },
                        {.workers = 1,
                         .report = [&](const WorkKey&, const absl::Status&) { reported.push_back(base::LogContext::Current()); },
                         .describe = describe});
  for (const char* name : {"a", "b"}) queue_.Add(Key(name));
  EXPECT_TRUE(controller.Stop(absl::InfiniteDuration()));
  ASSERT_EQ(worked.size(), 2);
  EXPECT_EQ(worked, reported);
  for (int i : {0, 1}) {
    ASSERT_EQ(worked[i].size(), 2);
    EXPECT_EQ(worked[i][0].second, i == 0 ? "a" : "b");
    EXPECT_EQ(worked[i][1].first, "reconcileID");
  }
  EXPECT_NE(worked[0][1].second, worked[1][1].second);
}

TEST_F(ControllerTest, WhatIsNotDoneInTimeIsCountedApart) {
  Controller controller(queue_, clock_, &metrics_, [](const WorkKey& key, std::stop_token) {
    return ReconcileResult::Failed(key.name == "late" ? absl::DeadlineExceededError("no answer") : absl::UnavailableError("refused"));
  });
  queue_.Add(Key("late"));
  queue_.Add(Key("other"));
  EXPECT_TRUE(controller.Stop(absl::InfiniteDuration()));
  EXPECT_THAT(registry_.Text(), HasSubstr("controller_runtime_reconcile_errors_total{controller=\"jobs\"} 2\n"));
  EXPECT_THAT(registry_.Text(), HasSubstr("controller_runtime_reconcile_timeouts_total{controller=\"jobs\"} 1\n"));
}

TEST_F(ControllerTest, WhatIsHopelessIsNotTriedAgain) {
  Controller controller(queue_, clock_, &metrics_, [&](const WorkKey&, std::stop_token) {
    return ReconcileResult::TerminalError(absl::InvalidArgumentError("spec.model is missing"));
  });
  queue_.Add(Key("a"));
  while (registry_.Text().find("terminal_reconcile_errors_total{controller=\"jobs\"} 1") == std::string::npos) std::this_thread::yield();
  clock_.Advance(absl::Hours(1));
  EXPECT_TRUE(controller.Stop(absl::InfiniteDuration()));
  EXPECT_THAT(registry_.Text(), HasSubstr("result=\"error\"} 1\n"));
}

TEST_F(ControllerTest, WhatAsksForItIsLookedAtAgain) {
  std::latch twice(2);
  Controller controller(queue_, clock_, &metrics_, [&](const WorkKey&, std::stop_token) {
    twice.count_down();
    return ReconcileResult::RequeueAfter(absl::Minutes(5));
  });
  queue_.Add(Key("a"));
  while (!twice.try_wait()) clock_.Advance(absl::Seconds(30));
  EXPECT_TRUE(controller.Stop(absl::InfiniteDuration()));
  EXPECT_THAT(registry_.Text(), HasSubstr("result=\"requeue_after\"} 2\n"));
}

TEST_F(ControllerTest, StopAsksThoseWhoDoNotComeToAnEnd) {
  std::latch started(1);
  Controller controller(queue_, clock_, &metrics_, [&](const WorkKey&, std::stop_token stop) {
    started.count_down();
    std::latch asked(1);
    const std::stop_callback on_stop(stop, [&] { asked.count_down(); });
    asked.wait();
    return ReconcileResult::Done();
  });
  queue_.Add(Key("a"));
  started.wait();
  EXPECT_FALSE(controller.Stop(absl::ZeroDuration()));
}

}  // namespace
}  // namespace fusionllm::kube
