// Whose words count as the newest of a job's run.
#include "operator/reconcile/newest_progress.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op {
namespace {

class NewestProgressTest : public ::testing::Test {
 protected:
  NewestProgressTest() { seen_.clusters.resize(2); }
  // Trains, and its page says this step.
  PodView& Running(int64_t attempt, int64_t step) {
    PodView& pod = Pod(kBrokerRole, attempt);
    pod.phase = PodPhase::kRunning;
    pod.address = absl::StrCat("10.0.0.", attempt);
    pages_[pod.address] = step;
    return pod;
  }
  PodView& Ended(int64_t attempt, int64_t step) {
    PodView& pod = Pod(kBrokerRole, attempt);
    pod.phase = PodPhase::kSucceeded;
    pod.report = Progress{.step = step};
    return pod;
  }
  PodView& Pod(const std::string& role, int64_t attempt) {
    return seen_.clusters[0].pods.emplace_back(PodView{.role = role, .attempt = attempt});
  }
  void Left(int64_t attempt, int64_t step) { left_ = BrokerReport{.attempt = attempt, .progress = {.step = step}}; }
  // Below zero: nothing is said.
  int64_t Step() const {
    const auto ask = [this](const std::string& address) -> std::optional<Progress> {
      const auto page = pages_.find(address);
      if (page == pages_.end()) return std::nullopt;
      return Progress{.step = page->second};
    };
    const std::optional<Progress> newest = NewestProgress(seen_, memory_, ask, left_);
    return newest.has_value() ? newest->step : -1;
  }

  Observation seen_;
  PersistedState memory_{.attempt = 3};
  std::optional<BrokerReport> left_;
  std::map<std::string, int64_t> pages_;
};

TEST_F(NewestProgressTest, TheBrokerOfTheAttemptIsAskedAndNoOther) {
  Pod(kExecutorRole, 3).report = Progress{.step = 1};
  Ended(2, 20);
  Running(4, 40);
  Running(3, 30);
  Left(3, 25);
  EXPECT_EQ(Step(), 30);
}

TEST_F(NewestProgressTest, WhatItHasLeftGoesBeforeItsPage) {
  Running(3, 30).report = Progress{.step = 33};
  EXPECT_EQ(Step(), 33);
}

TEST_F(NewestProgressTest, OneThatHasNoPageYetIsNotAsked) {
  Running(3, 30).phase = PodPhase::kPending;
  Ended(2, 20);
  EXPECT_EQ(Step(), -1);
}

TEST_F(NewestProgressTest, OfOneThatIsGoneItsLastWordCountsHoweverItsJobStands) {
  Left(3, 33);
  Ended(2, 20);
  EXPECT_EQ(Step(), 33);
  for (bool PersistedState::*const flag : {&PersistedState::was_ready, &PersistedState::complete, &PersistedState::failed}) {
    memory_ = {.attempt = 3};
    memory_.*flag = true;
    EXPECT_EQ(Step(), 33);
  }
}

TEST_F(NewestProgressTest, BeforeTheAttemptTrainsTheOneBeforeCounts) {
  Left(2, 20);
  EXPECT_EQ(Step(), 20);
  Ended(2, 22);
  EXPECT_EQ(Step(), 22) << "as long as its pod is there";
}

TEST_F(NewestProgressTest, TheOneBeforeIsOldOnceTheAttemptTrainedOrTheJobIsOver) {
  for (const bool gone : {true, false}) {
    if (gone) {
      Left(2, 20);
    } else {
      Ended(2, 20);
    }
    for (bool PersistedState::*const flag : {&PersistedState::was_ready, &PersistedState::complete, &PersistedState::failed}) {
      memory_ = {.attempt = 3};
      memory_.*flag = true;
      EXPECT_EQ(Step(), -1) << gone;
    }
  }
}

TEST_F(NewestProgressTest, WhatCameBeforeThatIsOldInAnyCase) {
  Left(1, 10);
  Ended(1, 10);
  EXPECT_EQ(Step(), -1);
  Left(4, 40);
  EXPECT_EQ(Step(), -1) << "of an attempt that is not told of yet";
}

}  // namespace
}  // namespace fusionllm::op
