#include "lib/wire/replan_json.h"

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::wire {
namespace {

using ::testing::HasSubstr;

ReplanDocument Example() {
  ReplanDocument document{.decision = ReplanDecision::kMustMove, .reason = "paris-1 is not there any more", .gain_seconds = 0};
  document.plan = {.strategy = "op-fence", .predicted_step_seconds = 0.5, .micro_batches = 4, .graph_hash = "0123456789abcdef"};
  document.plan.stages.push_back({.index = 0, .devices = {"paris-0"}, .ops = {"a", "b"}});
  document.moved = {{"a", "tokyo-0", "paris-0", 12}, {"b", "", "paris-0", 30}};
  document.moved_bytes = 42;
  document.transfer_seconds = 1.5;
  return document;
}

TEST(ReplanJsonTest, WhatIsPrintedIsReadBack) {
  ReplanDocument document = Example();
  absl::StatusOr<ReplanResult> read = ParseReplan(PrintReplan(document));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<ReplanDocument>(*read), document);
  document.decision = ReplanDecision::kMove;
  document.running_step_seconds = 0.75;
  document.gain_seconds = 100;
  read = ParseReplan(PrintReplan(document));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<ReplanDocument>(*read), document);
  EXPECT_THAT(PrintReplan(document), HasSubstr(R"("from":null)"));
}

TEST(ReplanJsonTest, ARefusalIsThatOfAPlan) {
  const plan::PlanError refusal{.reason = "InsufficientMemory", .message = "short of it", .shortfall = {"memory_bytes", 2, 1}};
  const absl::StatusOr<ReplanResult> read = ParseReplan(PrintReplan(refusal));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<plan::PlanError>(*read), refusal);
}

struct Damage {
  const char* what;
  const char* with;
  const char* named;
};
class ReplanJsonDamage : public ::testing::TestWithParam<Damage> {};

TEST_P(ReplanJsonDamage, IsRefusedByField) {
  const std::string good = PrintReplan(Example());
  const std::string bad = absl::StrReplaceAll(good, {{GetParam().what, GetParam().with}});
  ASSERT_NE(good, bad);
  EXPECT_THAT(std::string(ParseReplan(bad).status().message()), HasSubstr(GetParam().named));
}
INSTANTIATE_TEST_SUITE_P(Fields, ReplanJsonDamage,
                         ::testing::Values(Damage{"must-move", "perhaps", "replan.decision: 'perhaps' is none of"},
                                           Damage{"\"plan\"", "\"plans\"", "replan.plan: is missing"},
                                           Damage{"\"transfer_seconds\":1.5", "\"transfer_seconds\":-1",
                                                  "replan.migration.transfer_seconds"},
                                           Damage{"\"op\":\"b\"", "\"op\":7", "replan.migration.moved[1].op"},
                                           Damage{"\"migration\"", "\"migrations\"", "replan.migration"},
                                           Damage{"\"gain_seconds\":0.0", "\"gain_seconds\":\"x\"", "replan.gain_seconds"},
                                           Damage{"\"reason\":\"paris", "\"reason\":[\"paris", "replan"}));

}  // namespace
}  // namespace fusionllm::wire
