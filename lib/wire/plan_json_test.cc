#include "lib/wire/plan_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/plan/testing/plans.h"

namespace fusionllm::wire {
namespace {

using plan::testing::TwoPipelines;
using plan::testing::TwoStages;
using ::testing::HasSubstr;

TEST(PlanJson, PlanReadsBackAsItWas) {
  const plan::Plan plan = TwoStages();
  const std::string text = PrintPlan(plan);
  const auto parsed = ParsePlan(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<plan::Plan>(*parsed), plan);
  EXPECT_EQ(PrintPlan(*parsed), text);
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(PlanJson, AStageOnEachOfTenThousandDevicesReadsBackAsItWas) {
  plan::Plan plan = TwoStages();
  plan.stages.clear();
  plan.links.clear();
  plan.tied.clear();
  for (int s = 0; s < kMaxPlanStages; ++s) {
    plan.stages.push_back({.index = s, .devices = {absl::StrCat("d", s)}, .ops = {absl::StrCat("op", s)}});
    if (s > 0) plan.links.push_back({.src = absl::StrCat("d", s - 1), .dst = absl::StrCat("d", s), .src_stage = s - 1, .dst_stage = s});
  }
  const auto parsed = ParsePlan(PrintPlan(plan));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<plan::Plan>(*parsed), plan);
  plan.stages.push_back({.index = kMaxPlanStages, .devices = {"one more"}, .ops = {"one more"}});
  EXPECT_THAT(std::string(ParsePlan(PrintPlan(plan)).status().message()), HasSubstr("10001 entries, the limit is 10000"));
}

TEST(PlanJson, PipelinesSideBySideReadBackAsTheyWere) {
  const plan::Plan plan = TwoPipelines();
  const auto parsed = ParsePlan(PrintPlan(plan));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<plan::Plan>(*parsed), plan);
  EXPECT_THAT(PrintPlan(plan), HasSubstr("\"micro_batches_by_replica\":[5,3]"));
}

TEST(PlanJson, APlanFromBeforeReplicasHasOnePipeline) {
  const std::string text = PrintPlan(TwoStages());
  const auto parsed =
      ParsePlan(absl::StrReplaceAll(text, {{"\"replicas\":1,", ""}, {"\"sync_seconds\":0.0,", ""}, {"\"sync_bytes\":0,", ""}}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<plan::Plan>(*parsed), TwoStages());
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
  EXPECT_EQ(std::get<plan::Plan>(*parsed), TwoPipelines());
  EXPECT_THAT(warning, HasSubstr("plan.stages[0].letter_bytes is called chunk_bytes now"));
  EXPECT_EQ(absl::StrReplaceAll(warning, {{"letter_bytes", ""}}).size() + std::strlen("letter_bytes"), warning.size()) << "once";
}

TEST(PlanJson, RefusalReadsBackAsItWas) {
  const plan::PlanError refusal{
      .reason = "InsufficientMemory", .message = "stage 3 needs 11 GiB", .shortfall = {"memory_bytes", 1.1e10, 8e9}};
  const auto parsed = ParsePlan(PrintPlan(refusal));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<plan::PlanError>(*parsed), refusal);
}

TEST(PlanJson, AnyDoubleReadsBackExactly) {
  const uint64_t seed = 20240;
  std::mt19937_64 generator(seed);
  for (int i = 0; i < 2000; ++i) {
    plan::Plan plan = TwoStages();
    plan.predicted_step_seconds = std::ldexp(static_cast<double>(generator()), -30 - static_cast<int>(generator() % 120));
    const auto parsed = ParsePlan(PrintPlan(plan));
    ASSERT_TRUE(parsed.ok()) << parsed.status() << " seed " << seed;
    ASSERT_EQ(std::get<plan::Plan>(*parsed).predicted_step_seconds, plan.predicted_step_seconds) << "seed " << seed;
  }
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
