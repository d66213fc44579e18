#include "lib/wire/plan_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace fusionllm::wire {
namespace {

using ::testing::HasSubstr;

PlanDocument TwoStages() {
  PlanDocument plan{.strategy = "op-fence",
                    .predicted_step_seconds = 0.1 + 0.2,
                    .lower_bound_seconds = 0.25,
                    .gap = 0.2,
                    .micro_batches = 8,
                    .micro_batch_size = 4,
                    .in_flight = 3,
                    .graph_hash = "00ff00ff00ff00ff"};
  plan.stages = {
      {.index = 0, .devices = {"paris-0"}, .ops = {"tokens", "wte"}, .compute_seconds = 1.0 / 3, .in_flight = 3, .memory_bytes = 1 << 20},
      {.index = 1, .devices = {"tokyo-0"}, .ops = {"head", "loss"}, .compute_seconds = 0.02, .in_flight = 1, .memory_bytes = 2 << 20}};
  plan.links = {{.src = "paris-0",
                 .dst = "tokyo-0",
                 .src_stage = 0,
                 .dst_stage = 1,
                 .dense_bytes = 4000,
                 .bytes = 1000,
                 .tied_bytes = 24,
                 .codec = "topk@20:int8",
                 .ratio = 4,
                 .values = {"wte"},
                 .value_kinds = {"residual"}},
                {.src = "tokyo-0",
                 .dst = "paris-0",
                 .src_stage = 1,
                 .dst_stage = 0,
                 .backward = true,
                 .dense_bytes = 4000,
                 .bytes = 1000,
                 .codec = "topk@20:int8",
                 .ratio = 4}};
  plan.tied = {{.parameter = "transformer.wte.weight",
                .stages = {0, 1},
                .bytes = 4096,
                .seconds = 0.03,
                .wire_bytes = 1112,
                .codec = "int8",
                .loss_cost = 0.002,
                .reason = "it pays"}};
  plan.stages[0].device_memory_bytes = 4 << 20;
  plan.links[1].dtype = "bf16";
  plan.unit = "tokens";
  plan.tokens_per_second = 5210.5;
  plan.samples_per_second = 81;
  plan.parameters = 124'439'808;
  plan.tokens_per_step = 16'384;
  plan.steps = 600;
  plan.site_bytes = 2000;
  plan.loss_cost = 0.071;
  plan.loss_cost_source = "a probe";
  plan.bottleneck = "Nothing.";
  plan.warnings = {{.reason = "NearlyIdle", .message = "tokyo-0 is."}};
  plan.left_out = {"lab-3"};
  plan.fewer_in_flight = {.in_flight = 2, .predicted_step_seconds = 0.5, .memory_bytes = 1 << 20};
  plan.micro_batch_sizes = {{.size = 4, .predicted_step_seconds = 0.3}, {.size = 8, .refused = "too large"}};
  plan.specifications = {"nvidia-l4", "nvidia-t4"};
  plan.arithmetic = {"bf16", "fp32"};
  plan.lower_bounds = {{.name = "work", .seconds = 0.25, .holds = true, .why = "shared out"}, {.name = "cut-bytes", .why = "one may do"}};
  return plan;
}

TEST(PlanJson, PlanReadsBackAsItWas) {
  const PlanDocument plan = TwoStages();
  const std::string text = PrintPlan(plan);
  const auto parsed = ParsePlan(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<PlanDocument>(*parsed), plan);
  EXPECT_EQ(PrintPlan(*parsed), text);
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(PlanJson, AStageOnEachOfTenThousandDevicesReadsBackAsItWas) {
  PlanDocument plan = TwoStages();
  plan.stages.clear();
  plan.links.clear();
  plan.tied.clear();
  for (int s = 0; s < kMaxPlanStages; ++s) {
    plan.stages.push_back({.index = s, .devices = {absl::StrCat("d", s)}, .ops = {absl::StrCat("op", s)}});
    if (s > 0) plan.links.push_back({.src = absl::StrCat("d", s - 1), .dst = absl::StrCat("d", s), .src_stage = s - 1, .dst_stage = s});
  }
  const auto parsed = ParsePlan(PrintPlan(plan));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<PlanDocument>(*parsed), plan);
  plan.stages.push_back({.index = kMaxPlanStages, .devices = {"one more"}, .ops = {"one more"}});
  EXPECT_THAT(std::string(ParsePlan(PrintPlan(plan)).status().message()), HasSubstr("10001 entries, the limit is 10000"));
}

// Two pipelines of the stages above.
PlanDocument TwoPipelines() {
  PlanDocument plan = TwoStages();
  plan.replicas = 2;
  plan.micro_batches_by_replica = {5, 3};
  plan.sync_seconds = 0.05;
  plan.sync_bytes = 8192;
  plan.stages[0].devices = {"paris-0", "paris-1"};
  plan.stages[0].sync_bytes = 1024;
  plan.stages[1].devices = {"tokyo-0", "tokyo-1"};
  plan.stages[1].sync_bytes = 3072;
  for (PlanStage& stage : plan.stages) {
    stage.chain = {0, 1};
    stage.chunk_bytes = 65536;
    stage.by_replica = {{.compute_seconds = stage.compute_seconds, .in_flight = stage.in_flight, .memory_bytes = stage.memory_bytes},
                        {.compute_seconds = 0.01, .codec_seconds = 0.002, .update_seconds = 0.003, .in_flight = 1, .memory_bytes = 4096}};
  }
  for (PlanLink link : TwoStages().links) {
    link.codec = "int8";
    for (std::string* name : {&link.src, &link.dst}) *name = name->substr(0, 6) + "1";
    plan.links.push_back(link);
  }
  return plan;
}

TEST(PlanJson, PipelinesSideBySideReadBackAsTheyWere) {
  const PlanDocument plan = TwoPipelines();
  const auto parsed = ParsePlan(PrintPlan(plan));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<PlanDocument>(*parsed), plan);
  EXPECT_THAT(PrintPlan(plan), HasSubstr("\"micro_batches_by_replica\":[5,3]"));
}

TEST(PlanJson, APlanFromBeforeReplicasHasOnePipeline) {
  const std::string text = PrintPlan(TwoStages());
  const auto parsed =
      ParsePlan(absl::StrReplaceAll(text, {{"\"replicas\":1,", ""}, {"\"sync_seconds\":0.0,", ""}, {"\"sync_bytes\":0,", ""}}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<PlanDocument>(*parsed), TwoStages());
}

TEST(PlanJson, WrongFieldsOfReplicasAreNamed) {
  const std::string good = PrintPlan(TwoPipelines());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\"replicas\":0", "plan.replicas: 0 is not between"},
      {"\"replicas\":3", "plan.micro_batches_by_replica: has 2 entries for 3 replicas"},
      {"\"micro_batches_by_replica\":[5,4]", "do not add up to the 8 micro-batches"},
      {"\"micro_batches_by_replica\":[8,0]", "plan.micro_batches_by_replica"},
      {"\"devices\":[\"tokyo-0\"]", "plan.stages[1].devices: lists 1 devices, the plan has 2 replicas"},
      {"\"dst\":\"tokyo-1\"", "'tokyo-1' is of another replica than its source"},
      {"\"chain\":[0,0]", "plan.stages[0].chain: is no order of the 2 replicas"},
      {"\"chain\":[0,2]", "plan.stages[0].chain"},
      {"\"chunk_bytes\":0", "plan.stages[0].chunk_bytes"},
      {"\"in_flight\":6", "replica 0 of stage 0 has 6 micro-batches in flight of 5"},
      {"\"by_replica\":[{\"codec_seconds\":0,\"compute_seconds\":0,\"in_flight\":1,\"memory_bytes\":0,\"update_seconds\":0},{",
       "plan.stages[0].by_replica: has 3 entries for 2 replicas"},
      {"\"by\":[{", "plan.stages[0].by_replica"},
  };
  const std::vector<std::string> from = {"\"replicas\":2",
                                         "\"replicas\":2",
                                         "\"micro_batches_by_replica\":[5,3]",
                                         "\"micro_batches_by_replica\":[5,3]",
                                         "\"devices\":[\"tokyo-0\",\"tokyo-1\"]",
                                         "\"dst\":\"tokyo-0\"",
                                         "\"chain\":[0,1]",
                                         "\"chain\":[0,1]",
                                         "\"chunk_bytes\":65536",
                                         "\"in_flight\":3",
                                         "\"by_replica\":[{",
                                         "\"by_replica\":[{"};
  for (size_t i = 0; i < cases.size(); ++i) {
    ASSERT_THAT(good, HasSubstr(from[i]));
    const auto parsed = ParsePlan(absl::StrReplaceAll(good, {{from[i], cases[i].first}}));
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << cases[i].first;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(cases[i].second));
  }
}

TEST(PlanJson, ReadsTheChunksOfThePreviousRelease) {
  const std::string former = absl::StrReplaceAll(PrintPlan(TwoPipelines()), {{"\"chunk_bytes\"", "\"letter_bytes\""}});
  ::testing::internal::CaptureStderr();
  const auto parsed = ParsePlan(former);
  const auto again = ParsePlan(former);
  const std::string warning = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(parsed.ok() && again.ok()) << parsed.status();
  EXPECT_EQ(std::get<PlanDocument>(*parsed), TwoPipelines());
  EXPECT_THAT(warning, HasSubstr("plan.stages[0].letter_bytes is called chunk_bytes now"));
  EXPECT_EQ(absl::StrReplaceAll(warning, {{"letter_bytes", ""}}).size() + std::strlen("letter_bytes"), warning.size()) << "once";
}

TEST(PlanJson, ReplicasHaveTheirOwnFigures) {
  const PlanDocument plan = TwoPipelines();
  EXPECT_EQ(plan.CodecBetween(0, 1, 0), "topk@20:int8");
  EXPECT_EQ(plan.CodecBetween(0, 1, 1), "int8");
  EXPECT_EQ(plan.MicroBatchesOf(0), 5);
  EXPECT_EQ(plan.MicroBatchesOf(1), 3);
  EXPECT_EQ(plan.FirstMicroBatchOf(0), 0);
  EXPECT_EQ(plan.FirstMicroBatchOf(1), 5);
  EXPECT_EQ(plan.ReplicaOf(0, 0).in_flight, 3);
  EXPECT_EQ(plan.ReplicaOf(0, 1).in_flight, 1);
  const PlanDocument one = TwoStages();
  EXPECT_EQ(one.MicroBatchesOf(0), 8);
  EXPECT_EQ(one.FirstMicroBatchOf(0), 0);
  EXPECT_EQ(one.ReplicaOf(1, 0).memory_bytes, 2 << 20);
}

TEST(PlanJson, RefusalReadsBackAsItWas) {
  const PlanErrorDocument refusal{
      .reason = "InsufficientMemory", .message = "stage 3 needs 11 GiB", .shortfall = {"memory_bytes", 1.1e10, 8e9}};
  const auto parsed = ParsePlan(PrintPlan(refusal));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<PlanErrorDocument>(*parsed), refusal);
}

TEST(PlanJson, AnyDoubleReadsBackExactly) {
  const uint64_t seed = 20240;
  std::mt19937_64 generator(seed);
  for (int i = 0; i < 2000; ++i) {
    PlanDocument plan = TwoStages();
    plan.predicted_step_seconds = std::ldexp(static_cast<double>(generator()), -30 - static_cast<int>(generator() % 120));
    const auto parsed = ParsePlan(PrintPlan(plan));
    ASSERT_TRUE(parsed.ok()) << parsed.status() << " seed " << seed;
    ASSERT_EQ(std::get<PlanDocument>(*parsed).predicted_step_seconds, plan.predicted_step_seconds) << "seed " << seed;
  }
}

TEST(PlanJson, CodecOfAPairIsThatOfItsForwardLink) {
  EXPECT_EQ(TwoStages().CodecBetween(0, 1), "topk@20:int8");
  EXPECT_EQ(TwoStages().CodecBetween(1, 0), "fp32");
}

TEST(PlanJson, WrongFieldsAreNamed) {
  const std::string good = PrintPlan(TwoStages());
  struct Case {
    std::string from, to, message;
  };
  const std::vector<Case> cases = {
      {"\"micro_batches\":8", "\"micro_batches\":0", "plan.micro_batches: 0 is not between"},
      {"\"micro_batches\":8", "\"micro_batches\":\"8\"", "plan.micro_batches: must be a whole number"},
      {"\"micro_batches\":8", "\"micro_batches\":18446744073709551615", "plan.micro_batches"},
      {"\"micro_batches\":8", "\"micro_batches\":2", "stage 0 has 3 micro-batches in flight of 2"},
      {"\"index\":1", "\"index\":0", "plan.stages[1].index"},
      {"\"head\"", "\"wte\"", "op 'wte' is placed twice"},
      {"\"devices\":[\"tokyo-0\"]", "\"devices\":[]", "plan.stages[1].devices: is empty"},
      {"\"dst\":\"tokyo-0\"", "\"dst\":\"tokyo-9\"", "'tokyo-9' is not the device of its stage"},
      {"\"dst_stage\":1", "\"dst_stage\":2", "plan.links[0].dst_stage"},
      {"topk@20:int8", "topk@0:int8", "plan.links[0].codec"},
      {"\"residual\"", "\"residue\"", "plan.links[0].value_kinds: 'residue' is no kind of activation"},
      {"[\"residual\"]", "[\"residual\",\"hidden\"]", "plan.links[0].value_kinds: is not one for each value"},
      {"\"schedule\":\"1f1b\"", "\"schedule\":\"2f2b\"", "plan.schedule"},
      {"\"stages\":[0,1]", "\"stages\":[0,7]", "plan.tied[0].stages"},
      {"\"codec\":\"int8\"", "\"codec\":\"topk@9:int8\"", "plan.tied[0].codec: is none that gradients of tied parameters travel as"},
      {"\"steps\":600", "\"steps\":-1", "plan.steps"},
      {"\"reason\":\"NearlyIdle\"", "\"reason\":7", "plan.warnings[0].reason"},
      {"\"gap\":0.2", "\"gap\":1e999", "plan"},
      {"\"strategy\":\"op-fence\"", "\"strategy\":null", "plan.strategy: must be text"},
  };
  for (const Case& c : cases) {
    ASSERT_THAT(good, HasSubstr(c.from));
    const auto parsed = ParsePlan(absl::StrReplaceAll(good, {{c.from, c.to}}));
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << c.to;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(c.message)) << c.to;
  }
}

TEST(PlanJson, TextThatIsCutAnywhereIsRefused) {
  const std::string good = PrintPlan(TwoStages());
  for (size_t length = 0; length < good.size(); length += 7) EXPECT_FALSE(ParsePlan(good.substr(0, length)).ok()) << length;
}

TEST(PlanJson, DeepNestingIsRefusedBeforeItIsParsed) {
  EXPECT_THAT(std::string(ParsePlan(std::string(1 << 20, '[')).status().message()), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace fusionllm::wire
