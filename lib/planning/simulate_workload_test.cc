#include "lib/planning/simulate_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "lib/job/parse.h"
#include "lib/planning/calibrate.h"
#include "lib/planning/plan_workload.h"
#include "lib/scheduler/planner.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::planning {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kThreeStageJob[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: test}
spec:
  model: {family: gpt2, preset: tiny, config: {nLayer: 4, nHead: 2, nEmbd: 32, vocabSize: 64, blockSize: 16}}
  data: {kind: tokens, path: [x.bin]}
  training: {steps: 5, globalBatchSize: 16, microBatchSize: 2, sequenceLength: 16}
  strategy: {stages: 3}
)";

constexpr char kTwoSiteTopology[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: two-sites}
spec:
  sites:
  - name: paris
    devices: [{name: paris-0, computeScale: 0.5, memory: 1Gi}, {name: paris-1, computeScale: 0.25, memory: 1Gi}]
    internal: {bandwidth: 1Gbit, latency: 1ms}
  - name: tokyo
    devices: [{name: tokyo-0, computeScale: 0.5, memory: 1Gi}, {name: tokyo-1, computeScale: 0.5, memory: 1Gi}]
    internal: {bandwidth: 1Gbit, latency: 1ms}
  links: [{from: paris, to: tokyo, bandwidth: 20Mbit, latency: 10ms, symmetric: true}]
)";

absl::StatusOr<std::unique_ptr<workload::Workload>> Source(const std::vector<std::string>& overrides) {
  auto job = job::ParseFusionJob(kThreeStageJob, "job.yaml", overrides);
  if (!job.ok()) return job.status();
  return workload::Resolve(*job, "/");
}

// Every op takes 1 ms, whatever it is, so that tests do not depend on the machine.
Hardware OnTwoSites() {
  static const wire::DeviceProfile* const machine = [] {
    const auto backend = *kernels::CreateBackend("ref", {});
    auto profile = Calibrate(**Source({}), *backend, {.seconds = 0, .min_passes = 1});
    for (auto& [signature, op] : profile->ops) op.seconds = 1e-3;
    profile->update_seconds_per_element = 1e-9;
    for (auto& [name, codec] : profile->codecs) codec = {1e-9, 1e-9};
    profile->name = "machine";
    profile->memory_bytes = 1 << 30;
    return new wire::DeviceProfile(*std::move(profile));
  }();
  return {.measured = {.devices = {*machine}},
          .topology = *job::ParseTopology(kTwoSiteTopology, "topology.yaml"),
          .machine_memory_bytes = int64_t{4} << 30};
}

wire::SimulationDocument Simulated(const SimulateOptions& options, const Hardware& hardware = OnTwoSites()) {
  const auto outcome = SimulateWorkload(Source, hardware, options);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  if (!outcome.ok() || !std::holds_alternative<wire::SimulationDocument>(outcome->answer)) {
    ADD_FAILURE() << (outcome.ok() ? wire::PrintSimulation(outcome->answer) : "");
    return {};
  }
  return std::get<wire::SimulationDocument>(outcome->answer);
}

std::string ErrorOf(const SimulateOptions& options) {
  return std::string(SimulateWorkload(Source, OnTwoSites(), options).status().message());
}

TEST(SimulateWorkload, TakesWhatThePlanPredictsBitForBit) {
  for (const char* strategy : {"op-fence", "equal-ops", "equal-compute", "dt-fm", "random"}) {
    SCOPED_TRACE(strategy);
    const SimulateOptions options{.plan = {.strategy = strategy, .seed = 3}};
    const wire::SimulationDocument simulation = Simulated(options);
    EXPECT_EQ(simulation.step.step_seconds, simulation.plan.predicted_step_seconds);
    const auto plan = PlanWorkload(**Source({}), *ProfilesOf(OnTwoSites(), job::Precision::kFp32), options.plan);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(simulation.step.step_seconds, std::get<plan::Plan>(*plan).predicted_step_seconds);
    ASSERT_EQ(simulation.step.stages.size(), simulation.plan.stages.size());
    for (size_t s = 0; s < simulation.step.stages.size(); ++s) {
      const wire::SimulatedStage& stage = simulation.step.stages[s];
      const plan::Stage& planned = simulation.plan.stages[s];
      EXPECT_EQ(stage.device, planned.devices[0]);
      EXPECT_NEAR(stage.forward_seconds, planned.forward_seconds, 1e-9);
      EXPECT_NEAR(stage.backward_seconds, planned.backward_seconds, 1e-9);
      EXPECT_NEAR(stage.codec_seconds, planned.codec_seconds, 1e-9);
      EXPECT_NEAR(stage.busy_ratio, planned.busy_ratio, 1e-9);
      EXPECT_LE(stage.peak_in_flight, planned.in_flight);
    }
    int64_t bytes = 0, planned_bytes = 0;
    for (const wire::SimulatedLink& link : simulation.step.links) bytes += link.norm ? 0 : link.bytes;
    for (const plan::Link& link : simulation.plan.links) planned_bytes += link.bytes;
    EXPECT_EQ(bytes, planned_bytes);
    EXPECT_THAT(simulation.step.bottleneck, HasSubstr("10% less time"));
    EXPECT_TRUE(simulation.step.runnable);
  }
}

// A wide vocabulary over a slow line: the head on one side, the embedding on the other.
TEST(SimulateWorkload, TiedGradientsThatLimitTheStepAreNamedWithARemedy) {
  const WorkloadSource wide = [](const std::vector<std::string>& overrides) {
    std::vector<std::string> all = {"spec.model.config.vocabSize=50000"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return Source(all);
  };
  Hardware hardware = OnTwoSites();
  for (job::Link& link : hardware.topology->spec.links) link.bandwidth.bits_per_s = 1'000'000;
  const auto outcome = SimulateWorkload(wide, hardware, {.plan = {.strategy = "equal-ops"}});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const auto& simulation = std::get<wire::SimulationDocument>(outcome->answer);
  EXPECT_THAT(simulation.step.bottleneck, AllOf(HasSubstr("limited by the tied gradients of transformer.wte.weight, 6.4 MB uncompressed, "),
                                                HasSubstr("spec.model.config.tieWeights: false")));
  EXPECT_EQ(simulation.step.bottlenecks[0].kind, "tied");
  EXPECT_EQ(simulation.plan.bottleneck, simulation.step.bottleneck) << "the plan says so, too";
  int tied = 0, norm = 0;
  for (const wire::SimulatedLink& link : simulation.step.links) {
    tied += link.tied;
    norm += link.norm;
  }
  EXPECT_EQ(tied, 2) << "each way";
  EXPECT_EQ(norm, 4) << "two stages report";
  EXPECT_GT(simulation.step.stages[0].end_seconds, 40) << "51 s of gradients, less what the last backwards hide";
}

TEST(SimulateWorkload, DocumentsAndTracesParse) {
  const auto outcome = SimulateWorkload(Source, OnTwoSites(), {.what_if = {"device:tokyo-0.straggler=2"}, .timeline = true});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const json document = json::parse(wire::PrintSimulation(outcome->answer));
  for (const char* key : {"step_seconds", "predicted_step_seconds", "schedule", "runnable", "stages", "links", "resources", "limits",
                          "bottleneck", "plan", "what_if"}) {
    EXPECT_TRUE(document.contains(key)) << key;
  }
  for (const json& stage : document["stages"]) {
    double sum = 0;
    for (const char* part : {"forward", "backward", "weights", "codec", "update", "idle"})
      sum += stage[std::string(part) + "_seconds"].get<double>();
    EXPECT_NEAR(sum, document["step_seconds"].get<double>(), 1e-9);
  }
  EXPECT_THAT(wire::ParsePlan(document["plan"].dump()).status().message(), "");
  const json trace = json::parse(wire::PrintTrace(outcome->timeline));
  int named = 0, spans = 0;
  for (const json& event : trace["traceEvents"]) {
    named += event["ph"] == "M";
    spans += event["ph"] == "X";
    if (event["ph"] == "X") {
      EXPECT_GE(event["dur"].get<double>(), 0);
    }
  }
  EXPECT_EQ(named, 2 + static_cast<int>(outcome->timeline.rows.size()));
  EXPECT_EQ(spans, static_cast<int>(outcome->timeline.boxes.size()));
  // Three stages with two passes of eight micro-batches and an update.
  EXPECT_GE(spans, 3 * (2 * 8 + 1));
}

TEST(SimulateWorkload, WhatIfShowsSamePlanAndReplannedOne) {
  const wire::SimulationDocument simulation = Simulated(
      {.plan = {.strategy = "equal-ops"},
       .what_if = {"link:paris<->tokyo.bandwidth=1Mbit", "link:paris->tokyo.bandwidth=20Mbit", "device:paris-1.straggler=4",
                   "link:paris<->tokyo.latency=200ms,site:tokyo.latency=5ms", "uplink:paris.egress=2Mbit", "device:tokyo-1.memory=512Mi"}});
  ASSERT_EQ(simulation.what_if.size(), 6);
  const double before = simulation.step.step_seconds;
  for (const wire::WhatIfDocument& what_if : simulation.what_if) {
    SCOPED_TRACE(what_if.change);
    EXPECT_EQ(what_if.before_seconds, before);
    ASSERT_TRUE(what_if.same_plan.has_value()) << what_if.same_plan_reason;
    const bool changes_nothing = what_if.change == "link:paris->tokyo.bandwidth=20Mbit" || what_if.change == "device:tokyo-1.memory=512Mi";
    if (changes_nothing) {
      EXPECT_EQ(what_if.same_plan->step_seconds, before);
      EXPECT_EQ(std::get<wire::PlannedStep>(what_if.replanned).step.step_seconds, before);
    } else {
      EXPECT_GT(what_if.same_plan->step_seconds, before * 1.05);
    }
  }
  // One direction alone slows less than both.
  const wire::SimulationDocument one_way = Simulated({.plan = {.strategy = "equal-ops"}, .what_if = {"link:paris->tokyo.bandwidth=1Mbit"}});
  EXPECT_LT(one_way.what_if[0].same_plan->step_seconds, simulation.what_if[0].same_plan->step_seconds);
  EXPECT_GT(one_way.what_if[0].same_plan->step_seconds, before);
}

TEST(SimulateWorkload, OtherStagesOrRecomputationHaveNoSamePlan) {
  const wire::SimulationDocument simulation =
      Simulated({.what_if = {"spec.training.recompute=full", "spec.strategy.stages=2", "spec.training.steps=9"}});
  ASSERT_EQ(simulation.what_if.size(), 3);
  for (const size_t i : {0, 1}) {
    EXPECT_FALSE(simulation.what_if[i].same_plan.has_value()) << simulation.what_if[i].change;
    EXPECT_THAT(simulation.what_if[i].same_plan_reason, HasSubstr("stages and recomputation are part of a plan"));
    EXPECT_TRUE(std::holds_alternative<wire::PlannedStep>(simulation.what_if[i].replanned));
  }
  EXPECT_TRUE(simulation.what_if[2].same_plan.has_value());
}

TEST(SimulateWorkload, ReplanningHelpsWhereADeviceLags) {
  const wire::SimulationDocument simulation = Simulated({.what_if = {"device:paris-0.computeScale=0.05", "device:paris-0=absent"}});
  ASSERT_EQ(simulation.what_if.size(), 2);
  const auto& lagging = simulation.what_if[0];
  ASSERT_TRUE(lagging.same_plan.has_value());
  EXPECT_GT(lagging.same_plan->step_seconds, 2 * simulation.step.step_seconds);
  EXPECT_LT(std::get<wire::PlannedStep>(lagging.replanned).step.step_seconds, lagging.same_plan->step_seconds / 1.5);
  const auto& lost = simulation.what_if[1];
  EXPECT_FALSE(lost.same_plan.has_value());
  EXPECT_THAT(lost.same_plan_reason, HasSubstr("runs on paris-0, which is absent"));
  for (const plan::Stage& stage : std::get<wire::PlannedStep>(lost.replanned).plan.stages) EXPECT_NE(stage.devices[0], "paris-0");
}

TEST(SimulateWorkload, AChangeThatLeavesNoPlanIsARefusalWithin) {
  const wire::SimulationDocument simulation = Simulated({.what_if = {"device:paris-0=absent,device:tokyo-0=absent"}});
  EXPECT_FALSE(std::get<plan::PlanError>(simulation.what_if[0].replanned).reason.empty());
}

TEST(SimulateWorkload, FieldsOfTheJobMayChange) {
  const wire::SimulationDocument simulation =
      Simulated({.plan = {.strategy = "equal-ops"},
                 .what_if = {"spec.training.microBatchSize=4", "spec.compression={policy: uniform, codec: fp16}", "schedule=gpipe"}});
  EXPECT_EQ(std::get<wire::PlannedStep>(simulation.what_if[0].replanned).step.micro_batches, 4);
  ASSERT_TRUE(simulation.what_if[0].same_plan.has_value()) << simulation.what_if[0].same_plan_reason;
  EXPECT_EQ(simulation.what_if[0].same_plan->micro_batches, 4);
  ASSERT_TRUE(simulation.what_if[1].same_plan.has_value()) << simulation.what_if[1].same_plan_reason;
  // Half the bytes, but for the heads of messages.
  EXPECT_NEAR(static_cast<double>(simulation.what_if[1].same_plan->links[0].bytes),
              0.5 * static_cast<double>(simulation.step.links[0].bytes), 0.01 * static_cast<double>(simulation.step.links[0].bytes));
  EXPECT_EQ(simulation.what_if[2].same_plan->schedule, "gpipe");
  EXPECT_GE(simulation.what_if[2].same_plan->step_seconds, simulation.step.step_seconds);
}

TEST(SimulateWorkload, FurtherSchedulesAreMarkedAsModels) {
  for (const char* name : {"1f1b-split", "interleaved:2"}) {
    SCOPED_TRACE(name);
    const wire::SimulationDocument simulation =
        Simulated({.plan = {.strategy = "equal-ops"}, .schedule = *ParseSchedule(name), .what_if = {"site:paris.bandwidth=2Gbit"}});
    EXPECT_FALSE(simulation.step.runnable);
    EXPECT_EQ(simulation.step.schedule, std::string(name).substr(0, std::string(name).find(':')));
    EXPECT_EQ(simulation.what_if[0].same_plan->schedule, simulation.step.schedule);
    if (simulation.step.schedule == "1f1b-split") {
      EXPECT_LE(simulation.step.step_seconds, simulation.plan.predicted_step_seconds);
      EXPECT_GT(simulation.step.stages[0].weights_seconds, 0);
    }
  }
  const ScheduleRequest one{.schedule = schedule::k1F1B, .variant = ScheduleVariant::kInterleaved, .virtual_stages = 1};
  EXPECT_EQ(SimulateWorkload(Source, OnTwoSites(), {.schedule = one}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ParseSchedule("interleaved:1").ok());
  EXPECT_FALSE(ParseSchedule("zigzag").ok());
}

TEST(SimulateWorkload, HalfDuplexTakesTurns) {
  const wire::SimulationDocument simulation =
      Simulated({.plan = {.strategy = "equal-ops"},
                 .what_if = {"link:paris<->tokyo.duplex=half", "link:paris<->tokyo.bandwidth=500kbit",
                             "link:paris<->tokyo.bandwidth=500kbit,link:paris<->tokyo.duplex=half"}});
  EXPECT_GE(simulation.what_if[0].same_plan->step_seconds, simulation.step.step_seconds);
  EXPECT_GT(simulation.what_if[2].same_plan->step_seconds, 1.2 * simulation.what_if[1].same_plan->step_seconds);
  EXPECT_THAT(simulation.what_if[2].same_plan->resources, Contains(::testing::Field(&wire::SimulatedResource::name, "link:paris<->tokyo")));
  EXPECT_THAT(ErrorOf({.what_if = {"link:paris->tokyo.bandwidth=1Mbit,link:paris<->tokyo.duplex=half"}}), HasSubstr("same bandwidth"));
}

// One slow link carries messages of one pair, and labels or tied gradients of another: it is reported once, and the runner-up is something
// else.
TEST(SimulateWorkload, TheRunnerUpIsAnotherPlaceThanTheLimit) {
  Hardware hardware = OnTwoSites();
  job::Link back = hardware.topology->spec.links.at(0);
  std::swap(back.from, back.to);
  back.symmetric = false;
  hardware.topology->spec.links.at(0).symmetric = false;
  hardware.topology->spec.links.at(0).bandwidth.bits_per_s = 1'000'000;
  hardware.topology->spec.links.push_back(back);
  const wire::SimulationDocument simulation = Simulated({.plan = {.strategy = "equal-ops"}}, hardware);
  ASSERT_GE(simulation.step.bottlenecks.size(), 3);
  const std::string first = simulation.step.bottlenecks[0].name + simulation.step.bottlenecks[1].name;
  const bool there = first.find("paris->tokyo") != std::string::npos;
  const std::string line = there ? "link:paris->tokyo" : "link:tokyo->paris", pair = there ? "paris-1 -> tokyo-0" : "tokyo-0 -> paris-1";
  EXPECT_THAT(first, AllOf(HasSubstr(line), HasSubstr(pair))) << "both are that line";
  const std::string& sentence = simulation.step.bottleneck;
  const size_t next = sentence.find("Next is");
  ASSERT_NE(next, std::string::npos) << sentence;
  EXPECT_TRUE(sentence.find(line) < next || sentence.find(pair) < next) << sentence;
  EXPECT_EQ(sentence.find(line, next), std::string::npos) << sentence;
  EXPECT_EQ(sentence.find(pair, next), std::string::npos) << sentence;
}

TEST(SimulateWorkload, NoiseIsShownAndFollowsItsSeed) {
  SimulateOptions options{.plan = {.strategy = "equal-ops"}, .jitter = 0.2, .stragglers = {"tokyo-0:3@0.2"}, .noise_seed = 1, .steps = 200};
  const wire::SimulationDocument first = Simulated(options), again = Simulated(options);
  ASSERT_TRUE(first.step.spread.has_value());
  EXPECT_EQ(first.step.spread->steps, 200);
  EXPECT_GT(first.step.spread->p95_seconds, 1.3 * first.step.spread->p50_seconds);
  EXPECT_EQ(first.step.step_seconds, again.step.step_seconds);
  EXPECT_EQ(first.step.spread->mean_seconds, again.step.spread->mean_seconds);
  EXPECT_NE(first.step.step_seconds, first.plan.predicted_step_seconds);
  options.noise_seed = 2;
  EXPECT_NE(Simulated(options).step.spread->mean_seconds, first.step.spread->mean_seconds);
}

TEST(SimulateWorkload, MistakesNameTheKeyAndWhatThereIs) {
  const auto what_if = [](const std::string& text) { return ErrorOf({.what_if = {text}}); };
  EXPECT_THAT(what_if("link:paris->rome.bandwidth=1Mbit"), AllOf(HasSubstr("no link paris->rome"), HasSubstr("tokyo->paris")));
  EXPECT_THAT(what_if("link:paris-"), HasSubstr("quote it"));
  EXPECT_THAT(what_if("link:paris.bandwidth=1Mbit"), HasSubstr("FROM->TO"));
  EXPECT_THAT(what_if("link:paris->tokyo.speed=1Mbit"), AllOf(HasSubstr("'speed'"), HasSubstr("bandwidth, latency, duplex")));
  EXPECT_THAT(what_if("link:paris->tokyo.bandwidth=fast"), AllOf(HasSubstr("link:paris->tokyo.bandwidth=fast"), HasSubstr("Mbit")));
  EXPECT_THAT(what_if("link:paris->tokyo.bandwidth=0Mbit"), Not(""));
  EXPECT_THAT(what_if("device:pariss-1=absent"), HasSubstr("no device 'pariss-1'; did you mean paris-1? there are paris-0"));
  EXPECT_THAT(what_if("site:pari.latency=1ms"), HasSubstr("no site 'pari'; did you mean paris? there are "));
  EXPECT_THAT(what_if("device:rome-0=absent"), AllOf(HasSubstr("no device 'rome-0'"), HasSubstr("paris-0, paris-1, tokyo-0, tokyo-1")));
  EXPECT_THAT(what_if("device:paris-0=lost"), HasSubstr("absent"));
  EXPECT_THAT(what_if("device:paris-0.computeScale=2"), HasSubstr("at most 1"));
  EXPECT_THAT(what_if("device:paris-0.computeScale=1e-7"), HasSubstr("at least 1e-06"));
  EXPECT_THAT(what_if("device:paris-0.computeScale=nan"), HasSubstr("must be a number"));
  EXPECT_THAT(what_if("site:rome.latency=1ms"), HasSubstr("paris, tokyo"));
  EXPECT_THAT(what_if("moon:phase=full"), HasSubstr("link:FROM->TO.FIELD"));
  EXPECT_THAT(what_if("schedule=zigzag"), HasSubstr("interleaved"));
  EXPECT_THAT(what_if("spec.training.microBatchSize=x"), AllOf(HasSubstr("what-if"), HasSubstr("spec.training.microBatchSize")));
  EXPECT_THAT(ErrorOf({.stragglers = {"rome-0:3"}}), AllOf(HasSubstr("rome-0"), HasSubstr("paris-1")));
  EXPECT_THAT(ErrorOf({.stragglers = {"paris-0:0"}}), HasSubstr("factor"));
  EXPECT_THAT(ErrorOf({.stragglers = {"paris-0:2@1.5"}}), HasSubstr("probability"));
  EXPECT_THAT(ErrorOf({.jitter = -1}), HasSubstr("jitter"));
  EXPECT_THAT(ErrorOf({.steps = 0}), HasSubstr("steps"));
  EXPECT_THAT(ErrorOf({.what_if = std::vector<std::string>(65, "schedule=gpipe")}), HasSubstr("what-ifs"));
}

// Devices that measured themselves, as a broker's or a saved profiles document has them.
TEST(SimulateWorkload, MeasuredLinksMayChangeToo) {
  Hardware hardware = OnTwoSites();
  wire::DeviceProfile device = hardware.measured.devices[0];
  hardware.topology.reset();
  hardware.measured.devices.clear();
  for (const char* name : {"a-0", "a-1", "b-0"}) {
    device.name = name;
    device.site = std::string(name).substr(0, 1);
    hardware.measured.devices.push_back(device);
  }
  hardware.measured.links = {{"a-0", "a-1", 1e-4, 1e8}, {"a-0", "b-0", 0.02, 2e6}};
  const wire::SimulationDocument simulation = Simulated(
      {.plan = {.strategy = "equal-ops"},
       .what_if = {"link:a->b.bandwidth=1Mbit", "link:b->a.latency=300ms", "link:a-0->b-0.bandwidth=1Mbit", "device:b-0.straggler=3"}},
      hardware);
  for (const wire::WhatIfDocument& what_if : simulation.what_if) {
    ASSERT_TRUE(what_if.same_plan.has_value()) << what_if.same_plan_reason;
    EXPECT_GT(what_if.same_plan->step_seconds, simulation.step.step_seconds) << what_if.change;
  }
  const auto error = SimulateWorkload(Source, hardware, {.what_if = {"link:a->c.bandwidth=1Mbit"}}).status();
  EXPECT_THAT(std::string(error.message()), HasSubstr("a-0->b-0"));
}

TEST(ScheduleNames, AJobMayNameEveryScheduleThatRuns) {
  std::vector<std::string> of_jobs, of_runs = {"auto"};
  for (const auto& [name, value] : job::EnumNames<job::PipelineSchedule>::kNames) of_jobs.emplace_back(name);
  for (const schedule::PipelineSchedule& schedule : schedule::All()) of_runs.emplace_back(schedule.name());
  EXPECT_THAT(of_jobs, ::testing::UnorderedElementsAreArray(of_runs));
}

TEST(PlannerNames, APlannerThatAJobMayNameExists) {
  const std::vector<absl::string_view> strategies = scheduler::PlannerNames();
  for (const auto& [name, value] : job::EnumNames<job::Planner>::kNames)
    EXPECT_THAT(strategies, ::testing::Contains(absl::string_view(name)));
}

TEST(SimulateWorkload, StopsWhenItIsNotWantedAnyMore) {
  int asked = 0;
  const auto status =
      SimulateWorkload(Source, OnTwoSites(),
                       {.plan = {.strategy = "equal-ops", .stop = [&] { return ++asked > 20; }}, .jitter = 0.1, .steps = 100'000})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

}  // namespace
}  // namespace fusionllm::planning
