#include "lib/planning/plan_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "lib/planning/stage_memory.h"
#include "lib/planning/testing/three_devices.h"
#include "lib/scheduler/replicas/all_reduce.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::planning {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Devices(const plan::Plan& plan) {
  std::vector<std::string> devices;
  for (const plan::Stage& stage : plan.stages) devices.push_back(stage.devices[0]);
  return devices;
}

// The stage of each op of the training graph, as runtime::BuildStageProgram wants it. Fails where the plan leaves an op out, or has one
// that the graph has not.
std::vector<int> StagesOfOps(const plan::Plan& plan, const autodiff::TrainingGraph& training) {
  std::vector<int> stage_of_op(training.forward_ops, opdag::kNone);
  for (const plan::Stage& stage : plan.stages) {
    for (const std::string& name : stage.ops) {
      const opdag::OpId op = training.graph.FindOp(name);
      EXPECT_TRUE(op != opdag::kNone && op < training.forward_ops) << name;
      if (op != opdag::kNone && op < training.forward_ops) stage_of_op[op] = stage.index;
    }
  }
  EXPECT_THAT(stage_of_op, ::testing::Not(Contains(opdag::kNone)));
  return autodiff::AssignStages(training, stage_of_op);
}

TEST(PlanWorkload, PlanOnATopologyIsConsistent) {
  const auto workload = Resolve();
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  EXPECT_THAT(Devices(plan), ElementsAre("paris-0", "paris-1", "tokyo-0"));
  EXPECT_THAT(plan.left_out, ElementsAre("tokyo-1"));
  EXPECT_EQ(plan.micro_batches, 8);
  EXPECT_EQ(plan.micro_batch_size, 2);
  EXPECT_GE(plan.gap, 0);
  EXPECT_GE(plan.predicted_step_seconds, plan.lower_bound_seconds);
  EXPECT_EQ(plan.stages[0].ops[0], "tokens");
  EXPECT_EQ(StagesOfOps(plan, workload->training).size(), workload->training.graph.ops().size());
  const auto parsed = wire::ParsePlan(wire::PrintPlan(plan));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<plan::Plan>(*parsed), plan);
}

TEST(PlanWorkload, JobBeyondPlannerLimitsNamesItsField) {
  auto workload = Resolve({"spec.training.globalBatchSize=4097", "spec.training.microBatchSize=1"});
  const Profiles profiles = OnTopology(*workload);
  EXPECT_THAT(std::string(PlanWorkload(*workload, profiles, {}).status().message()),
              HasSubstr("spec.training.microBatchSize: batches of 4097 samples in micro-batches of 1 make 4097 of them"));
  workload = Resolve();
  workload->training.forward_ops = scheduler::kMaxOps + 1;
  EXPECT_THAT(std::string(PlanWorkload(*workload, profiles, {}).status().message()), HasSubstr("spec.model: it has 20001 ops"));
}

TEST(PlanWorkload, SlowDevicesTakeTheirTimeDividedByTheScale) {
  const auto workload = Resolve();
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  // Equal work: paris-1 has half the scale of paris-0. Stages differ by the few ops that do not divide by three.
  EXPECT_NEAR(plan.stages[1].compute_seconds / plan.stages[0].compute_seconds, 2, 0.4);
}

TEST(PlanWorkload, MemoryOfAStageIsWhatTheRuntimeAsksFor) {
  const auto workload = Resolve({"spec.strategy.stages=1"});
  const Profiles profiles = OnTopology(*workload);
  const plan::Plan plan = PlanOf(*workload, profiles);
  ASSERT_EQ(plan.stages.size(), 1);
  const auto program =
      runtime::BuildStageProgram(workload->training, StagesOfOps(plan, workload->training), 0, 1, runtime::Recompute::kNone);
  ASSERT_TRUE(program.ok());
  const auto memory = runtime::MemoryOf(*program, workload->training, plan.stages[0].in_flight, 2);
  int64_t workspace = 0;
  for (const auto& [signature, op] : profiles.devices[0].ops) workspace = std::max(workspace, op.workspace_bytes);
  EXPECT_EQ(plan.stages[0].memory_bytes, static_cast<int64_t>(memory.total()) + workspace + ProcessBytes(1));
}

// Of two replicas each has the chunks of both directions in its memory, at worst; on a GPU its host has them.
TEST(PlanWorkload, ReplicaMemoryIncludesChunksInFlight) {
  const auto workload = Resolve({"spec.strategy={replicas: 2, stages: 1}"}), alone = Resolve({"spec.strategy={stages: 1}"});
  Profiles profiles = OnTopology(*workload);
  const plan::Plan two = PlanOf(*workload, profiles), one = PlanOf(*alone, profiles);
  ASSERT_EQ(two.stages.size(), 1);
  ASSERT_EQ(two.stages[0].in_flight, one.stages[0].in_flight);
  const int64_t chunks = scheduler::replicas::BytesInFlight({{0, 1}, two.stages[0].sync_bytes}, 0);
  EXPECT_GT(chunks, two.stages[0].sync_bytes);
  EXPECT_EQ(two.stages[0].memory_bytes, one.stages[0].memory_bytes + chunks);

  // Room for one pipeline's stage, and not for the chunks of two beside it.
  for (wire::DeviceProfile& device : profiles.devices) device.memory_bytes = (one.stages[0].memory_bytes + chunks / 2) * 20 / 19;
  PlanOf(*alone, profiles);
  const auto refused = PlanWorkload(*workload, profiles, {});
  ASSERT_TRUE(refused.ok()) << refused.status();
  ASSERT_TRUE(std::holds_alternative<plan::PlanError>(*refused));
  EXPECT_EQ(std::get<plan::PlanError>(*refused).reason, "InsufficientMemory");
  for (wire::DeviceProfile& device : profiles.devices) device.backend = "cuda";
  EXPECT_LT(PlanOf(*workload, profiles).stages[0].memory_bytes, one.stages[0].memory_bytes);
}

// What two replicas' chunks lack in memory, one pipeline does not: it is the answer where the planner decides.
TEST(PlanWorkload, OnePipelineFitsWhereChunksOfReplicasDoNot) {
  constexpr char kTwins[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: twins}
spec:
  sites:
  - name: paris
    devices: [{name: paris-0, computeScale: 0.5, memory: 1Gi}, {name: paris-1, computeScale: 0.5, memory: 1Gi}]
    internal: {bandwidth: 1Gbit, latency: 1ms}
)";
  const auto workload = Resolve({"spec.strategy={replicas: auto, stages: 1}"}), alone = Resolve({"spec.strategy={stages: 1}"});
  Profiles profiles = OnTopology(*workload, kTwins);
  const plan::Plan two = PlanOf(*workload, profiles), one = PlanOf(*alone, profiles);
  ASSERT_EQ(two.replicas, 2);
  const int64_t chunks = two.stages[0].memory_bytes - one.stages[0].memory_bytes;
  ASSERT_GT(chunks, 0);
  const auto with_room = [&](int64_t bytes) {
    for (wire::DeviceProfile& device : profiles.devices) device.memory_bytes = bytes * 20 / 19 + 20;
    return PlanOf(*workload, profiles, {.explain = true});
  };
  for (const int64_t room : {one.stages[0].memory_bytes, one.stages[0].memory_bytes + chunks / 2, two.stages[0].memory_bytes - 100}) {
    const plan::Plan plan = with_room(room);
    ASSERT_EQ(plan.stages.size(), 1) << room;
    EXPECT_EQ(plan.replicas, 1);
    EXPECT_EQ(plan.stages[0].memory_bytes, one.stages[0].memory_bytes);
    EXPECT_EQ(plan.predicted_step_seconds, one.predicted_step_seconds);
    EXPECT_LE(plan.lower_bound_seconds, two.predicted_step_seconds) << "of all plans that were allowed";
    EXPECT_THAT(plan.explain, Contains(HasSubstr("no plan with several pipelines that fits the memory of its devices was found")));
  }
  EXPECT_EQ(with_room(two.stages[0].memory_bytes).replicas, 2);
}

// Messages lie on a GPU's host; on the GPU there is what compresses them.
TEST(PlanWorkload, MemoryOfAGpuHasItsCodecsAndNotTheHostsMessages) {
  const auto workload = Resolve({"spec.strategy.stages=2", "spec.compression={policy: uniform, codec: topk, ratio: 10}"});
  Profiles profiles = OnTopology(*workload);
  const plan::Plan on_cpu = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  for (wire::DeviceProfile& device : profiles.devices) device.backend = "cuda";
  const plan::Plan on_gpu = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  ASSERT_EQ(on_gpu.stages.size(), 2);
  ASSERT_EQ(on_gpu.links.size(), on_cpu.links.size());
  for (size_t s = 0; s < 2; ++s) {
    const int stage = static_cast<int>(s);
    const auto program =
        runtime::BuildStageProgram(workload->training, StagesOfOps(on_gpu, workload->training), stage, 2, runtime::Recompute::kNone);
    ASSERT_TRUE(program.ok());
    const auto tensors = runtime::MemoryOf(*program, workload->training, on_gpu.stages[s].in_flight, 2);
    const int64_t beside = on_gpu.stages[s].memory_bytes - static_cast<int64_t>(tensors.total());
    int64_t sent = 0, received = 0;
    for (const plan::Link& link : on_gpu.links) {
      int64_t& greatest = link.src_stage == stage ? sent : received;
      greatest = std::max(greatest, (link.bytes - link.tied_bytes) / on_gpu.micro_batches);
    }
    EXPECT_GT(std::min(sent, received), 0);
    EXPECT_GE(beside, 3 * (sent + received));
    EXPECT_LT(on_gpu.stages[s].memory_bytes, on_cpu.stages[s].memory_bytes) << "with the memory of a process of the host";
  }
}

TEST(PlanWorkload, TheSameSeedGivesTheSameBytes) {
  const auto workload = Resolve({"spec.compression={policy: adatopk, ratio: 50}"});
  const Profiles profiles = OnTopology(*workload);
  const PlanOptions options{.seed = 7, .explain = true};
  plan::Plan first = PlanOf(*workload, profiles, options), second = PlanOf(*workload, profiles, options);
  EXPECT_FALSE(first.explain.empty());
  first.search_cpu_seconds = second.search_cpu_seconds = 0;
  EXPECT_EQ(wire::PrintPlan(first), wire::PrintPlan(second));
}

TEST(PlanWorkload, WhatDoesNotFitIsRefusedWithTheShortfall) {
  const auto workload = Resolve();
  Profiles profiles = OnTopology(*workload);
  for (wire::DeviceProfile& device : profiles.devices) device.memory_bytes = 100'000;
  const auto answer = PlanWorkload(*workload, profiles, {});
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto& refusal = std::get<plan::PlanError>(*answer);
  EXPECT_EQ(refusal.shortfall.what, "memory_bytes");
  EXPECT_GT(refusal.shortfall.needed, refusal.shortfall.available);
  EXPECT_FALSE(refusal.message.empty());
}

// Between "nothing fits" and "everything fits" every plan given must respect the memory.
TEST(PlanWorkload, NoPlanExceedsTheMemoryOfItsDevices) {
  const auto workload = Resolve();
  Profiles profiles = OnTopology(*workload);
  int plans = 0, refused = 0;
  for (int64_t tensors = 200'000; tensors < 30'000'000; tensors *= 2) {
    const int64_t memory = tensors + ProcessBytes(1);
    for (wire::DeviceProfile& device : profiles.devices) device.memory_bytes = memory;
    const auto answer = PlanWorkload(*workload, profiles, {});
    ASSERT_TRUE(answer.ok()) << answer.status();
    const auto* plan = std::get_if<plan::Plan>(&*answer);
    refused += plan == nullptr;
    if (plan == nullptr) continue;
    ++plans;
    for (const plan::Stage& stage : plan->stages) {
      EXPECT_LE(static_cast<double>(stage.memory_bytes), static_cast<double>(memory) * 0.95) << memory;
    }
  }
  EXPECT_GT(plans, 2);
  EXPECT_GT(refused, 0);
}

// What a search thinks that stages need is less than what they do need where memory is as tight as this, and it may correct itself away
// from what fits.
TEST(PlanWorkload, AJobThatASimplePlannerPlacesIsNotRefused) {
  const auto workload = Resolve({"spec.model.config.nLayer=1", "spec.model.config.nEmbd=128", "spec.training.globalBatchSize=8",
                                 "spec.training.microBatchSize=1", "spec.strategy.stages=2"});
  Profiles profiles = OnTopology(*workload);
  const auto plan_of = [&](const std::string& strategy) -> std::optional<plan::Plan> {
    const auto answer = PlanWorkload(*workload, profiles, {.strategy = strategy, .explain = true});
    EXPECT_TRUE(answer.ok()) << answer.status();
    const auto* plan = answer.ok() ? std::get_if<plan::Plan>(&*answer) : nullptr;
    return plan == nullptr ? std::nullopt : std::optional(*plan);
  };
  int rescued = 0;
  for (int64_t memory = int64_t{13} << 20; memory <= int64_t{18} << 20; memory += int64_t{1} << 18) {
    for (size_t d = 0; d < profiles.devices.size(); ++d) profiles.devices[d].memory_bytes = memory;
    for (const char* simple : {"equal-ops", "equal-compute", "dt-fm"}) {
      const auto theirs = plan_of(simple);
      if (!theirs.has_value()) continue;
      for (const char* search : {"op-fence", "exact"}) {
        const auto own = plan_of(search);
        ASSERT_TRUE(own.has_value()) << search << " refuses what " << simple << " places in " << memory;
        EXPECT_EQ(own->strategy, search);
        rescued += std::any_of(own->explain.begin(), own->explain.end(),
                               [](const std::string& line) { return line.find("found none fitted the memory") != std::string::npos; });
      }
    }
  }
  EXPECT_GT(rescued, 0) << "this test would say nothing";
}

TEST(PlanWorkload, ShortMemoryMakesAutoRecompute) {
  const auto planned = [](const std::string& recompute, int64_t memory) {
    // GPipe keeps the activations of every micro-batch.
    const auto workload =
        Resolve({"spec.training.recompute=" + recompute, "spec.strategy.pipelineSchedule=gpipe", "spec.strategy.stages=1"});
    Profiles profiles = OnTopology(*workload);
    for (wire::DeviceProfile& device : profiles.devices) device.memory_bytes = memory;
    return PlanOf(*workload, profiles);
  };
  const int64_t plenty = int64_t{1} << 30;
  const int64_t keeping = planned("none", plenty).stages.at(0).memory_bytes, sparing = planned("full", plenty).stages.at(0).memory_bytes;
  ASSERT_LT(sparing, keeping * 9 / 10);
  EXPECT_EQ(planned("auto", plenty).recompute, "none");
  const plan::Plan plan = planned("auto", (keeping + sparing) / 2 * 100 / 95);
  EXPECT_EQ(plan.recompute, "full");
  EXPECT_EQ(plan.stages.at(0).memory_bytes, sparing);
}

TEST(PlanWorkload, ExcludedAndSmallDevicesGetNoStage) {
  const auto workload = Resolve({"spec.strategy.exclude=[paris-1]", "spec.placement.minMemory=512Mi"});
  Profiles profiles = OnTopology(*workload);
  profiles.devices[2].memory_bytes = 256 << 20;
  EXPECT_THAT(Devices(PlanOf(*workload, profiles, {.strategy = "equal-ops"})), ElementsAre("paris-0"));
}

TEST(PlanWorkload, UnmarkedSparesAreHeldBack) {
  const auto workload = Resolve({"spec.executors.spares=2"});  // tokyo-1 is one, another must stay free
  EXPECT_LE(PlanOf(*workload, OnTopology(*workload), {.strategy = "op-fence"}).stages.size(), 2u);
}

TEST(PlanWorkload, NoMoreExecutorsThanTheJobWants) {
  for (const char* bound : {"spec.executors.replicas=2", "spec.executors.max=2"}) {
    const auto workload = Resolve({bound});
    EXPECT_EQ(PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"}).stages.size(), 2) << bound;
  }
}

TEST(PlanWorkload, AJobThatWasMeasuredSaysSo) {
  const auto workload = Resolve();
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload), {.explain = true});
  EXPECT_EQ(plan.fitted_share, 0);
  EXPECT_THAT(plan.explain, Contains(HasSubstr("every op of the plan was measured")));
}

TEST(PlanWorkload, AProfileOfOneJobPlansAnother) {
  const auto measured = Resolve();
  const Profiles profiles = OnTopology(*measured);
  const auto other = Resolve({"spec.model.config.nEmbd=64", "spec.training.sequenceLength=8"});
  const plan::Plan plan = PlanOf(*other, profiles, {.explain = true});
  EXPECT_GT(plan.fitted_share, 0.9);
  EXPECT_LE(plan.fitted_share, 1);
  EXPECT_GT(plan.fitted_relative_error, 0);
  EXPECT_THAT(plan.explain, Contains(AllOf(HasSubstr("regression of op classes"), HasSubstr("matmul +-"), HasSubstr("may be off by"))));
  EXPECT_GT(plan.predicted_step_seconds, 0);
}

TEST(PlanWorkload, RatesAloneAreEnough) {
  const auto workload = Resolve();
  Profiles profiles = OnTopology(*workload);
  for (wire::DeviceProfile& device : profiles.devices) {
    device.ops.clear();
    device.rates = {{"matmul", {.seconds_per_flop = 1e-9, .relative_error = 0.25, .samples = 9}}};
  }
  const plan::Plan plan = PlanOf(*workload, profiles, {.explain = true});
  EXPECT_NEAR(plan.fitted_share, 1, 1e-9);
  EXPECT_GT(plan.fitted_relative_error, 0.25) << "the other classes are guesses";
  EXPECT_THAT(plan.explain, Contains(HasSubstr("attention guessed from other classes")));
  for (wire::DeviceProfile& device : profiles.devices) device.rates.clear();
  EXPECT_THAT(std::string(PlanWorkload(*workload, profiles, {}).status().message()), HasSubstr("'paris-0' has no op times"));
}

TEST(PlanWorkload, TheFirstStageReadsTheData) {
  const auto workload = Resolve();
  Profiles profiles = OnTopology(*workload);
  const plan::Plan without = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  for (wire::DeviceProfile& device : profiles.devices) device.data_seconds_per_byte = {{"tokens", 1e-5}, {"shapes", 1}};
  const plan::Plan with = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  const double bytes_a_step = 2 * 4 * 16 * 16;  // tokens and targets, i32, 16 samples of 16
  EXPECT_NEAR(with.stages[0].forward_seconds - without.stages[0].forward_seconds, bytes_a_step * 1e-5 / 0.5, 1e-9);
  EXPECT_EQ(with.stages[1].forward_seconds, without.stages[1].forward_seconds);
}

TEST(PlanWorkload, UnknownPlannerIsAnError) {
  const auto workload = Resolve();
  const auto answer = PlanWorkload(*workload, OnTopology(*workload), {.strategy = "guess"});
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("op-fence"));
}

}  // namespace
}  // namespace fusionllm::planning
