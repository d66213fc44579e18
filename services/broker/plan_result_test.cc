#include "services/broker/plan_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"

namespace fusionllm::services {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPlan[] = R"({"predicted_step_seconds": 0.5, "micro_batches": 4, "stages": [
  {"devices": ["a"], "memory_bytes": 7, "compute_seconds": 0.3, "codec_seconds": 0.02, "update_seconds": 0.01},
  {"devices": ["b"], "memory_bytes": 9, "compute_seconds": 0.2}],
  "links": [{"src": "a", "dst": "b", "src_stage": 0, "dst_stage": 1, "codec": "int8", "bytes": 1000, "loss_cost": 0.04}]})";

TEST(PlanAnswerTest, APlanIsSummarizedWithWhatItPredicts) {
  const auto plan = SummaryOf(kPlan);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->devices, ElementsAre("a", "b"));
  EXPECT_THAT(plan->memory_bytes, ElementsAre(7, 9));
  EXPECT_THAT(plan->stage_busy_s, ElementsAre(0.33, 0.2));
  EXPECT_EQ(plan->predicted_step_s, 0.5);
  EXPECT_EQ(plan->MicroBatchesOf(1), 4);
  ASSERT_EQ(plan->links.size(), 1u);
  EXPECT_EQ(plan->links[0].dst_rank, 1);
  EXPECT_EQ(plan->links[0].codec, "int8");
  EXPECT_EQ(plan->links[0].bytes, 1000);
  EXPECT_EQ(plan->links[0].loss_cost, 0.04);
  EXPECT_THAT(OnDevices(*plan, {"a", "spare"}).stage_busy_s, ElementsAre(0.33, 0)) << "nothing was predicted for the spare";
  for (const char* bad : {"", "[]", "{}", R"({"stages": [{"devices": []}]})", R"({"stages": 3})"}) EXPECT_FALSE(SummaryOf(bad).ok()) << bad;
}

TEST(PlanAnswerTest, NumbersRanksReplicaByReplica) {
  const std::string several = R"({"predicted_step_seconds": 0.5, "replicas": 2, "micro_batches_by_replica": [7, 1], "stages": [
    {"devices": ["a", "b"], "memory_bytes": 9, "by_replica": [
      {"memory_bytes": 7, "compute_seconds": 0.3}, {"memory_bytes": 9, "compute_seconds": 0.4, "update_seconds": 0.1}]},
    {"devices": ["c", "d"], "memory_bytes": 6, "by_replica": [{"memory_bytes": 5}, {"memory_bytes": 6}]}],
    "links": [{"src": "b", "dst": "d", "src_stage": 0, "dst_stage": 1, "codec": "int8", "bytes": 1000}]})";
  const auto plan = SummaryOf(several);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->replicas, 2);
  EXPECT_EQ(plan->stages(), 2);
  EXPECT_THAT(plan->devices, ElementsAre("a", "c", "b", "d"));
  EXPECT_THAT(plan->memory_bytes, ElementsAre(7, 5, 9, 6));
  EXPECT_THAT(plan->stage_busy_s, ElementsAre(0.3, 0, 0.5, 0));
  EXPECT_EQ(plan->links[0].src_rank, 2);
  EXPECT_EQ(plan->links[0].dst_rank, 3);
  EXPECT_EQ(plan->Describe(3), "stage 1 of replica 1");
  EXPECT_THAT(plan->micro_batches_by_replica, ElementsAre(7, 1));
  EXPECT_EQ(plan->MicroBatchesOf(1), 7);
  EXPECT_EQ(plan->MicroBatchesOf(2), 1);
  EXPECT_EQ(std::get<broker::Planned>(PlanEventOf({.id = 7, .devices = {"a", "b", "c", "d"}}, several)).plan.devices, plan->devices);
  const std::string short_of_one = R"({"replicas": 2, "stages": [{"devices": ["a"], "by_replica": [{}, {}]}]})";
  EXPECT_THAT(std::string(SummaryOf(short_of_one).status().message()), HasSubstr("a stage of 1 devices in a plan of 2 replicas"));
  EXPECT_FALSE(SummaryOf(R"({"replicas": 2, "stages": [{"devices": ["a", "b"]}]})").ok()) << "no figures";
  for (const char* shares : {"[7]", "[7, 1, 1]", "[8, 0]", "[9, -1]", R"([7, "x"])", "7", "[7, 1000001]"}) {
    const std::string wrong = absl::StrReplaceAll(several, {{"[7, 1]", shares}});
    EXPECT_EQ(SummaryOf(wrong).status().code(), absl::StatusCode::kInvalidArgument) << shares;
  }
  EXPECT_THAT(SummaryOf(absl::StrReplaceAll(several, {{R"("micro_batches_by_replica": [7, 1], )", ""}}))->micro_batches_by_replica,
              ::testing::IsEmpty());
}

TEST(PlanAnswerTest, AnswersBecomeTheEventThatTheQuestionWaitsFor) {
  const broker::RequestPlan must{.id = 7, .devices = {"a"}}, what_if{.devices = {"a"}, .alternative = 3};
  EXPECT_EQ(std::get<broker::Planned>(PlanEventOf(must, std::string(kPlan))).id, 7u);
  const auto alternative = std::get<broker::AlternativePlanned>(PlanEventOf(what_if, std::string(kPlan)));
  EXPECT_EQ(alternative.alternative, 3u);
  EXPECT_TRUE(alternative.plan.ok());
  const std::string refusal = R"({"refused": {"reason": "InsufficientMemory", "message": "stage 0 needs more"}})";
  EXPECT_EQ(std::get<broker::PlanRefused>(PlanEventOf(must, refusal)).reason, "InsufficientMemory");
  EXPECT_THAT(std::string(std::get<broker::AlternativePlanned>(PlanEventOf(what_if, refusal)).plan.status().message()),
              HasSubstr("needs more"));
  EXPECT_EQ(std::get<broker::AlternativePlanned>(PlanEventOf(what_if, refusal)).refusal_reason, "InsufficientMemory");
  EXPECT_EQ(std::get<broker::PlanRefused>(PlanEventOf(must, refusal)).id, 7u);
  const absl::Status down = absl::UnavailableError("scheduler: gone");
  EXPECT_EQ(std::get<broker::PlanRefused>(PlanEventOf(must, down)).reason, "SchedulerFailed");
  EXPECT_FALSE(std::get<broker::AlternativePlanned>(PlanEventOf(what_if, down)).plan.ok());
  EXPECT_EQ(std::get<broker::AlternativePlanned>(PlanEventOf(what_if, down)).refusal_reason, "") << "no word of the planner";
}

TEST(PlanAnswerTest, ARefusalOfOddTypesIsARefusal) {
  const broker::RequestPlan must{.devices = {"a"}};
  const auto refused = std::get<broker::PlanRefused>(PlanEventOf(must, std::string(R"({"refused": {"reason": 7, "message": ["x"]}})")));
  EXPECT_EQ(refused.reason, "Refused");
  EXPECT_EQ(refused.message, "");
}

}  // namespace
}  // namespace fusionllm::services
