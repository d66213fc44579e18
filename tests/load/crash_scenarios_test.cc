// An operator that is killed after some of its writes, in lives of a job that take seconds (crash_run.h). A life that goes otherwise than
// it should ends the program with what there is. All places of all lives: build/benchmarks/load_report crash-sweep.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/load/scenarios.h"

namespace fusionllm::load {
namespace {

class CrashScenariosTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CrashScenariosTest, SomePlacesOfALife) {
  std::signal(SIGPIPE, SIG_IGN);
  Sweep({.scenario = GetParam(), .first = 5, .stride = 11, .max_writes = 2});
}

INSTANTIATE_TEST_SUITE_P(Lives, CrashScenariosTest, ::testing::Values("restart", "executor", "suspend", "scale", "away", "services"));

}  // namespace
}  // namespace fusionllm::load
