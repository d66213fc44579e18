#include "lib/planning/plan_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "lib/compression/codec.h"
#include "lib/job/parse.h"
#include "lib/planning/calibrate.h"
#include "lib/planning/codec_adapter.h"
#include "lib/planning/placement.h"
#include "lib/planning/stage_memory.h"
#include "lib/scheduler/directed_links.h"

namespace fusionllm::planning {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kJob[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: test}
spec:
  model: {family: gpt2, preset: tiny, config: {nLayer: 4, nHead: 2, nEmbd: 32, vocabSize: 64, blockSize: 16}}
  data: {kind: tokens, path: [x.bin]}
  training: {steps: 5, globalBatchSize: 16, microBatchSize: 2, sequenceLength: 16}
)";

constexpr char kTopology[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: two-sites}
spec:
  sites:
  - name: paris
    devices: [{name: paris-0, computeScale: 0.5, memory: 1Gi}, {name: paris-1, computeScale: 0.25, memory: 1Gi}]
    internal: {bandwidth: 1Gbit, latency: 1ms}
  - name: tokyo
    devices: [{name: tokyo-0, computeScale: 0.5, memory: 1Gi}, {name: tokyo-1, computeScale: 0.5, memory: 1Gi, role: spare}]
    internal: {bandwidth: 1Gbit, latency: 1ms}
  links: [{from: paris, to: tokyo, bandwidth: 20Mbit, latency: 40ms, symmetric: true}]
)";

std::unique_ptr<workload::Workload> Resolve(const std::vector<std::string>& overrides = {}) {
  const auto job = job::ParseFusionJob(kJob, "job.yaml", overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  auto workload = workload::Resolve(*job, "/");
  EXPECT_TRUE(workload.ok()) << workload.status();
  return std::move(*workload);
}

// Every op takes 1 ms, whatever it is, so that tests do not depend on the machine.
wire::DeviceProfile Machine(const workload::Workload& workload, double op_seconds = 1e-3) {
  const auto backend = *kernels::CreateBackend("ref", {});
  auto profile = Calibrate(workload, *backend, {.seconds = 0, .least_passes = 1});
  EXPECT_TRUE(profile.ok()) << profile.status();
  for (auto& [signature, op] : profile->ops) op.seconds = op_seconds;
  profile->update_seconds_per_element = 1e-9;
  for (auto& [name, codec] : profile->codecs) codec = {1e-9, 1e-9};
  profile->name = "machine";
  profile->memory_bytes = 1 << 30;
  return *profile;
}

Profiles OnTopology(const workload::Workload& workload, absl::string_view yaml = kTopology) {
  const auto topology = job::ParseTopology(yaml, "topology.yaml");
  EXPECT_TRUE(topology.ok()) << topology.status();
  auto profiles = ProfilesFromTopology(*topology, {Machine(workload)}, int64_t{4} << 30);
  EXPECT_TRUE(profiles.ok()) << profiles.status();
  return *profiles;
}

wire::PlanDocument PlanOf(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options = {}) {
  const auto answer = PlanWorkload(workload, profiles, options);
  EXPECT_TRUE(answer.ok()) << answer.status();
  if (!answer.ok() || !std::holds_alternative<wire::PlanDocument>(*answer)) {
    ADD_FAILURE() << (answer.ok() ? wire::PrintPlan(*answer) : std::string(answer.status().message()));
    return {};
  }
  return std::get<wire::PlanDocument>(*answer);
}

std::vector<std::string> Devices(const wire::PlanDocument& plan) {
  std::vector<std::string> devices;
  for (const wire::PlanStage& stage : plan.stages) devices.push_back(stage.devices[0]);
  return devices;
}

TEST(PlanWorkload, PlanOnATopologyIsConsistent) {
  const auto workload = Resolve();
  const wire::PlanDocument plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  EXPECT_THAT(Devices(plan), ElementsAre("paris-0", "paris-1", "tokyo-0"));
  EXPECT_THAT(plan.left_out, ElementsAre("tokyo-1"));
  EXPECT_EQ(plan.micro_batches, 8);
  EXPECT_EQ(plan.micro_batch_size, 2);
  EXPECT_GE(plan.gap, 0);
  EXPECT_GE(plan.predicted_step_seconds, plan.lower_bound_seconds);
  EXPECT_EQ(plan.stages[0].ops[0], "tokens");
  const auto placement = PlacementOf(plan, workload->training);
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_EQ(placement->size(), workload->training.graph.ops().size());
  const auto parsed = wire::ParsePlan(wire::PrintPlan(plan));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<wire::PlanDocument>(*parsed), plan);
}

TEST(PlanWorkload, AJobBeyondThePlannersLimitsIsToldByItsField) {
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
  const wire::PlanDocument plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  // Equal work: paris-1 has half the scale of paris-0. Stages differ by the few ops that do not divide by three.
  EXPECT_NEAR(plan.stages[1].compute_seconds / plan.stages[0].compute_seconds, 2, 0.4);
}

TEST(PlanWorkload, MemoryOfAStageIsWhatTheRuntimeAsksFor) {
  const auto workload = Resolve({"spec.strategy.stages=1"});
  const Profiles profiles = OnTopology(*workload);
  const wire::PlanDocument plan = PlanOf(*workload, profiles);
  ASSERT_EQ(plan.stages.size(), 1);
  const auto placement = PlacementOf(plan, workload->training);
  ASSERT_TRUE(placement.ok());
  const auto program = runtime::BuildStageProgram(workload->training, *placement, 0, 1, runtime::Recompute::kNone);
  ASSERT_TRUE(program.ok());
  const auto memory = runtime::MemoryOf(*program, workload->training, plan.stages[0].in_flight, 2);
  int64_t workspace = 0;
  for (const auto& [signature, op] : profiles.devices[0].ops) workspace = std::max(workspace, op.workspace_bytes);
  EXPECT_EQ(plan.stages[0].memory_bytes, static_cast<int64_t>(memory.total()) + workspace + ProcessBytes(1));
}

TEST(PlanWorkload, TheSameSeedGivesTheSameBytes) {
  const auto workload = Resolve({"spec.compression={policy: adatopk, ratio: 50}"});
  const Profiles profiles = OnTopology(*workload);
  const PlanOptions options{.seed = 7, .explain = true};
  wire::PlanDocument first = PlanOf(*workload, profiles, options), second = PlanOf(*workload, profiles, options);
  EXPECT_FALSE(first.explain.empty());
  first.search_cpu_seconds = second.search_cpu_seconds = 0;
  EXPECT_EQ(wire::PrintPlan(first), wire::PrintPlan(second));
}

TEST(PlanWorkload, OnlyTheSlowLinkIsCompressed) {
  // All three devices, in the order that crosses the slow link once.
  const auto workload = Resolve({"spec.compression={policy: adatopk, ratio: 100}", "spec.training.microBatchSize=4"});
  Profiles profiles = OnTopology(*workload);
  for (auto& [signature, op] : profiles.devices[0].ops) op.seconds = 2e-5;
  for (wire::DeviceProfile& device : profiles.devices) device.ops = profiles.devices[0].ops;
  const wire::PlanDocument plan = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  ASSERT_EQ(plan.stages.size(), 3);
  EXPECT_EQ(plan.CodecBetween(0, 1), "fp32");
  EXPECT_NE(plan.CodecBetween(1, 2), "fp32");
  for (const wire::PlanLink& link : plan.links) {
    if (link.codec == "fp32") {
      EXPECT_NEAR(link.ratio, 1, 0.01);
    } else if (link.backward) {
      EXPECT_GT(link.ratio, 1.5);
    }
  }
}

// What the ladder knows reaches the user: why a codec, what it costs, and where structure would do better.
TEST(PlanWorkload, TheReasonForACodecIsExplained) {
  const auto workload = Resolve({"spec.compression={policy: adatopk, ratio: 100}", "spec.training.microBatchSize=4"});
  Profiles profiles = OnTopology(*workload);
  for (auto& [signature, op] : profiles.devices[0].ops) op.seconds = 1e-7;
  for (wire::DeviceProfile& device : profiles.devices) device.ops = profiles.devices[0].ops;
  const wire::PlanDocument plan = PlanOf(*workload, profiles, {.strategy = "equal-ops", .explain = true});
  ASSERT_EQ(plan.stages.size(), 3);
  std::string reason;
  for (const wire::PlanLink& link : plan.links) {
    if (link.src_stage == 1 && link.dst_stage == 2) reason = link.reason;
    EXPECT_EQ(link.reason.empty(), link.backward) << "one of the two directions has it";
  }
  EXPECT_THAT(reason, AllOf(HasSubstr("dense fp32 would take"), HasSubstr("expected loss +"), HasSubstr("a trained bottleneck")));
  EXPECT_THAT(plan.explain, Contains(HasSubstr(absl::StrCat("Codec: ", reason))));
}

TEST(PlanWorkload, UniformPolicyGivesEveryLinkOneCodec) {
  for (const std::string codec : {"auto", "int8"}) {
    const auto workload = Resolve({absl::StrCat("spec.compression={policy: uniform, codec: ", codec, "}")});
    Profiles profiles = OnTopology(*workload);
    for (wire::DeviceProfile& device : profiles.devices) {
      for (auto& [signature, op] : device.ops) op.seconds = 2e-5;
    }
    const wire::PlanDocument plan = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
    ASSERT_EQ(plan.stages.size(), 3);
    EXPECT_NE(plan.CodecBetween(0, 1), "fp32") << codec;
    EXPECT_EQ(plan.CodecBetween(0, 1), plan.CodecBetween(1, 2)) << codec;
  }
}

TEST(PlanWorkload, TopKValuesAreThoseTheJobAsksFor) {
  const std::pair<std::string, std::string> wanted[] = {
      {"", "topk@20:int8"}, {", topkValues: int8", "topk@20:int8"}, {", topkValues: fp16", "topk@20:fp16"}};
  for (const auto& [values, codec] : wanted) {
    const auto workload = Resolve({absl::StrCat("spec.compression={policy: uniform, codec: topk, ratio: 20", values, "}")});
    const wire::PlanDocument plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
    ASSERT_EQ(plan.stages.size(), 3);
    EXPECT_EQ(plan.CodecBetween(0, 1), codec);
    EXPECT_EQ(plan.CodecBetween(1, 2), codec);
  }
}

TEST(PlanWorkload, TheLadderMayShrinkALinkByInt4WhateverTheRatioOfTheJob) {
  const auto most = [](job::Codec codec, double ratio) {
    const job::Compression wish{.policy = job::CompressionPolicy::kAdatopk, .codec = codec, .ratio = ratio};
    return CompressionPolicy(PolicyOf(wish), {}).MaxRatio();
  };
  EXPECT_GT(most(job::Codec::kAuto, 1), 4.9);
  EXPECT_GT(most(job::Codec::kAuto, 100), 100);
  EXPECT_LT(most(job::Codec::kInt8, 100), 4.1);
  EXPECT_LT(most(job::Codec::kFp16, 1), 2.1);
}

TEST(PlanWorkload, TiedEmbeddingsAreExchanged) {
  const auto workload = Resolve();
  const wire::PlanDocument plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  ASSERT_EQ(plan.tied.size(), 1);
  EXPECT_EQ(plan.tied[0].parameter, "transformer.wte.weight");
  EXPECT_THAT(plan.tied[0].stages, ElementsAre(0, 2));
  EXPECT_EQ(plan.tied[0].bytes, 64 * 32 * 4);
  // The labels travel on the same link from the first stage to the last; nothing but the tied gradient comes back.
  for (const bool back : {false, true}) {
    const int src = back ? 2 : 0, dst = back ? 0 : 2;
    const auto link = std::find_if(plan.links.begin(), plan.links.end(),
                                   [&](const wire::PlanLink& l) { return l.src_stage == src && l.dst_stage == dst; });
    ASSERT_NE(link, plan.links.end()) << src;
    EXPECT_EQ(link->tied_bytes, plan.tied[0].bytes);
    EXPECT_EQ(link->backward, back);
    EXPECT_EQ(link->bytes == link->tied_bytes, back);
    EXPECT_GT(link->seconds, 0);
  }
}

TEST(PlanWorkload, LabelsArePlannedAsTheFewBytesThatTheyTravelAs) {
  const auto workload = Resolve({"spec.model.config.tieWeights=false"});
  const wire::PlanDocument plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  ASSERT_EQ(plan.stages.size(), 3);
  const auto labels =
      std::find_if(plan.links.begin(), plan.links.end(), [](const wire::PlanLink& l) { return l.src_stage == 0 && l.dst_stage == 2; });
  ASSERT_NE(labels, plan.links.end());
  std::vector<std::byte> encoded;
  const std::vector<int32_t> ids(workload->micro_batch_size * workload->targets_per_sample, 63);
  ASSERT_TRUE(compression::EncodeIntegers(ids, &encoded).ok());
  EXPECT_EQ(labels->bytes, workload->micro_batches * static_cast<int64_t>(encoded.size()));
  EXPECT_EQ(labels->ratio, 1) << "nothing is lost or left out";
}

TEST(PlanWorkload, WhatDoesNotFitIsRefusedWithTheShortfall) {
  const auto workload = Resolve();
  Profiles profiles = OnTopology(*workload);
  for (wire::DeviceProfile& device : profiles.devices) device.memory_bytes = 100'000;
  const auto answer = PlanWorkload(*workload, profiles, {});
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto& refusal = std::get<wire::RefusalDocument>(*answer);
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
    const auto* plan = std::get_if<wire::PlanDocument>(&*answer);
    refused += plan == nullptr;
    if (plan == nullptr) continue;
    ++plans;
    for (const wire::PlanStage& stage : plan->stages) {
      EXPECT_LE(static_cast<double>(stage.memory_bytes), static_cast<double>(memory) * 0.95) << memory;
    }
  }
  EXPECT_GT(plans, 2);
  EXPECT_GT(refused, 0);
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
  const wire::PlanDocument plan = planned("auto", (keeping + sparing) / 2 * 100 / 95);
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
  const wire::PlanDocument plan = PlanOf(*workload, OnTopology(*workload), {.explain = true});
  EXPECT_EQ(plan.fitted_share, 0);
  EXPECT_THAT(plan.explain, Contains(HasSubstr("every op of the plan was measured")));
}

TEST(PlanWorkload, AProfileOfOneJobPlansAnother) {
  const auto measured = Resolve();
  const Profiles profiles = OnTopology(*measured);
  const auto other = Resolve({"spec.model.config.nEmbd=64", "spec.training.sequenceLength=8"});
  const wire::PlanDocument plan = PlanOf(*other, profiles, {.explain = true});
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
  const wire::PlanDocument plan = PlanOf(*workload, profiles, {.explain = true});
  EXPECT_NEAR(plan.fitted_share, 1, 1e-9);
  EXPECT_GT(plan.fitted_relative_error, 0.25) << "the other classes are guesses";
  EXPECT_THAT(plan.explain, Contains(HasSubstr("attention guessed from other classes")));
  for (wire::DeviceProfile& device : profiles.devices) device.rates.clear();
  EXPECT_THAT(std::string(PlanWorkload(*workload, profiles, {}).status().message()), HasSubstr("'paris-0' has no op times"));
}

TEST(PlanWorkload, TheFirstStageReadsTheData) {
  const auto workload = Resolve();
  Profiles profiles = OnTopology(*workload);
  const wire::PlanDocument without = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  for (wire::DeviceProfile& device : profiles.devices) device.data_seconds_per_byte = {{"tokens", 1e-5}, {"shapes", 1}};
  const wire::PlanDocument with = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  const double bytes_a_step = 2 * 4 * 16 * 16;  // tokens and targets, i32, 16 samples of 16
  EXPECT_NEAR(with.stages[0].forward_seconds - without.stages[0].forward_seconds, bytes_a_step * 1e-5 / 0.5, 1e-9);
  EXPECT_EQ(with.stages[1].forward_seconds, without.stages[1].forward_seconds);
}

TEST(PlanWorkload, UnknownStrategyIsAnError) {
  const auto workload = Resolve();
  const auto answer = PlanWorkload(*workload, OnTopology(*workload), {.strategy = "guess"});
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("op-fence"));
}

// Every pair that can talk, with its least rate, as the scheduler resolves the network's rules.
std::vector<scheduler::Link> PairsOf(const Network& network, const std::vector<wire::DeviceProfile>& devices) {
  scheduler::PlanRequest request{
      .resources = network.resources, .links = network.links, .sites = network.sites, .site_links = network.site_links};
  for (size_t d = 0; d < devices.size(); ++d) {
    request.devices.push_back(
        {.name = devices[d].name, .site = devices[d].site, .out_port = network.ports[d].out, .in_port = network.ports[d].in});
  }
  const scheduler::DirectedLinks links(request);
  std::vector<scheduler::Link> pairs;
  for (int src = 0; src < static_cast<int>(devices.size()); ++src) {
    for (int dst = 0; dst < static_cast<int>(devices.size()); ++dst) {
      if (src == dst || links.Between(src, dst).bytes_per_s <= 0) continue;
      const scheduler::DirectedLink link = links.Between(src, dst);
      pairs.push_back({.src = src, .dst = dst, .latency_s = link.latency_s, .bytes_per_s = link.bytes_per_s});
      links.ForEachResource(src, dst, link, [&](int resource) { pairs.back().resources.push_back(resource); });
    }
  }
  return pairs;
}

TEST(NetworkOf, TheRulesOfATopologyGiveTheLinksThatItsTableResolves) {
  const auto topology = job::ParseTopology(R"(
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: mixed}
spec:
  sites:
    - {name: paris, devices: [{name: p0}, {name: p1}, {name: p2}], internal: {bandwidth: 1Gbit, latency: 1ms}}
    - {name: tokyo, devices: [{name: t0}, {name: t1}], internal: {bandwidth: 50Mbit, latency: 2ms}}
    - {name: quito, devices: [{name: q0}, {name: q1}]}
  links:
    - {from: paris, to: tokyo, bandwidth: 100Mbit, latency: 100ms, symmetric: true}
    - {from: paris, to: quito, bandwidth: 80Mbit, latency: 60ms, symmetric: true}
    - {from: tokyo, to: quito, bandwidth: 60Mbit, latency: 90ms}
    - {from: quito, to: tokyo, bandwidth: 30Mbit, latency: 95ms}
    - {from: p1, to: tokyo, bandwidth: 200Mbit, latency: 80ms}
    - {from: quito, to: p1, bandwidth: 20Mbit, latency: 70ms}
    - {from: p0, to: t1, bandwidth: 10Mbit, latency: 50ms, symmetric: true}
    - {from: p0, to: p2, bandwidth: 5Mbit, latency: 3ms}
  sharedUplinks:
    - {site: paris, egress: 90Mbit}
    - {site: tokyo, egress: 40Mbit, ingress: 70Mbit}
)",
                                           "t.yaml");
  ASSERT_TRUE(topology.ok()) << topology.status();
  const auto table = job::LinkTable::Create(*topology);
  const auto network = NetworkOf(*topology);
  ASSERT_TRUE(table.ok() && network.ok());
  std::vector<wire::DeviceProfile> devices;
  for (const job::LinkTable::Place& place : table->devices())
    devices.push_back({.name = place.device.name, .site = topology->spec.sites[place.site].name});
  const std::vector<scheduler::Link> pairs = PairsOf(*network, devices);
  EXPECT_EQ(pairs.size(), 7u * 6u);
  for (const scheduler::Link& pair : pairs) {
    SCOPED_TRACE(absl::StrCat(devices[pair.src].name, " -> ", devices[pair.dst].name));
    const auto wanted = table->Between(devices[pair.src].name, devices[pair.dst].name);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    EXPECT_DOUBLE_EQ(pair.latency_s, wanted->latency.seconds());
    EXPECT_DOUBLE_EQ(pair.bytes_per_s, wanted->bandwidth.bytes_per_s());
    std::vector<std::string> path, wanted_path;
    for (const int resource : pair.resources) path.push_back(network->resources[resource].name);
    for (const job::LinkResource& resource : wanted->path) wanted_path.push_back(resource.name);
    EXPECT_EQ(path, wanted_path);
  }
}

TEST(NetworkOf, TheSizeIsThatOfTheDocument) {
  std::vector<wire::DeviceProfile> devices(wire::kMaxProfiledDevices);
  for (size_t d = 0; d < devices.size(); ++d) devices[d] = {.name = absl::StrCat("d", d), .site = d % 2 == 0 ? "paris" : "tokyo"};
  const Network network = NetworkOf(devices, {{"d0", "d1", 0.08, 2e6}, {"d0", "d2", 0.002, 1e8}, {"d1", "d3", 0.002, 1e8}});
  EXPECT_EQ(network.links.size(), 0u);
  EXPECT_EQ(network.site_links.size(), 4u);
  EXPECT_EQ(network.resources.size(), 2 * devices.size() + 2);
}

TEST(NetworkOf, OneMeasuredPairSpeaksForItsSites) {
  std::vector<wire::DeviceProfile> devices(4);
  for (int i = 0; i < 4; ++i) devices[i] = {.name = absl::StrCat("d", i), .site = i < 2 ? "paris" : "tokyo"};
  const Network network =
      NetworkOf(devices, {{"d0", "d2", 0.08, 2e6}, {"d2", "d0", 0.08, 1e6}, {"d0", "d1", 0.002, 1e8}, {"d3", "d2", 0.004, 5e7}});
  const std::vector<scheduler::Link> pairs = PairsOf(network, devices);
  EXPECT_EQ(pairs.size(), 12);
  std::map<std::string, std::set<std::string>> users;
  for (const scheduler::Link& link : pairs) {
    const bool across = (link.src < 2) != (link.dst < 2);
    EXPECT_DOUBLE_EQ(link.latency_s, across ? 0.04 : link.src < 2 ? 0.001 : 0.002);
    EXPECT_DOUBLE_EQ(link.bytes_per_s, across ? (link.src < 2 ? 2e6 : 1e6) : link.src < 2 ? 1e8 : 5e7);
    for (const int resource : link.resources) users[network.resources[resource].name].insert(absl::StrCat(link.src, link.dst));
  }
  EXPECT_EQ(users["link:paris->tokyo"].size(), 4);
  EXPECT_EQ(users["link:tokyo->paris"].size(), 4);
  EXPECT_EQ(users["port:d0:out"].size(), 1);
}

TEST(NetworkOf, ALineBetweenTwoDevicesIsTheirsAlone) {
  std::vector<wire::DeviceProfile> devices(4);
  for (int i = 0; i < 4; ++i) devices[i] = {.name = absl::StrCat("d", i), .site = i < 2 ? "paris" : "tokyo"};
  // d0 and d2 have a fast line; d1 and d3 share a slow one with d0 and d3; the sites' own link lies between.
  const Network network = NetworkOf(devices, {{"d0", "d2", 0.02, 5e7, "fast"},
                                              {"d1", "d2", 0.08, 2e6},
                                              {"d0", "d3", 0.3, 1e5, "slow"},
                                              {"d1", "d3", 0.3, 1e5, "slow"},
                                              {"d0", "d1", 0.002, 1e8},
                                              {"d2", "d3", 0.002, 1e8}});
  const std::vector<scheduler::Link> pairs = PairsOf(network, devices);
  const auto between = [&](int src, int dst) {
    for (const scheduler::Link& link : pairs) {
      if (link.src == src && link.dst == dst) return link;
    }
    ADD_FAILURE() << "no link " << src << " -> " << dst;
    return scheduler::Link{};
  };
  EXPECT_EQ(pairs.size(), 12);
  EXPECT_DOUBLE_EQ(between(0, 2).bytes_per_s, 5e7);
  EXPECT_DOUBLE_EQ(between(0, 2).latency_s, 0.01);
  EXPECT_DOUBLE_EQ(between(1, 2).bytes_per_s, 2e6) << "not the fast line of the other two";
  EXPECT_DOUBLE_EQ(between(2, 0).bytes_per_s, 2e6) << "the line goes one way";
  EXPECT_DOUBLE_EQ(between(0, 3).bytes_per_s, 1e5);
  EXPECT_EQ(between(0, 3).resources, between(1, 3).resources) << "they share it";
  EXPECT_NE(between(0, 2).resources, between(1, 2).resources);
}

TEST(PlacementOf, PlansOfAnotherGraphAreRefused) {
  const auto workload = Resolve();
  wire::PlanDocument plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  plan.stages[1].ops.push_back("block.9.mlp");
  EXPECT_THAT(std::string(PlacementOf(plan, workload->training).status().message()), HasSubstr("block.9.mlp"));
  plan.stages[1].ops = {plan.stages[1].ops[0]};
  EXPECT_THAT(std::string(PlacementOf(plan, workload->training).status().message()), HasSubstr("no stage for op"));
}

}  // namespace
}  // namespace fusionllm::planning
