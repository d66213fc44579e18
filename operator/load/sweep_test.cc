// An operator that is killed after some of its writes, in lives of a job that take seconds (life.h). A life that goes otherwise than it
// should ends the program with what there is. All places of all lives: build/benchmarks/load_report sweep.
#include <gtest/gtest.h>

#include <csignal>

#include "operator/load/scenarios.h"

namespace fusionllm::op::load {
namespace {

class SweepTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SweepTest, SomePlacesOfALife) {
  std::signal(SIGPIPE, SIG_IGN);
  Sweep({.life = GetParam(), .first = 5, .stride = 11, .most = 2});
}

INSTANTIATE_TEST_SUITE_P(Lives, SweepTest, ::testing::Values("restart", "executor", "suspend", "scale", "away", "services"));

}  // namespace
}  // namespace fusionllm::op::load
