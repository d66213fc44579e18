#include "lib/scheduler/planner.h"
#include "absl/strings/match.h"

#include <functional>
#include <limits>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

using testing::AddDevice;
using ::testing::AllOf;
using testing::Chain;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LinkSites;
using testing::RandomRequest;

PlanOutcome Outcome(absl::string_view planner, const PlanRequest& request) {
  const absl::StatusOr<PlanOutcome> outcome = MakePlan(planner, request);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *outcome : PlanOutcome(PlanError{"Error", std::string(outcome.status().message()), {}});
}

PlannedPipeline PlanOrDie(absl::string_view planner, const PlanRequest& request) {
  const PlanOutcome outcome = Outcome(planner, request);
  if (const auto* refusal = std::get_if<PlanError>(&outcome)) {
    ADD_FAILURE() << planner << " refused: " << refusal->reason << ": " << refusal->message;
    return {};
  }
  return std::get<PlannedPipeline>(outcome);
}

PlanError RefusalOrDie(absl::string_view planner, const PlanRequest& request) {
  const PlanOutcome outcome = Outcome(planner, request);
  EXPECT_TRUE(std::holds_alternative<PlanError>(outcome)) << planner << " made a plan";
  return std::holds_alternative<PlanError>(outcome) ? std::get<PlanError>(outcome) : PlanError{};
}

// Two sites of three, 20 Mbit/s and 40 ms between them; the second site has a device five times slower.
PlanRequest TwoSites(int micro_batches) {
  PlanRequest request = Chain({.ops = 24, .op_s = 0.01, .cut_bytes = 400'000}, micro_batches);
  for (double scale : {1.0, 1.0, 2.0}) AddDevice(request, "paris", scale);
  for (double scale : {1.0, 1.0, 10.0}) AddDevice(request, "tokyo", scale);
  LinkSites(request, 125e6, 1e-3, 2.5e6, 0.04);
  return request;
}

void ExpectSound(const PlanRequest& request, const PlannedPipeline& plan) {
  std::vector<int> stage_of(request.ops.size(), -1);
  std::vector<char> used(request.devices.size(), 0);
  for (const PlannedStage& stage : plan.stages) {
    ASSERT_EQ(stage.devices.size(), 1u);
    EXPECT_FALSE(used[stage.devices[0]]) << "device " << stage.device_names[0] << " runs two stages";
    used[stage.devices[0]] = 1;
    EXPECT_LE(stage.memory_bytes, request.devices[stage.devices[0]].memory_bytes);
    EXPECT_GE(stage.in_flight, 1);
    EXPECT_LE(stage.in_flight, request.micro_batches);
    for (int op : stage.ops) {
      EXPECT_EQ(stage_of[op], -1) << "op " << op << " has two stages";
      stage_of[op] = stage.index;
    }
  }
  EXPECT_THAT(stage_of, ::testing::Each(::testing::Ge(0)));
  for (const ValueNode& value : request.values) {
    for (int consumer : value.consumers) EXPECT_LE(stage_of[value.producer], stage_of[consumer]) << "the graph over stages has a cycle";
  }
  EXPECT_GE(plan.gap, 0);
  EXPECT_GE(plan.predicted_step_s, plan.lower_bound_s);
}

TEST(PlannerTest, EqualOpsGivesEveryExecutorInDeclaredOrderTheSameNumberOfOps) {
  for (int ops : {6, 7, 24, 29}) {
    PlanRequest request = TwoSites(8);
    const std::vector<Device> devices = request.devices;
    const std::vector<Link> links = request.links;
    const std::vector<SharedResource> resources = request.resources;
    request = Chain({.ops = ops, .op_s = 0.01}, 8);
    request.devices = devices;
    request.links = links;
    request.resources = resources;
    const PlannedPipeline plan = PlanOrDie("equal-ops", request);
    ASSERT_EQ(plan.stages.size(), 6u);
    size_t least = 1000, most = 0;
    for (const PlannedStage& stage : plan.stages) {
      EXPECT_EQ(stage.devices[0], stage.index);
      const size_t counted = stage.ops.size() - (stage.index == 0 ? 2 : 0);
      least = std::min(least, counted);
      most = std::max(most, counted);
    }
    EXPECT_LE(most - least, 1u) << ops << " ops";
  }
}

TEST(PlannerTest, EqualComputeBalancesFlopsNotOps) {
  PlanRequest request = Chain({.ops = 8, .op_s = 0.01}, 4);
  request.ops[2].flops *= 7;  // as much as the seven others
  AddDevice(request, "lab", 1);
  AddDevice(request, "lab", 1);
  LinkSites(request, 1e9, 0, 1e9, 0);
  const PlannedPipeline plan = PlanOrDie("equal-compute", request);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_THAT(plan.stages[0].op_names, ElementsAre("tokens", "labels", "op0"));
}

TEST(PlannerTest, OpFenceBeatsTheBaselinesOnTwoSitesAndCrossesTheSlowLinkOnce) {
  const PlanRequest request = TwoSites(16);
  const PlannedPipeline fence = PlanOrDie("op-fence", request);
  ExpectSound(request, fence);
  for (absl::string_view rival : {"equal-ops", "equal-compute"})
    EXPECT_LT(fence.predicted_step_s, 0.5 * PlanOrDie(rival, request).predicted_step_s);
  int crossings = 0;
  for (size_t s = 1; s < fence.stages.size(); ++s) {
    crossings += request.devices[fence.stages[s].devices[0]].site != request.devices[fence.stages[s - 1].devices[0]].site;
  }
  EXPECT_LE(crossings, 1);
  EXPECT_EQ(fence.explain.size(), fence.stages.size() + fence.links.size() + fence.tied.size() + fence.left_out.size() + 1)
      << "one sentence for each, and one for the bound";
}

TEST(PlannerTest, ADeviceThatWouldSlowTheJobIsASpare) {
  PlanRequest request = TwoSites(16);
  request.devices[5].time_scale = 1000;
  EXPECT_THAT(PlanOrDie("op-fence", request).left_out, Contains("tokyo-2"));
  request.use_all_devices = true;
  const PlannedPipeline all = PlanOrDie("op-fence", request);
  EXPECT_THAT(all.left_out, IsEmpty());
  EXPECT_EQ(all.stages.size(), 6u);
}

TEST(PlannerTest, OpFenceMatchesTheOracleWithinOnePercentOnSmallInstances) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const PlanRequest request = RandomRequest(seed, {.max_ops = 8, .max_devices = 4});
    const PlanOutcome exact = Outcome("exact", request), fence = Outcome("op-fence", request);
    ASSERT_EQ(std::holds_alternative<PlannedPipeline>(exact), std::holds_alternative<PlannedPipeline>(fence));
    if (!std::holds_alternative<PlannedPipeline>(exact)) continue;
    ++compared;
    EXPECT_LE(std::get<PlannedPipeline>(fence).predicted_step_s, 1.01 * std::get<PlannedPipeline>(exact).predicted_step_s);
    EXPECT_GE(std::get<PlannedPipeline>(fence).predicted_step_s, std::get<PlannedPipeline>(exact).predicted_step_s * (1 - 1e-9));
    EXPECT_EQ(std::get<PlannedPipeline>(exact).gap, 0);
  }
  EXPECT_GE(compared, 80);
}

TEST(PlannerTest, EveryPlanIsSoundOnRandomJobs) {
  int plans = 0;
  for (uint64_t seed = 100; seed < 200; ++seed) {
    PlanRequest request = RandomRequest(seed, {.max_ops = 40, .max_devices = 7, .max_micro_batches = 16});
    request.search_budget = 1'000;
    for (absl::string_view planner : {"op-fence", "equal-ops", "equal-compute"}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << planner);
      const PlanOutcome outcome = Outcome(planner, request);
      if (!std::holds_alternative<PlannedPipeline>(outcome)) continue;
      ++plans;
      ExpectSound(request, std::get<PlannedPipeline>(outcome));
    }
  }
  EXPECT_GE(plans, 100);
}

TEST(PlannerTest, TheSameRequestGivesTheSamePlan) {
  for (uint64_t seed : {7, 8, 9}) {
    const PlanRequest request = RandomRequest(seed, {.max_ops = 30, .max_devices = 6, .tight_memory = false});
    EXPECT_EQ(PlanOrDie("op-fence", request), PlanOrDie("op-fence", request)) << "seed " << seed;
  }
}

TEST(PlannerTest, ExactlyTheStagesWanted) {
  for (int stages : {1, 2, 4, 6}) {
    PlanRequest request = TwoSites(8);
    request.stages = stages;
    for (absl::string_view planner : {"op-fence", "equal-ops", "equal-compute"}) {
      EXPECT_EQ(PlanOrDie(planner, request).stages.size(), static_cast<size_t>(stages)) << planner;
    }
  }
}

TEST(PlannerTest, PinsAndExclusionsAreHonoured) {
  PlanRequest request = TwoSites(8);
  request.pins = {{"op0", "tokyo-2"}, {"loss", "paris-0"}};
  request.exclude = {"paris-1"};
  const PlannedPipeline plan = PlanOrDie("op-fence", request);
  ExpectSound(request, plan);
  EXPECT_EQ(plan.stages.front().device_names[0], "tokyo-2");
  EXPECT_EQ(plan.stages.back().device_names[0], "paris-0");
  for (const PlannedStage& stage : plan.stages) EXPECT_NE(stage.device_names[0], "paris-1");
}

TEST(PlannerTest, TheDeviceWithTheDataRunsTheFirstStage) {
  for (const char* device : {"paris-1", "tokyo-2"}) {
    PlanRequest request = TwoSites(8);
    request.first_device = device;
    const PlannedPipeline plan = PlanOrDie("op-fence", request);
    ExpectSound(request, plan);
    EXPECT_EQ(plan.stages.front().device_names[0], device);
  }
  PlanRequest request = TwoSites(8);
  request.first_device = "tokyo-2";
  EXPECT_EQ(RefusalOrDie("equal-ops", request).reason, "PinConflict");
  request.exclude = {"tokyo-2"};
  EXPECT_EQ(RefusalOrDie("op-fence", request).reason, "UnknownDevice");
}

TEST(PlannerTest, WhoIsNotThereCanBeExcluded) {
  PlanRequest request = TwoSites(8);
  const PlannedPipeline plan = PlanOrDie("op-fence", request);
  request.exclude = {"berlin-0"};  // was lost, say
  EXPECT_EQ(PlanOrDie("op-fence", request).predicted_step_s, plan.predicted_step_s);
}

TEST(PlannerTest, RecomputationTradesTimeForMemory) {
  PlanRequest request = TwoSites(8);
  const PlannedPipeline kept = PlanOrDie("equal-ops", request);
  request.recompute = true;
  const PlannedPipeline again = PlanOrDie("equal-ops", request);
  EXPECT_GT(again.predicted_step_s, kept.predicted_step_s);
  EXPECT_LT(again.stages[1].memory_bytes, kept.stages[1].memory_bytes);
  EXPECT_DOUBLE_EQ(again.stages[1].backward_s, kept.stages[1].backward_s + kept.stages[1].forward_s);
}

TEST(PlannerTest, SharedParametersInTwoStagesAreExchangedAndCost) {
  PlanRequest request = TwoSites(8);
  request.stages = 2;
  const PlannedPipeline apart = PlanOrDie("equal-ops", request);
  request.tied = {{.name = "wte", .ops = {2, 25}, .bytes = 100'000'000}};
  const PlannedPipeline tied = PlanOrDie("equal-ops", request);
  ASSERT_EQ(tied.tied.size(), 1u);
  EXPECT_THAT(tied.tied[0].stages, ElementsAre(0, 1));
  EXPECT_GT(tied.predicted_step_s, apart.predicted_step_s + 0.5) << "100 MB at 125 MB/s";
  request.tied[0].bytes = 10'000'000;
  const double less_s = PlanOrDie("equal-ops", request).predicted_step_s;
  EXPECT_GE(less_s, apart.predicted_step_s) << "80 ms may hide behind the first forward of the next step";
  EXPECT_LT(less_s, apart.predicted_step_s + 0.1);
  request.stages = 1;
  EXPECT_THAT(PlanOrDie("equal-ops", request).tied, IsEmpty());
}

TEST(PlannerTest, CompressesOnlyTheLinksThatWouldBeTheBottleneck) {
  PlanRequest request = TwoSites(16);
  const CodecLevelPolicy ladder({{"fp32", 1, 1, 0}, {"int8", 4, 4, 0.001}, {"topk", 30, 30, 0.03}});
  const PlannedPipeline exact = PlanOrDie("op-fence", request);
  request.codec_policy = &ladder;
  const PlannedPipeline squeezed = PlanOrDie("op-fence", request);
  EXPECT_LT(squeezed.predicted_step_s, exact.predicted_step_s);
  bool lossy = false;
  for (const PlannedLink& link : squeezed.links) {
    const bool inside = request.devices[squeezed.stages[link.src_stage].devices[0]].site ==
                        request.devices[squeezed.stages[link.dst_stage].devices[0]].site;
    EXPECT_TRUE(!inside || link.codec == "fp32") << link.codec;
    lossy |= link.ratio > 1;
  }
  EXPECT_TRUE(lossy);
}

TEST(PlannerTest, RefusalsNameTheConstraint) {
  PlanRequest request = TwoSites(8);
  request.stages = 7;
  EXPECT_EQ(RefusalOrDie("op-fence", request).reason, "TooFewExecutors");
  request = TwoSites(8);
  request.exclude = {"paris-0", "paris-1", "paris-2", "tokyo-0", "tokyo-1", "tokyo-2"};
  EXPECT_EQ(RefusalOrDie("equal-ops", request).reason, "NoExecutors");
  request = TwoSites(8);
  request.pins = {{"op*", "berlin-0"}};
  EXPECT_EQ(RefusalOrDie("op-fence", request).reason, "UnknownDevice");
  request.pins = {{"block.*", "paris-0"}};
  EXPECT_EQ(RefusalOrDie("op-fence", request).reason, "PinMatchesNoOp");
  request.pins = {{"op0", "paris-0"}, {"op1", "paris-1"}, {"op2", "paris-0"}};
  EXPECT_EQ(RefusalOrDie("op-fence", request).reason, "PinConflict");
  PlanRequest small = Chain({.ops = 2}, 4);
  for (int d = 0; d < 3; ++d) AddDevice(small, "lab", 1);
  LinkSites(small, 1e9, 0, 1e9, 0);
  small.stages = 3;
  EXPECT_EQ(RefusalOrDie("op-fence", small).reason, "TooManyStages");
}

struct Asked {
  const char* sentence;
  std::function<void(PlanRequest&)> ask;
  const char* message;
};

// Each names what is in the way: pins, the place of the data, the number of stages or memory.
TEST(PlannerTest, APinConflictNamesItsCause) {
  const auto pins = [](std::vector<Pin> required_pins) { return [required_pins](PlanRequest& request) { request.pins = required_pins; }; };
  const auto data = [](const char* device, const std::function<void(PlanRequest&)>& more) {
    return [device, more](PlanRequest& request) {
      request.first_device = device;
      more(request);
    };
  };
  const auto stages = [](int count, const std::function<void(PlanRequest&)>& more) {
    return [count, more](PlanRequest& request) {
      request.stages = count;
      more(request);
    };
  };
  const auto small = [](int64_t bytes, const std::function<void(PlanRequest&)>& more) {
    return [bytes, more](PlanRequest& request) {
      request.devices[1].memory_bytes = bytes;
      more(request);
    };
  };
  const std::vector<Asked> cases = {
      {"two pins of one op", pins({{"op3", "paris-0"}, {"op*", "paris-1"}}),
       "op 'op3' is pinned to paris-0 by 'op3' and to paris-1 by 'op*'"},
      {"the data elsewhere than the pin of the first op", data("tokyo-0", pins({{"op0", "paris-1"}})),
       "op 'op0' is to run on tokyo-0, which has the training data (spec.data.clusters), and is pinned to paris-1 by 'op0'"},
      {"one device before and after another", pins({{"op0", "paris-0"}, {"op1", "paris-1"}, {"op2", "paris-0"}}),
       "ops pinned to paris-0 stand before and after op 'op1', which is pinned elsewhere: a device runs one stage of consecutive ops"},
      {"the reader of the data again later", data("paris-0", pins({{"op1", "paris-1"}, {"op2", "paris-0"}})),
       "paris-0 has the training data (spec.data.clusters), so it runs the first stage, and op 'op2' is pinned to it behind op 'op1', "
       "which is "
       "pinned elsewhere: a device runs one stage of consecutive ops"},
      {"more pinned devices than stages", stages(2, pins({{"op0", "paris-0"}, {"op8", "paris-1"}, {"op9", "tokyo-0"}})),
       "the pins (spec.strategy.pins) need 3 stages, on paris-0, paris-1, tokyo-0; spec.strategy.stages allows 2"},
      {"a stage for the data and one for a pin", stages(1, data("tokyo-0", pins({{"op9", "paris-1"}}))),
       "the pins (spec.strategy.pins) and the place of the training data (spec.data.clusters: tokyo-0 runs the first stage) need 2 stages, "
       "on "
       "tokyo-0, "
       "paris-1; spec.strategy.stages allows 1"},
      {"fewer executors than pinned devices",
       [](PlanRequest& request) {
         request.max_executors = 1;
         request.pins = {{"op0", "paris-0"}, {"op9", "paris-1"}};
       },
       "the pins (spec.strategy.pins) need 2 stages, on paris-0, paris-1; spec.executors (max, replicas, less spares) allows 1"},
      {"all on one device, in two stages", stages(2, pins({{"*", "paris-1"}})),
       "the pins (spec.strategy.pins) leave ops for at most 1 stage; spec.strategy.stages asks for 2"},
      {"too much on one device", small(6'000'000, pins({{"op1*", "paris-1"}})), "what paris-1 must hold needs "},
      {"who has the data is too small", small(500'000, data("paris-1", pins({}))),
       "it runs the first stage, for it has the training data (spec.data.clusters)"},
      {"who has the data is too small for what is pinned to it besides", small(6'000'000, data("paris-1", pins({{"op1*", "paris-1"}}))),
       "it runs the first stage, for it has the training data (spec.data.clusters), up to op 'op19', which is pinned to it "
       "(spec.strategy.pins)"},
      {"who has the data is too small, by the next op", small(500'000, data("paris-1", pins({{"op1", "paris-1"}}))),
       "it runs the first stage, for it has the training data (spec.data.clusters), up to op 'op1', which is pinned to it "
       "(spec.strategy.pins)"},
      {"who has the data is too small, whatever else is pinned to it", small(500'000, data("paris-1", pins({{"op0", "paris-1"}}))),
       "it runs the first stage, for it has the training data (spec.data.clusters)"},
      {"who has the data is too small for all of it", small(6'000'000, stages(1, data("paris-1", pins({})))),
       "the place of the training data (spec.data.clusters: paris-1 runs the first stage) there are stages on paris-1, and "
       "spec.strategy.stages "
       "allows 1 "
       "in all"},
  };
  for (const Asked& asked : cases) {
    PlanRequest request = TwoSites(8);
    asked.ask(request);
    for (const char* planner : {"op-fence", "exact"}) {
      const PlanError refusal = RefusalOrDie(planner, request);
      EXPECT_EQ(refusal.reason, "PinConflict") << asked.sentence;
      EXPECT_THAT(refusal.message, HasSubstr(asked.message)) << asked.sentence;
      EXPECT_EQ(absl::StrContains(refusal.message, "up to op"), absl::StrContains(asked.message, "up to op")) << refusal.message;
    }
  }
}

TEST(PlannerTest, PlannerNamesIgnoredConstraints) {
  PlanRequest request = TwoSites(8);
  request.first_device = "tokyo-2";
  EXPECT_THAT(RefusalOrDie("equal-ops", request).message, HasSubstr("tokyo-2 has the training data (spec.data.clusters)"));
  request.first_device.clear();
  request.pins = {{"op20", "paris-0"}};
  EXPECT_THAT(RefusalOrDie("equal-ops", request).message, HasSubstr("against a pin"));
}

TEST(PlannerTest, DtFmWalksTheCheapestPathWithEqualCuts) {
  // Declared by turns in two sites, so that the declared order crosses the slow link at every hop.
  PlanRequest request = Chain({.ops = 24, .op_s = 0.01, .cut_bytes = 400'000}, 8);
  for (int d = 0; d < 6; ++d) AddDevice(request, d % 2 == 0 ? "paris" : "tokyo", d == 5 ? 10.0 : 1.0);
  LinkSites(request, 125e6, 1e-3, 2.5e6, 0.04);
  const PlannedPipeline plan = PlanOrDie("dt-fm", request);
  ASSERT_EQ(plan.stages.size(), 6);
  int crossings = 0;
  for (size_t s = 1; s < plan.stages.size(); ++s) {
    crossings += request.devices[plan.stages[s - 1].devices[0]].site != request.devices[plan.stages[s].devices[0]].site;
    EXPECT_NEAR(static_cast<double>(plan.stages[s].ops.size()), 4, 1) << "speeds do not count";
  }
  EXPECT_EQ(crossings, 1);
  EXPECT_LT(plan.predicted_step_s, PlanOrDie("equal-ops", request).predicted_step_s);
  EXPECT_LT(PlanOrDie("op-fence", request).predicted_step_s, plan.predicted_step_s);
}

TEST(PlannerTest, RandomFollowsTheSeed) {
  PlanRequest request = TwoSites(8);
  const auto devices = [&](uint64_t seed) {
    request.seed = seed;
    std::vector<int> order;
    for (const PlannedStage& stage : PlanOrDie("random", request).stages) order.push_back(stage.devices[0]);
    return order;
  };
  EXPECT_EQ(devices(1), devices(1));
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 10; ++seed) orders.insert(devices(seed));
  EXPECT_GT(orders.size(), 7);
}

TEST(PlannerTest, MemoryRefusalsSayWhatIsNeededAndWhatThereIs) {
  PlanRequest request = TwoSites(8);
  request.ops[5].parameter_bytes = int64_t{40} << 30;
  const PlanError op = RefusalOrDie("op-fence", request);
  EXPECT_EQ(op.reason, "OpTooLarge");
  EXPECT_THAT(op.message, AllOf(HasSubstr("op3"), HasSubstr("GiB for it (of "),
                                HasSubstr(" GiB, less the 5% that stay free); give executors "), EndsWith("), or train a smaller model")));
  EXPECT_EQ(op.shortfall.what, "memory_bytes");
  EXPECT_GT(op.shortfall.needed, op.shortfall.available);
  request = TwoSites(8);
  for (OpNode& node : request.ops) node.parameter_bytes = int64_t{6} << 30;
  const PlanError whole = RefusalOrDie("op-fence", request);
  EXPECT_EQ(whole.reason, "InsufficientMemory");
  EXPECT_THAT(whole.message,
              AllOf(HasSubstr("GiB together for it (of "), EndsWith("), let more executors take part, or train a smaller model")));
  const PlanError stage = RefusalOrDie("equal-ops", request);
  EXPECT_THAT(stage.message,
              AllOf(HasSubstr("stage 0 needs"), HasSubstr("; give executors more memory (memory of a topology's devices; ")));
  request.memory_reserve_bytes = 1 << 20;
  EXPECT_THAT(
      RefusalOrDie("op-fence", request).message,
      HasSubstr(", less what each process takes before its first op, 1.0 MiB and the 5% that stay free); give executors more memory"));
}

TEST(PlannerTest, DevicesWithoutALinkCannotShareAJob) {
  PlanRequest request = TwoSites(8);
  request.links.clear();
  EXPECT_EQ(RefusalOrDie("equal-ops", request).reason, "DisconnectedDevices");
  EXPECT_EQ(PlanOrDie("op-fence", request).stages.size(), 1u);
  request.stages = 2;
  EXPECT_EQ(RefusalOrDie("op-fence", request).reason, "DisconnectedDevices");
}

TEST(PlannerTest, BadNumbersAreRefusedAtTheDoor) {
  const auto message = [](const PlanRequest& request) { return std::string(MakePlan("op-fence", request).status().message()); };
  PlanRequest request = TwoSites(8);
  request.links[3].bytes_per_s = 0;
  EXPECT_THAT(message(request), HasSubstr("link paris-0 -> tokyo-1: bandwidth 0"));
  request = TwoSites(8);
  request.links[0].latency_s = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message(request), HasSubstr("link paris-0 -> paris-1: latency"));
  request = TwoSites(8);
  request.ops[4].backward_s[0] = -1;
  EXPECT_THAT(message(request), HasSubstr("op op2: backward time -1"));
  request = TwoSites(8);
  request.values[2].consumers = {0};
  EXPECT_THAT(message(request), HasSubstr("topological order"));
  request = TwoSites(8);
  request.devices[1].time_scale = std::numeric_limits<double>::infinity();
  EXPECT_THAT(message(request), HasSubstr("device paris-1"));
  request = TwoSites(0);
  EXPECT_THAT(message(request), HasSubstr("micro_batches"));
}

// A search that heeds its caller asks nothing more than it takes to unwind; one that does not would ask for every candidate left.
TEST(PlannerTest, StoppedSearchesGiveNoPlanAndDoLittleMore) {
  constexpr int kMaxChecksAfterStop = 500;
  PlanRequest request = Chain({.ops = 60, .op_s = 0.002, .cut_bytes = 400'000}, 16);
  for (int d = 0; d < 12; ++d) AddDevice(request, "site" + std::to_string(d / 4), 1 + d % 3);
  LinkSites(request, 125e6, 1e-3, 2.5e6, 0.04);
  for (const char* planner : {"op-fence", "exact", "equal-ops", "equal-compute"}) {
    for (const int answers : {0, 10, 1'000, 20'000}) {
      int asked = 0;
      const auto outcome = MakePlan(planner, request, [&] { return ++asked > answers; });
      if (asked <= answers) continue;  // done before
      EXPECT_EQ(outcome.status().code(), absl::StatusCode::kCancelled) << planner << " after " << answers;
      EXPECT_LT(asked, answers + kMaxChecksAfterStop) << planner;
    }
  }
  int asked = 0;
  EXPECT_TRUE(MakePlan("op-fence", request, [&] { return ++asked < 0; }).ok());
  EXPECT_GT(asked, 20'000) << "too small a problem for this test";
}

TEST(PlannerTest, UnknownPlannersAreRefusedWithTheChoices) {
  EXPECT_THAT(std::string(CreatePlanner("magic").status().message()), HasSubstr("op-fence"));
}

}  // namespace
}  // namespace fusionllm::scheduler
