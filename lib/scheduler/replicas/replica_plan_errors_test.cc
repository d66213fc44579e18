#include "lib/scheduler/replicas/replica_plan_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lib/scheduler/replicas/replica_planner.h"
#include "lib/scheduler/replicas/testing/plan_errors.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler::replicas {
namespace {

using ::testing::HasSubstr;
using testing::PlanErrorFor;

// One site; each device holds the whole model, which has `ops` ops.
PlanRequest Site(int devices, int ops = 8) {
  PlanRequest request = testing::Chain({.ops = ops, .cut_bytes = 1'000, .parameter_bytes = 1'000}, 4);
  for (int i = 0; i < devices; ++i) testing::AddDevice(request, "paris", 1);
  testing::LinkSites(request, 1e9, 1e-6, 1e9, 1e-6);
  request.search_budget = 1'000;
  return request;
}

struct Case {
  const char* name;
  int replicas, stages, least, most, devices;  // most: executors.max; 0: all
  const char* reason;
  const char* message;
  double needed, available;
};

class NoFeasibleShapeTest : public ::testing::TestWithParam<Case> {};

TEST_P(NoFeasibleShapeTest, SaysWhatContradictsWhatAndWhatToDo) {
  const Case& c = GetParam();
  PlanRequest request = Site(c.devices);
  request.stages = c.stages;
  request.min_executors = c.least;
  request.max_executors = c.most;
  if (c.most > 0) request.max_executors_why = "spec.executors.max is " + std::to_string(c.most);
  const PlanError refusal = PlanErrorFor(request, c.replicas);
  EXPECT_EQ(refusal.reason, c.reason);
  EXPECT_EQ(refusal.message, c.message);
  EXPECT_EQ(refusal.shortfall.needed, c.needed);
  EXPECT_EQ(refusal.shortfall.available, c.available);
}

INSTANTIATE_TEST_SUITE_P(
    Constraints, NoFeasibleShapeTest,
    ::testing::Values(Case{"MorePipelinesThanMicroBatches", 5, 0, 1, 0, 8, "TooManyReplicas",
                           "spec.strategy.replicas is 5, a step has 4 micro-batches: every pipeline needs one; take a smaller "
                           "spec.training.microBatchSize, a "
                           "larger "
                           "spec.training.globalBatchSize, or fewer replicas",
                           5, 4},
                      Case{"FewerDevicesThanPipelines", 2, 0, 1, 0, 1, "TooFewExecutors",
                           "2 pipelines (spec.strategy.replicas) need 2 executors, the job may use 1", 2, 1},
                      Case{"FewerDevicesThanStages", 2, 3, 1, 0, 4, "TooFewExecutors",
                           "2 pipelines (spec.strategy.replicas) of 3 stages need 6 executors, the job may use 4", 6, 4},
                      Case{"FewerDevicesThanStagesWhateverTheLeast", 2, 3, 2, 0, 4, "TooFewExecutors",
                           "2 pipelines (spec.strategy.replicas) of 3 stages need 6 executors, the job may use 4", 6, 4},
                      Case{"ALimitOfTheJob", 2, 0, 1, 1, 8, "TooFewExecutors",
                           "2 pipelines (spec.strategy.replicas) need 2 executors, the job may use 1: spec.executors.max is 1", 2, 1},
                      Case{"ALimitThatIsNone", 2, 0, 1, 3, 1, "TooFewExecutors",
                           "2 pipelines (spec.strategy.replicas) need 2 executors, the job may use 1", 2, 1},
                      Case{"FewerDevicesThanTheLeast", 2, 0, 5, 0, 4, "TooFewExecutors",
                           "spec.executors.min asks for 5 executors, the job may use 4", 5, 4},
                      Case{"TheStagesAreTooFewForTheLeast", 2, 2, 5, 0, 8, "ConflictingConstraints",
                           "2 pipelines (spec.strategy.replicas) of 2 stages (spec.strategy.stages) use exactly 4 executors, and "
                           "spec.executors.min asks for 5: lower "
                           "it, "
                           "or leave the stages to the planner (spec.strategy.stages: 0)",
                           5, 4},
                      Case{"TheStagesAreTooFewAndNoOthersWouldDo", 2, 2, 5, 0, 5, "ConflictingConstraints",
                           "2 pipelines (spec.strategy.replicas) of 2 stages (spec.strategy.stages) use exactly 4 executors, and "
                           "spec.executors.min asks for 5: lower it",
                           5, 4},
                      Case{"NoMultipleFromTheLeastToAll", 2, 0, 5, 0, 5, "ConflictingConstraints",
                           "2 pipelines (spec.strategy.replicas) with the same number of stages use 4 executors or 6, but "
                           "spec.executors.min asks for 5, and the "
                           "job "
                           "may use 5: set spec.executors.min to 4, or let the job use 6",
                           5, 4},
                      Case{"NoMultipleFromTheLeastToTheMost", 4, 0, 5, 7, 8, "ConflictingConstraints",
                           "4 pipelines (spec.strategy.replicas) with the same number of stages use 4 executors or 8, but "
                           "spec.executors.min asks for 5, and the "
                           "job "
                           "may use 7 (spec.executors.max is 7): set spec.executors.min to 4, or let the job use 8",
                           5, 4}),
    [](const auto& info) { return std::string(info.param.name); });

// With seven, too: three stages are all that there are ops for, and eight executors would need four.
TEST(ReplicaRefusalsTest, AModelOfFewOpsHasNoUseForManyExecutors) {
  for (const int devices : {7, 8}) {
    PlanRequest request = Site(devices, 3);
    request.min_executors = 7;
    const PlanError refusal = PlanErrorFor(request, 2);
    EXPECT_EQ(refusal.reason, "TooManyStages") << devices;
    EXPECT_EQ(refusal.message,
              "2 pipelines (spec.strategy.replicas) use at most 6 executors, for the model has only 3 ops to share out, and "
              "spec.executors.min asks "
              "for 7: lower it, or take more replicas")
        << devices;
  }
  PlanRequest request = Site(7, 4);  // one op more, and eight could be used
  request.min_executors = 7;
  EXPECT_THAT(PlanErrorFor(request, 2).message, HasSubstr("use 6 executors or 8"));
}

TEST(ReplicaRefusalsTest, AllDevicesMayBeTooManyByOne) {
  PlanRequest request = Site(5);
  request.use_all_devices = true;
  PlanError refusal = PlanErrorFor(request, 2);
  EXPECT_EQ(refusal.reason, "ConflictingConstraints");
  EXPECT_THAT(refusal.message, HasSubstr("use 4 executors or 6, but all 5 are to be used, and the job may use 5: let the job use 6"));
  request.stages = 2;
  EXPECT_THAT(PlanErrorFor(request, 2).message, HasSubstr("use exactly 4 executors, and all 5 are to be used: let some be left out"));
}

TEST(ReplicaRefusalsTest, WhyDevicesAreLeftOutIsSaid) {
  PlanRequest request = Site(2);
  request.exclude = {"paris-1"};
  request.exclude_why = "paris-1 is small";
  EXPECT_EQ(PlanErrorFor(request, 2).message, "2 pipelines (spec.strategy.replicas) need 2 executors, the job may use 1; paris-1 is small");
}

// What no grid goes with, however many devices there are: the field, and a way out.
TEST(ReplicaRefusalsTest, WhatGoesWithOnePipelineOnlyIsNamedWithAWayOut) {
  struct Obstacle {
    const char* reason;
    void (*set)(PlanRequest&);
    std::vector<std::string> words;
  };
  const Obstacle obstacles[] = {
      {"PinConflict",
       [](PlanRequest& request) { request.pins = {{.ops = "op3", .device = "paris-1"}}; },
       {"ops 'op3' are pinned to paris-1 (spec.strategy.pins)", "remove the pin, or set spec.strategy.replicas to 1"}},
      {"NotAvailable",
       [](PlanRequest& request) { request.first_device = "paris-0"; },
       {"paris-0 is to read the training data", "set spec.strategy.replicas to 1 or auto"}},
      {"NotAvailable",
       [](PlanRequest& request) { request.max_egress_bytes = int64_t{1} << 40; },
       {"spec.placement.maxEgressBytesPerStep", "remove the limit, or set spec.strategy.replicas to 1"}},
      {"InstanceTooLarge",
       [](PlanRequest& request) {
         while (request.devices.size() <= kMaxDevices) testing::AddDevice(request, "paris", 1);
       },
       {"up to 256 executors, 257 are usable", "exclude some (spec.strategy.exclude), or set spec.strategy.replicas to 1"}}};
  for (const Obstacle& obstacle : obstacles) {
    PlanRequest request = Site(4);
    obstacle.set(request);
    const PlanError refusal = PlanErrorFor(request, 2);
    EXPECT_EQ(refusal.reason, obstacle.reason);
    for (const std::string& words : obstacle.words) EXPECT_THAT(refusal.message, HasSubstr(words));
  }
  for (const int replicas : {2, kAutoReplicas}) {
    EXPECT_EQ(PlanErrorFor(Site(4), replicas, "equal-ops").message,
              "planner equal-ops lays out one pipeline: set spec.strategy.planner to op-fence, or spec.strategy.replicas to 1");
  }
}

TEST(ReplicaRefusalsTest, ReplicasThatNoLinkJoinsAreNamedWithAWayOut) {
  PlanRequest request = Site(1);
  testing::AddDevice(request, "rome", 1);  // without a link
  request.stages = 1;
  const PlanError refusal = PlanErrorFor(request, 2);
  EXPECT_EQ(refusal.reason, "DisconnectedDevices");
  EXPECT_THAT(refusal.message, HasSubstr("(paris-0 and rome-0, among others, are not joined): let them reach each other, or set "
                                         "spec.strategy.replicas to 1"));
}

TEST(ReplicaRefusalsTest, OfAGridThatDoesNotFitThePipelineIsNamed) {
  PlanRequest request = Site(2);
  request.stages = 1;
  request.devices[1].memory_bytes = 20'000;
  const PlanError refusal = PlanErrorFor(request, 2);
  EXPECT_EQ(refusal.reason, "InsufficientMemory");
  EXPECT_THAT(refusal.message,
              ::testing::MatchesRegex("no grid of pipelines fits; with 2 pipelines of 1 stage, in pipeline [01]: stage 0 "
                                      "needs [0-9.]+ [KM]iB, device paris-1 has 18.6 KiB; give executors more memory [(].*"));
}

}  // namespace
}  // namespace fusionllm::scheduler::replicas
