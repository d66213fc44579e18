// Whose words count as the newest of a job's run.
#include "operator/controller/newest_progress.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::controller {
namespace {

class NewestProgressTest : public ::testing::Test {
 protected:
  NewestProgressTest() { seen_.clusters.resize(2); }
  // Trains, and its page says this step.
  lifecycle::PodView& Running(int64_t attempt, int64_t step) {
    lifecycle::PodView& pod = Pod(manifests::kBrokerRole, attempt);
    pod.phase = lifecycle::PodPhase::kRunning;
    pod.address = absl::StrCat("10.0.0.", attempt);
    pages_[pod.address] = step;
    return pod;
  }
  lifecycle::PodView& Ended(int64_t attempt, int64_t step) {
    lifecycle::PodView& pod = Pod(manifests::kBrokerRole, attempt);
    pod.phase = lifecycle::PodPhase::kSucceeded;
    pod.report = lifecycle::Progress{.step = step};
    return pod;
  }
  lifecycle::PodView& Pod(const std::string& role, int64_t attempt) {
    return seen_.clusters[0].pods.emplace_back(lifecycle::PodView{.role = role, .attempt = attempt});
  }
  void Left(int64_t attempt, int64_t step) { left_ = cache::BrokerReport{.attempt = attempt, .progress = {.step = step}}; }
  // Below zero: nothing is said.
  int64_t Step() const {
    const auto ask = [this](const std::string& address) -> std::optional<lifecycle::Progress> {
      const auto page = pages_.find(address);
      if (page == pages_.end()) return std::nullopt;
      return lifecycle::Progress{.step = page->second};
    };
    const std::optional<lifecycle::Progress> newest = NewestProgress(seen_, memory_, ask, left_);
    return newest.has_value() ? newest->step : -1;
  }

  lifecycle::Observation seen_;
  lifecycle::PersistedState memory_{.attempt = 3};
  std::optional<cache::BrokerReport> left_;
  std::map<std::string, int64_t> pages_;
};

TEST_F(NewestProgressTest, TheBrokerOfTheAttemptIsAskedAndNoOther) {
  Pod(manifests::kExecutorRole, 3).report = lifecycle::Progress{.step = 1};
  Ended(2, 20);
  Running(4, 40);
  Running(3, 30);
  Left(3, 25);
  EXPECT_EQ(Step(), 30);
}

TEST_F(NewestProgressTest, WhatItHasLeftGoesBeforeItsPage) {
  Running(3, 30).report = lifecycle::Progress{.step = 33};
  EXPECT_EQ(Step(), 33);
}

TEST_F(NewestProgressTest, OneThatHasNoPageYetIsNotAsked) {
  Running(3, 30).phase = lifecycle::PodPhase::kPending;
  Ended(2, 20);
  EXPECT_EQ(Step(), -1);
}

TEST_F(NewestProgressTest, OfOneThatIsGoneItsLastWordCountsHoweverItsJobStands) {
  Left(3, 33);
  Ended(2, 20);
  EXPECT_EQ(Step(), 33);
  for (bool lifecycle::PersistedState::*const flag :
       {&lifecycle::PersistedState::was_ready, &lifecycle::PersistedState::complete, &lifecycle::PersistedState::failed}) {
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
    for (bool lifecycle::PersistedState::*const flag :
         {&lifecycle::PersistedState::was_ready, &lifecycle::PersistedState::complete, &lifecycle::PersistedState::failed}) {
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
}  // namespace fusionllm::op::controller
