#include "tests/monitoring/promql.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::monitoring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Texts(absl::string_view expression) {
  std::vector<std::string> texts;
  for (const Selector& selector : Selectors(expression)) texts.push_back(selector.text);
  return texts;
}

TEST(PromqlTest, SelectorsAreFoundWithTheirMatchers) {
  EXPECT_THAT(Texts("up"), ElementsAre("up"));
  EXPECT_THAT(Texts(R"(sum by (a, b) (rate(x_total{job=~"$job", code=~"5..|<error>"}[5m])) > 0.1)"),
              ElementsAre(R"(x_total{job=~"$job", code=~"5..|<error>"})"));
  EXPECT_THAT(Texts("histogram_quantile(0.99, sum by (le) (rate(x_bucket[$__rate_interval])))"), ElementsAre("x_bucket"));
  EXPECT_THAT(Texts("a * on (job, instance) group_left () b{c=\"d\"} unless e offset 1h"), ElementsAre("a", "b{c=\"d\"}", "e"));
  EXPECT_THAT(Texts("sum(a) / scalar(avg(sum by (s) (max by (s) (a))))"), ElementsAre("a", "a"));
  EXPECT_THAT(Texts("level:metric:rate5m < 0.5 * avg_over_time(level:metric:rate5m[6h] offset 15m)"),
              ElementsAre("level:metric:rate5m", "level:metric:rate5m"));
}

TEST(PromqlTest, WhatIsNoSelectorIsNotTakenForOne) {
  EXPECT_THAT(Texts("vector(0) or time() - 15m"), IsEmpty());
  EXPECT_THAT(Texts(R"(label_replace(vector(1), "x", "$1", "y", "up{a}"))"), IsEmpty());
}

TEST(PromqlTest, ABraceInAStringEndsNothing) { EXPECT_THAT(Texts(R"(a{b="}\"{"} + c)"), ElementsAre(R"(a{b="}\"{"})", "c")); }

TEST(PromqlTest, SeriesOfAHistogramBelongToIt) {
  const std::set<std::string> families = {"step_seconds", "lost_count"};
  EXPECT_EQ(FamilyOf("step_seconds_bucket", families), "step_seconds");
  EXPECT_EQ(FamilyOf("step_seconds_sum", families), "step_seconds");
  EXPECT_EQ(FamilyOf("lost_count", families), "lost_count");
  EXPECT_EQ(FamilyOf("other_bucket", families), "other_bucket");
}

}  // namespace
}  // namespace fusionllm::monitoring
