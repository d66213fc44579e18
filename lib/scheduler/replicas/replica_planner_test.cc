#include "lib/scheduler/replicas/replica_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <variant>

#include "lib/scheduler/planner.h"
#include "lib/scheduler/replicas/testing/plan_errors.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler::replicas {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::PlanErrorFor;

constexpr double kOp = 0.1;  // forward; backward takes twice as long
constexpr int kOps = 8;

ReplicaPlan PlanFor(const PlanRequest& request, int replicas) {
  return std::get<ReplicaPlan>(PlanReplicas("op-fence", request, replicas).value());
}

std::vector<int> Shares(const ReplicaPlan& plan) {
  std::vector<int> shares;
  for (const PlannedPipeline& pipeline : plan.pipelines) shares.push_back(pipeline.micro_batches);
  return shares;
}

// Two sites of two devices each.
PlanRequest TwoSites(int micro_batches, int64_t parameter_bytes, int64_t cut_bytes, double across_bytes_per_s) {
  PlanRequest request =
      testing::Chain({.ops = kOps, .op_s = kOp, .cut_bytes = cut_bytes, .parameter_bytes = parameter_bytes}, micro_batches);
  for (const char* site : {"paris", "paris", "tokyo", "tokyo"}) testing::AddDevice(request, site, 1);
  testing::LinkSites(request, 1e10, 1e-6, across_bytes_per_s, 0.01);
  request.search_budget = 4'000;
  return request;
}

TEST(ReplicaPlannerTest, OneReplicaIsOpFencesPlan) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const PlanRequest request = testing::RandomRequest(seed, {});
    const PlanOutcome one = MakePlan("op-fence", request).value();
    const ReplicaOutcome outcome = PlanReplicas("op-fence", request, 1).value();
    if (const auto* refusal = std::get_if<PlanError>(&one)) {
      EXPECT_EQ(std::get<PlanError>(outcome), *refusal);
      continue;
    }
    const ReplicaPlan& plan = std::get<ReplicaPlan>(outcome);
    ASSERT_EQ(plan.pipelines.size(), 1u);
    EXPECT_EQ(plan.pipelines[0], std::get<PlannedPipeline>(one));
    EXPECT_EQ(plan.predicted_step_s, std::get<PlannedPipeline>(one).predicted_step_s);
  }
}

// Two devices, one stage each: the whole model on both, half of the micro-batches each, then all gradients over the link.
TEST(ReplicaPlannerTest, PureDataParallelismTakesHalfTheWorkAndTheAllReduce) {
  PlanRequest request = testing::Chain({.ops = kOps, .op_s = kOp, .parameter_bytes = 1'000'000}, 6);
  for (const char* site : {"paris", "tokyo"}) testing::AddDevice(request, site, 1);
  testing::LinkSites(request, 1e10, 0, 4e6, 0.02);
  request.coordinates_steps = false;
  request.stages = 1;
  const ReplicaPlan plan = PlanFor(request, 2);
  EXPECT_THAT(Shares(plan), ElementsAre(3, 3));
  // All bytes one way, the last chunk the other way.
  const double pipeline_s = 3 * kOps * 3 * kOp, sync_s = 2 * 0.02 + (kOps * 1e6 + kMaxChunkBytes) / 4e6;
  EXPECT_NEAR(plan.pipelines_s, pipeline_s, 1e-9);
  EXPECT_NEAR(plan.sync_s, sync_s, 1e-12);
  EXPECT_NEAR(plan.predicted_step_s, pipeline_s + sync_s, 1e-9);
  EXPECT_EQ(plan.sync_bytes, 2 * kOps * 1'000'000);
  EXPECT_THAT(plan.explain, Contains(HasSubstr("of gradients are added up along paris-0 -> tokyo-0, and the sum goes back")));
}

TEST(ReplicaPlannerTest, AFasterDeviceGetsMoreMicroBatches) {
  PlanRequest request = testing::Chain({.ops = kOps, .op_s = kOp, .parameter_bytes = 0}, 12);
  testing::AddDevice(request, "paris", 1);
  testing::AddDevice(request, "paris", 2);
  testing::LinkSites(request, 1e10, 0, 1, 1);
  request.stages = 1;
  std::vector<int> shares = Shares(PlanFor(request, 2));
  std::sort(shares.begin(), shares.end());
  EXPECT_THAT(shares, ElementsAre(4, 8));
}

// Memory wants two devices at least, and activations are far too long for the line between the sites. So a pipeline stays inside one site:
// two stages of C = 4 ops (1.2 s) take (m + 1) C for m micro-batches. Either one of them does all the work, or two share it and add up the
// gradients G of the model over the line, those of both stages at once, in chunks L: replicas win exactly when
//   (m / 2 + 1) C + 2 latency + (G + 2 L) / rate < (m + 1) C
TEST(ReplicaPlannerTest, ReplicasAcrossSitesBeatOnePipelineExactlyWhenTheNumbersSaySo) {
  constexpr int kMicroBatches = 8;
  constexpr double kRate = 10e6, kStage = 0.5 * kOps * 3 * kOp;
  for (const int64_t parameter_bytes : {5'850'000, 5'950'000}) {
    PlanRequest request = TwoSites(kMicroBatches, parameter_bytes, 30'000'000, kRate);
    for (OpNode& op : request.ops) op.optimizer_bytes = op.placeholder ? 0 : int64_t{1} << 30;
    for (ValueNode& value : request.values) value.kept_by.clear();
    for (Device& device : request.devices) device.memory_bytes = int64_t{6} << 30;
    const double one_pipeline_s = (kMicroBatches + 1) * kStage;
    const double all_reduce_s = 2 * 0.01 + static_cast<double>(kOps * parameter_bytes + 2 * kMaxChunkBytes) / kRate;
    const double two_pipelines_s = (0.5 * kMicroBatches + 1) * kStage + all_reduce_s;
    const ReplicaPlan plan = PlanFor(request, kAutoReplicas);
    ASSERT_EQ(plan.pipelines.size(), two_pipelines_s < one_pipeline_s ? 2u : 1u) << parameter_bytes;
    EXPECT_NEAR(plan.predicted_step_s, std::min(one_pipeline_s, two_pipelines_s), 0.05);
    if (plan.pipelines.size() == 1) continue;
    EXPECT_NEAR(plan.sync_s, all_reduce_s, 1e-9);
    for (const PlannedPipeline& pipeline : plan.pipelines) {
      std::set<std::string> sites;
      for (const PlannedStage& stage : pipeline.stages) sites.insert(request.devices[stage.devices[0]].site);
      EXPECT_EQ(sites.size(), 1u) << "activations stay inside a site";
    }
  }
}

// Devices of a site cannot talk to each other and none holds the whole model, so both pipelines cross the line: each has half of its rate.
TEST(ReplicaPlannerTest, PipelinesThatShareALineShareItsRate) {
  PlanRequest request = testing::Chain({.ops = 2, .op_s = 0.001, .cut_bytes = 1'000'000, .parameter_bytes = 0}, 2);
  for (const char* site : {"paris", "paris", "tokyo", "tokyo"}) testing::AddDevice(request, site, 1);
  testing::LinkSites(request, 1e10, 0, 1e6, 0);
  for (Device& device : request.devices) device.memory_bytes = 45'000'000;
  request.ops[2].parameter_bytes = request.ops[3].parameter_bytes = 25'000'000;
  std::erase_if(request.links, [&](const Link& link) { return request.devices[link.src].site == request.devices[link.dst].site; });
  request.coordinates_steps = false;
  const ReplicaPlan plan = PlanFor(request, 2);
  ASSERT_EQ(plan.pipelines[0].stages.size(), 2u);
  // One micro-batch each: 1 MB there and 1 MB back at 0.5 MB/s, and 6 ms of work.
  EXPECT_NEAR(plan.pipelines_s, 4.006, 0.01);
}

class RandomReplicasTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomReplicasTest, RandomPlansAreFeasibleAndNoWorseThanOnePipeline) {
  PlanRequest request = testing::RandomRequest(GetParam(), {.max_ops = 12, .max_devices = 9, .max_micro_batches = 12});
  request.search_budget = 2'000;
  const int usable = static_cast<int>(request.devices.size());
  for (const int replicas : {kAutoReplicas, 2, 3}) {
    const ReplicaOutcome outcome = PlanReplicas("op-fence", request, replicas).value();
    EXPECT_EQ(outcome, PlanReplicas("op-fence", request, replicas).value()) << "equal requests, equal plans";
    const PlanOutcome one = MakePlan("op-fence", request).value();
    if (const auto* refusal = std::get_if<PlanError>(&outcome)) {
      EXPECT_TRUE(replicas != kAutoReplicas || std::holds_alternative<PlanError>(one)) << "one pipeline is possible, " << refusal->message;
      if (usable < replicas) {
        EXPECT_EQ(refusal->reason, request.micro_batches < replicas ? "TooManyReplicas" : "TooFewExecutors");
      }
      continue;
    }
    const ReplicaPlan& plan = std::get<ReplicaPlan>(outcome);
    if (replicas != kAutoReplicas) {
      EXPECT_EQ(static_cast<int>(plan.pipelines.size()), replicas);
    } else if (std::holds_alternative<PlannedPipeline>(one)) {
      EXPECT_LE(plan.predicted_step_s, std::get<PlannedPipeline>(one).predicted_step_s * (1 + 1e-9));
    }
    std::set<std::string> devices(plan.left_out.begin(), plan.left_out.end());
    size_t named = plan.left_out.size();
    int micro_batches = 0;
    double slowest_s = 0;
    for (const PlannedPipeline& pipeline : plan.pipelines) {
      micro_batches += pipeline.micro_batches;
      EXPECT_GE(pipeline.micro_batches, 1);
      slowest_s = std::max(slowest_s, pipeline.predicted_step_s);
      ASSERT_EQ(pipeline.stages.size(), plan.pipelines[0].stages.size());
      for (size_t s = 0; s < pipeline.stages.size(); ++s) {
        const PlannedStage& stage = pipeline.stages[s];
        EXPECT_EQ(stage.ops, plan.pipelines[0].stages[s].ops) << "all pipelines have the same cuts";
        const double memory = static_cast<double>(request.devices[stage.devices[0]].memory_bytes) * (1 - request.memory_headroom);
        EXPECT_LE(static_cast<double>(stage.memory_bytes), memory);
        EXPECT_LE(stage.in_flight, pipeline.micro_batches);
        devices.insert(stage.device_names[0]);
        ++named;
      }
    }
    EXPECT_EQ(devices.size(), named) << "no device twice";
    EXPECT_EQ(named, request.devices.size());
    EXPECT_EQ(micro_batches, request.micro_batches);
    EXPECT_DOUBLE_EQ(plan.pipelines_s, slowest_s);
    EXPECT_DOUBLE_EQ(plan.predicted_step_s, plan.pipelines_s + plan.sync_s);
    EXPECT_GE(plan.gap, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomReplicasTest, ::testing::Range<uint64_t>(1, 41));

TEST(ReplicaPlannerTest, KeepsConstraints) {
  PlanRequest request = TwoSites(8, 1'000, 1'000, 1e9);
  request.exclude = {"tokyo-1"};
  request.stages = 1;
  const ReplicaPlan plan = PlanFor(request, 3);
  ASSERT_EQ(plan.pipelines.size(), 3u);
  EXPECT_TRUE(plan.left_out.empty()) << "what is excluded is no reserve";
  for (const PlannedPipeline& pipeline : plan.pipelines) {
    EXPECT_EQ(pipeline.stages.size(), 1u);
    EXPECT_NE(pipeline.stages[0].device_names[0], "tokyo-1");
  }
  request.max_executors = 2;
  EXPECT_EQ(PlanErrorFor(request, 3).reason, "TooFewExecutors");
}

TEST(ReplicaPlannerTest, ANegativeNumberIsAnError) {
  EXPECT_EQ(PlanReplicas("op-fence", TwoSites(4, 1'000, 1'000, 1e9), -1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReplicaPlannerTest, PinsLeaveOnePipelineWhereThePlannerDecidesAndItSaysSo) {
  PlanRequest request = TwoSites(8, 1'000, 1'000, 1e9);
  request.pins = {{.ops = "op3", .device = "paris-1"}};
  const ReplicaPlan plan = PlanFor(request, kAutoReplicas);
  EXPECT_EQ(plan.pipelines.size(), 1u);
  EXPECT_THAT(plan.explain,
              Contains(AllOf(HasSubstr("one pipeline: ops 'op3' are pinned"), Not(HasSubstr("spec.strategy.replicas to 1")))));
}

TEST(ReplicaPlannerTest, ASearchThatIsStoppedGivesNoPlan) {
  int asked = 0;
  const auto outcome = PlanReplicas("op-fence", TwoSites(8, 1'000, 1'000, 1e9), kAutoReplicas, [&] { return ++asked > 20; });
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace fusionllm::scheduler::replicas
