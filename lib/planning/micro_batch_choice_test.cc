#include "lib/planning/micro_batch_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "lib/planning/gpu_profile.h"
#include "lib/planning/micro_batch_sizes.h"
#include "lib/planning/replan_workload.h"
#include "lib/planning/testing/three_devices.h"
#include "lib/scheduler/assignment.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::planning {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTopologyHead[] = "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: gpus}\nspec:\n  sites:\n";

std::unique_ptr<workload::Workload> WorkloadOfSpec(const std::string& spec) {
  const auto job =
      job::ParseFusionJob(absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n", spec), "job");
  EXPECT_TRUE(job.ok()) << job.status();
  auto workload = workload::Resolve(*job, "/");
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

Profiles DevicesOf(const std::string& sites_and_links) {
  const auto topology = job::ParseTopology(absl::StrCat(kTopologyHead, sites_and_links), "t.yaml");
  EXPECT_TRUE(topology.ok()) << topology.status();
  auto profiles = ProfilesFromTopology(*topology, {}, 1);
  EXPECT_TRUE(profiles.ok()) << profiles.status();
  return *std::move(profiles);
}

double CostOf(const plan::PlanResult& answer) {
  const auto* plan = std::get_if<plan::Plan>(&answer);
  if (plan == nullptr) return std::numeric_limits<double>::infinity();
  return plan->predicted_step_seconds * (1 + scheduler::kTimePerNat * plan->loss_cost);
}

plan::PlanResult AnswerOf(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options = {}) {
  const auto answer = PlanWorkload(workload, profiles, options);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return *answer;
}

// Of GPT-2s and MLPs of a few sizes, on one to six GPUs of one to three sites, drawn by a seed.
struct DrawnJob {
  explicit DrawnJob(uint64_t seed) : generator(seed) {
    const int batch = Pick({16, 24, 30, 48, 64, 96, 128, 256});
    if (Pick({0, 1, 2}) > 0) {
      const int heads = Pick({4, 8}), width = heads * Pick({32, 64, 128});
      spec = absl::StrFormat(
          "  model: {family: gpt2, preset: tiny, config: {nLayer: %d, nHead: %d, nEmbd: %d, vocabSize: %d, blockSize: 256, tieWeights: "
          "%s}}\n"
          "  data: {kind: tokens, path: [x.bin]}\n"
          "  training: {globalBatchSize: %d, microBatchSize: auto, sequenceLength: %d, precision: %s}\n",
          Pick({2, 3}), heads, width, Pick({512, 8192}), Pick({0, 1}) == 0 ? "true" : "false", batch, Pick({32, 128, 256}),
          Pick({0, 1}) == 0 ? "fp32" : "bf16");
    } else {
      const int width = Pick({256, 1024, 4096});
      spec = absl::StrFormat(
          "  model: {family: mlp, config: {layers: [192, %d, %d, %d, 8], activation: relu}}\n"
          "  data: {kind: shapes, shapes: {imageSize: 8, numClasses: 8}}\n"
          "  training: {globalBatchSize: %d, microBatchSize: auto}\n",
          width, width, width, batch * Pick({1, 8}));
    }
    if (Pick({0, 1}) == 0) spec += "  compression: {policy: adatopk}\n";
    const int sites = Pick({1, 2, 3});
    for (int s = 0; s < sites; ++s) {
      std::vector<std::string> devices;
      const int count = Pick({1, 2});
      for (int d = 0; d < count; ++d) {
        const char* const gpu = std::vector<const char*>{"nvidia-l4", "nvidia-t4", "nvidia-a100-80gb"}[Pick({0, 1, 2})];
        devices.push_back(absl::StrFormat("{name: d%d-%d, profile: %s, memory: %dMi}", s, d, gpu, Pick({192, 512, 8192})));
      }
      absl::StrAppend(&topology, "  - {name: s", s, ", devices: [", absl::StrJoin(devices, ", "),
                      "], internal: {bandwidth: 10Gbit, latency: 100us}}\n");
    }
    if (sites > 1) topology += "  links:\n";
    for (int s = 0; s < sites; ++s) {
      for (int t = s + 1; t < sites; ++t) {
        absl::StrAppendFormat(&topology, "  - {from: s%d, to: s%d, bandwidth: %dMbit, latency: %dms, symmetric: true}\n", s, t,
                              Pick({20, 100, 1000, 10000}), Pick({1, 10, 40}));
      }
    }
  }
  int Pick(const std::vector<int>& choices) { return choices[generator() % choices.size()]; }

  std::mt19937_64 generator;
  std::string spec, topology;
};

TEST(MicroBatchChoice, IsWithinThreePercentOfTheBestOfAllSizes) {
  const PlanOptions quick{.search_budget = scheduler::kQuickSearchBudget};
  int planned = 0, other_than_default = 0;
  for (uint64_t seed = 1; planned < 20; ++seed) {
    ASSERT_LT(seed, 40);
    const DrawnJob drawn(seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", drawn.spec, drawn.topology));
    const auto job = WorkloadOfSpec(drawn.spec);
    const Profiles profiles = DevicesOf(drawn.topology);
    double least = std::numeric_limits<double>::infinity();
    int64_t best = 0;
    for (const int64_t size : MicroBatchSizes(*job).all()) {
      const JobAtSize at = *AtMicroBatchSize(*job, profiles, size);
      const double cost = CostOf(AnswerOf(*at.workload, at.profiles, quick));
      if (cost >= least) continue;
      least = cost;
      best = size;
    }
    const plan::PlanResult answer = AnswerOf(*job, profiles, quick);
    const auto* plan = std::get_if<plan::Plan>(&answer);
    EXPECT_EQ(plan != nullptr, best > 0) << "a plan with some size is found if there is one";
    if (plan == nullptr) continue;
    ++planned;
    other_than_default += plan->micro_batch_size != job->micro_batch_size;
    EXPECT_LE(CostOf(answer), 1.03 * least) << "chosen " << plan->micro_batch_size << ", best " << best;
  }
  EXPECT_GT(other_than_default, 5) << "else the draw asks for nothing";
}

constexpr char kTwoL4[] =
    "  - {name: s, devices: [{name: a, profile: nvidia-l4, memory: MEMORY}, {name: b, profile: nvidia-l4, memory: MEMORY}], internal: "
    "{bandwidth: 10Gbit, latency: 100us}}\n";

constexpr char kGpt[] =
    "  model: {family: gpt2, preset: tiny, config: {nLayer: 4, nHead: 4, nEmbd: 128, vocabSize: 512, blockSize: 128}}\n"
    "  data: {kind: tokens, path: [x.bin]}\n"
    "  training: {globalBatchSize: 64, sequenceLength: 128, microBatchSize: SIZE, recompute: RECOMPUTE}\n";

std::unique_ptr<workload::Workload> Gpt(const std::string& size, const std::string& recompute = "none") {
  return WorkloadOfSpec(absl::StrReplaceAll(kGpt, {{"SIZE", size}, {"RECOMPUTE", recompute}}));
}

Profiles TwoL4(const std::string& memory = "8Gi") { return DevicesOf(absl::StrReplaceAll(kTwoL4, {{"MEMORY", memory}})); }

TEST(MicroBatchChoice, ThePlanSaysWhatOtherSizesWouldTake) {
  const Profiles profiles = TwoL4();
  const auto job = Gpt("auto");
  const plan::Plan plan = PlanOf(*job, profiles, {.explain = true});
  EXPECT_EQ(plan.micro_batches * plan.micro_batch_size, 64);
  ASSERT_GT(plan.micro_batch_sizes.size(), 2);
  bool has_chosen = false;
  int64_t last = 0;
  for (const plan::MicroBatchSize& other : plan.micro_batch_sizes) {
    EXPECT_GT(other.size, last);
    last = other.size;
    has_chosen = has_chosen || (other.size == plan.micro_batch_size && other.predicted_step_seconds == plan.predicted_step_seconds);
  }
  EXPECT_TRUE(has_chosen);
  EXPECT_THAT(plan.explain, Contains(HasSubstr(absl::StrCat("micro-batches of ", plan.micro_batch_size, " were chosen"))));
  const auto parsed = wire::ParsePlan(wire::PrintPlan(plan));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<plan::Plan>(*parsed), plan);
  // The same plan as that of a job that names the size, and nothing of the kind there.
  plan::Plan named = PlanOf(*Gpt(absl::StrCat(plan.micro_batch_size)), profiles);
  EXPECT_TRUE(named.micro_batch_sizes.empty());
  EXPECT_EQ(named.stages, plan.stages);
  EXPECT_EQ(named.graph_hash, plan.graph_hash);
  EXPECT_EQ(named.predicted_step_seconds, plan.predicted_step_seconds);
}

TEST(MicroBatchChoice, EqualInputsGiveEqualBytes) {
  const auto text = [] {
    plan::Plan plan = PlanOf(*Gpt("auto"), TwoL4(), {.explain = true});
    plan.search_cpu_seconds = 0;
    return wire::PrintPlan(plan);
  };
  EXPECT_EQ(text(), text());
}

TEST(MicroBatchChoice, MemoryDecidesWhereTheDefaultDoesNotFit) {
  const Profiles profiles = TwoL4("32Mi");
  ASSERT_TRUE(std::holds_alternative<plan::PlanError>(AnswerOf(*Gpt("8"), profiles)));
  EXPECT_LT(PlanOf(*Gpt("auto"), profiles).micro_batch_size, 8);
}

TEST(MicroBatchChoice, ARefusalForMemorySaysWhatWouldFit) {
  const Profiles profiles = TwoL4("56Mi");
  const plan::PlanResult answer = AnswerOf(*Gpt("16"), profiles);
  const auto* refusal = std::get_if<plan::PlanError>(&answer);
  ASSERT_NE(refusal, nullptr);
  int64_t fits = 0;
  for (const int64_t size : {1, 2, 4, 8}) {
    if (std::holds_alternative<plan::Plan>(AnswerOf(*Gpt(absl::StrCat(size)), profiles))) fits = size;
  }
  ASSERT_GT(fits, 0);
  EXPECT_THAT(refusal->message, HasSubstr(absl::StrCat("spec.training.microBatchSize=", fits, " it would fit")));
}

TEST(MicroBatchChoice, WhatNoSizeMendsIsNotAdvised) {
  const plan::PlanResult answer = AnswerOf(*Gpt("16", "auto"), TwoL4("12Mi"));
  const auto* refusal = std::get_if<plan::PlanError>(&answer);
  ASSERT_NE(refusal, nullptr);
  EXPECT_THAT(refusal->message, AllOf(HasSubstr("it would not fit with any spec.training.microBatchSize"), Not(HasSubstr("would fit;"))));
}

TEST(MicroBatchChoice, ARunningPlanKeepsItsSize) {
  const auto job = Gpt("auto");
  Profiles profiles = TwoL4();
  const plan::Plan running = PlanOf(*Gpt("2"), profiles);
  ASSERT_NE(PlanOf(*job, profiles).micro_batch_size, 2);
  profiles.devices[1].compute_scale = 0.2;
  const auto replan = ReplanWorkload(*job, profiles, running, {}, {.steps_left = 100'000});
  ASSERT_TRUE(replan.ok()) << replan.status();
  ASSERT_TRUE(std::holds_alternative<wire::ReplanDocument>(*replan));
  EXPECT_EQ(std::get<wire::ReplanDocument>(*replan).plan.micro_batch_size, 2);
  EXPECT_EQ(std::get<wire::ReplanDocument>(*replan).plan.graph_hash, running.graph_hash);
  EXPECT_TRUE(ExplainPlan(*job, profiles, running, {}).ok());
}

}  // namespace
}  // namespace fusionllm::planning
