#include "services/broker/plan_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/broker/testing/run_plans.h"
#include "lib/plan/testing/plans.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::services {
namespace {

using plan::testing::TwoPipelines;
using plan::testing::TwoStages;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PlanResultTest, APlanIsReadWithWhatItPredicts) {
  const std::string document = wire::PrintPlan(TwoStages());
  const auto run = ReadRunPlan(document);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->document, document);
  EXPECT_EQ(run->plan, TwoStages());
  EXPECT_THAT(run->devices, ElementsAre("paris-0", "tokyo-0"));
  EXPECT_THAT(run->MemoryBytes(), ElementsAre(1 << 20, 2 << 20));
  EXPECT_EQ(run->BusySecondsOf(1), 0.02);
  EXPECT_EQ(run->MicroBatchesOf(1), 8);
  EXPECT_EQ(run->RanksOf(run->plan.links[1]), std::pair(1, 0));
  broker::RunPlan on_spare = *run;
  on_spare.devices[1] = "spare";
  EXPECT_THAT(broker::testing::BusySeconds(on_spare), ElementsAre(1.0 / 3, 0)) << "nothing was predicted for the spare";
  EXPECT_EQ(on_spare.RanksOf(run->plan.links[1]), std::pair(1, 0));
  for (const char* bad : {"", "[]", "{}", R"({"stages": [{"devices": []}]})", R"({"stages": 3})"}) {
    EXPECT_EQ(ReadRunPlan(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(PlanResultTest, NumbersRanksReplicaByReplica) {
  const std::string several = wire::PrintPlan(TwoPipelines());
  const auto run = ReadRunPlan(several);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->stages(), 2);
  EXPECT_THAT(run->devices, ElementsAre("paris-0", "tokyo-0", "paris-1", "tokyo-1"));
  EXPECT_THAT(run->MemoryBytes(), ElementsAre(1 << 20, 2 << 20, 4096, 4096));
  EXPECT_EQ(run->BusySecondsOf(2), 0.01 + 0.002 + 0.003);
  EXPECT_EQ(run->RanksOf(run->plan.links[2]), std::pair(2, 3));
  EXPECT_EQ(run->Describe(3), "stage 1 of replica 1");
  EXPECT_EQ(run->MicroBatchesOf(1), 5);
  EXPECT_EQ(run->MicroBatchesOf(2), 3);
  EXPECT_EQ(std::get<broker::Planned>(PlanEventOf({.id = 7, .devices = run->devices}, several)).plan.devices, run->devices);
}

TEST(PlanResultTest, AnswersBecomeTheEventThatTheQuestionWaitsFor) {
  const std::string document = wire::PrintPlan(TwoStages());
  const broker::RequestPlan must{.id = 7, .devices = {"a"}}, what_if{.devices = {"a"}, .alternative = 3};
  EXPECT_EQ(std::get<broker::Planned>(PlanEventOf(must, document)).id, 7u);
  const auto alternative = std::get<broker::AlternativePlanned>(PlanEventOf(what_if, document));
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

TEST(PlanResultTest, ARefusalOfOddTypesIsARefusal) {
  const broker::RequestPlan must{.devices = {"a"}};
  const auto refused = std::get<broker::PlanRefused>(PlanEventOf(must, std::string(R"({"refused": {"reason": 7, "message": ["x"]}})")));
  EXPECT_EQ(refused.reason, "Refused");
  EXPECT_EQ(refused.message, "");
}

}  // namespace
}  // namespace fusionllm::services
