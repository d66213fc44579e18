#include "lib/schedule/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

namespace fusionllm::schedule {
namespace {

bool Ready() { return true; }
bool NotReady() { return false; }

// The passes of a stage whose inputs are always there, as "F" and "B".
std::string PassesOf(const PipelineSchedule& schedule, int micro_batches, int in_flight) {
  Progress progress;
  std::string text;
  while (const std::optional<Pass> pass = schedule.Next(progress, micro_batches, in_flight, Ready, Ready)) {
    progress.Begin(*pass);
    progress.forwards_done = progress.forwards;
    text += *pass == Pass::kForward ? 'F' : 'B';
  }
  return text;
}

TEST(PipelineScheduleTest, GPipeRunsAllForwardPassesFirst) {
  EXPECT_EQ(PassesOf(kGPipe, 4, 4), "FFFFBBBB");
  EXPECT_EQ(kGPipe.MinInFlight(4), 4);
  EXPECT_EQ(kGPipe.MaxInFlight(4, 2), 4) << "it cannot do with fewer";
}

TEST(PipelineScheduleTest, OneForwardOneBackwardTakesTurnsAndKeepsToItsDepth) {
  EXPECT_EQ(PassesOf(k1F1B, 4, 1), "FBFBFBFB");
  EXPECT_EQ(PassesOf(k1F1B, 4, 2), "FBFBFBFB") << "its backward pass is ready at once";
  EXPECT_EQ(k1F1B.MinInFlight(4), 1);
  EXPECT_EQ(k1F1B.MaxInFlight(4, 2), 2);
  EXPECT_EQ(k1F1B.MaxInFlight(4, 0), 4);
  EXPECT_EQ(k1F1B.MaxInFlight(4, 9), 4);
}

TEST(PipelineScheduleTest, OneForwardOneBackwardGoesForwardWhileItsGradientsAreOnTheirWay) {
  Progress progress{.forwards = 1, .forwards_done = 1};
  EXPECT_EQ(k1F1B.Next(progress, 4, 2, Ready, NotReady), Pass::kForward);
  progress.Begin(Pass::kForward);
  progress.forwards_done = 2;
  EXPECT_EQ(k1F1B.Next(progress, 4, 2, Ready, NotReady), std::nullopt) << "two are in flight";
  EXPECT_EQ(k1F1B.Next(progress, 4, 2, Ready, Ready), Pass::kBackward);
  progress.Begin(Pass::kBackward);
  EXPECT_EQ(k1F1B.Next(progress, 4, 2, Ready, Ready), Pass::kForward) << "in turns";
}

TEST(PipelineScheduleTest, ReadinessIsAskedOnlyOfPassesThatTheScheduleAllows) {
  const auto never = [] {
    ADD_FAILURE() << "asked";
    return true;
  };
  EXPECT_EQ(k1F1B.Next({}, 2, 2, Ready, never), Pass::kForward) << "nothing went forward yet";
  EXPECT_EQ(kGPipe.Next({.forwards = 1, .forwards_done = 1}, 2, 2, Ready, never), Pass::kForward);
  EXPECT_EQ(k1F1B.Next({.forwards = 2, .forwards_done = 2}, 2, 2, never, Ready), Pass::kBackward);
}

TEST(PipelineScheduleTest, EveryScheduleIsFoundByItsName) {
  for (const PipelineSchedule& schedule : All()) EXPECT_EQ(Find(schedule.name()), schedule);
  EXPECT_EQ(Find("2f2b"), std::nullopt);
  EXPECT_EQ(NamesText(), "gpipe or 1f1b");
}

// A pass is never lost, whatever the depth.
TEST(PipelineScheduleTest, EveryScheduleRunsEveryPassOnce) {
  for (const PipelineSchedule& schedule : All()) {
    for (int micro_batches = 1; micro_batches <= 6; ++micro_batches) {
      for (int in_flight = schedule.MinInFlight(micro_batches); in_flight <= micro_batches; ++in_flight) {
        const std::string passes = PassesOf(schedule, micro_batches, in_flight);
        EXPECT_EQ(std::count(passes.begin(), passes.end(), 'F'), micro_batches) << schedule.name() << in_flight;
        EXPECT_EQ(std::count(passes.begin(), passes.end(), 'B'), micro_batches) << schedule.name() << in_flight;
      }
    }
  }
}

}  // namespace
}  // namespace fusionllm::schedule
