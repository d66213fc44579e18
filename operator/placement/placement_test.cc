#include "operator/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::op {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Names(const Placement& placement) {
  std::vector<std::string> names;
  for (const ExecutorSlot& slot : placement.slots) names.push_back(absl::StrCat(DeviceName(slot), slot.spare ? " spare" : ""));
  return names;
}

class PlacementTest : public ::testing::Test {
 protected:
  std::vector<std::string> Place(const std::vector<std::string>& clusters) { return Names(op::Place(job_, clusters)); }
  std::string Problem(const std::vector<std::string>& clusters) {
    const Placement placement = op::Place(job_, clusters);
    EXPECT_THAT(placement.slots, IsEmpty());
    return placement.problem;
  }
  job::Executors& executors() { return job_.spec.executors; }
  job::Placement& wish() { return job_.spec.placement; }
  job::FusionJob job_;
};

TEST_F(PlacementTest, OneClusterTakesAll) {
  executors().replicas = 3;
  EXPECT_THAT(Place({"local"}), ElementsAre("local-0", "local-1", "local-2"));
}

TEST_F(PlacementTest, WithoutANumberTheFewestRun) {
  executors().min = 2;
  EXPECT_THAT(Place({"local"}), ElementsAre("local-0", "local-1"));
}

TEST_F(PlacementTest, MinimaFirstThenInTurnWithinTheMaxima) {
  executors().replicas = 6;
  wish().clusters = {{"paris", 1, 4}, {"tokyo", 3, 3}};
  EXPECT_THAT(Place({"paris", "tokyo", "oslo"}), ElementsAre("paris-0", "paris-1", "paris-2", "tokyo-0", "tokyo-1", "tokyo-2"));
}

TEST_F(PlacementTest, SparesComeAfterThoseThatTrain) {
  executors().replicas = 3;
  executors().spares = 2;
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "paris-1", "tokyo-0", "paris-2 spare", "tokyo-1 spare"));
}

TEST_F(PlacementTest, WhatCannotBeIsSaid) {
  executors().replicas = 4;
  EXPECT_THAT(Problem({}), HasSubstr("no cluster"));
  wish().clusters = {{"mars", 1, std::nullopt}};
  EXPECT_THAT(Problem({"paris"}), HasSubstr("mars must have 1 executors, and there is no such cluster; there are: paris"));
  wish().clusters = {{"paris", 0, 3}};
  EXPECT_THAT(Problem({"paris"}), HasSubstr("maxima add up to 3, fewer than the 4"));
  wish().clusters = {{"paris", 5, std::nullopt}};
  EXPECT_THAT(Problem({"paris"}), HasSubstr("minima add up to 5, more than the 4"));
}

}  // namespace
}  // namespace fusionllm::op
