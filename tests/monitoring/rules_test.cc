// The rules of the chart: what promtool says of them, and that every alert is tested, documented and says what it should.
// Needs promtool (Debian: the package prometheus) for the first two tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "tests/monitoring/chart_files.h"
#include "tests/monitoring/prometheus.h"
#include "tests/monitoring/promql.h"

namespace fusionllm::monitoring {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr char kNoPromtool[] = "no promtool: install Debian's package prometheus, or set FUSIONLLM_PROMTOOL";

void Promtool(std::vector<std::string> arguments) {
  if (FindPromtool().empty()) {
    ASSERT_FALSE(PrometheusIsRequired()) << kNoPromtool;
    GTEST_SKIP() << kNoPromtool;
  }
  Child promtool(FindPromtool(), std::move(arguments));
  promtool.WaitForLine([](const std::string&) { return false; }, absl::Minutes(2));
  const std::string said = promtool.Output();
  EXPECT_EQ(promtool.Wait(), 0) << said;
}

TEST(PromtoolTest, RulesAreWellFormed) {
  std::vector<std::string> arguments = {"check", "rules"};
  for (const std::string& file : RuleFiles()) arguments.push_back(file);
  Promtool(arguments);
}

TEST(PromtoolTest, AlertsFireWhenTheyShouldAndOnlyThen) {
  std::vector<std::string> arguments = {"test", "rules"};
  for (const std::string& file : RuleTestFiles()) arguments.push_back(file);
  Promtool(arguments);
}

TEST(RulesTest, EveryAlertIsTestedFiringAndSilent) {
  std::set<std::string> firing, silent, alerts;
  for (const std::string& file : RuleTestFiles()) {
    const YAML::Node document = YAML::LoadFile(file);
    for (const YAML::Node& test : document["tests"]) {
      for (const YAML::Node& one : test["alert_rule_test"]) {
        (one["exp_alerts"].size() > 0 ? firing : silent).insert(one["alertname"].as<std::string>());
      }
    }
  }
  for (const Rule& rule : Rules()) {
    if (rule.alert) alerts.insert(rule.name);
  }
  EXPECT_EQ(firing, alerts);
  EXPECT_EQ(silent, alerts);
}

TEST(RulesTest, AlertsSayWhatIsWrongAndHowBadItIs) {
  std::set<std::string> names;
  for (const Rule& rule : Rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    if (!rule.alert) continue;
    EXPECT_THAT(rule.name, MatchesRegex("Fusion[A-Za-z]+"));
    EXPECT_THAT(rule.severity, AnyOf("critical", "warning", "info")) << rule.name;
    EXPECT_THAT(rule.summary, MatchesRegex("[A-Z].*\\.")) << rule.name;
    EXPECT_THAT(rule.summary, Not(HasSubstr("{{"))) << rule.name << ": the same for all of one kind, so that they can be grouped";
    EXPECT_THAT(rule.description, MatchesRegex(".+\\.")) << rule.name;
  }
}

// LEVEL:METRIC:OPERATION
TEST(RulesTest, WhatIsRecordedIsNamedAsUsual) {
  for (const Rule& rule : Rules()) {
    if (!rule.alert) {
      EXPECT_THAT(rule.name, MatchesRegex("fusionllm_[a-z]+:[a-z_]+:[a-z0-9_]+"));
    }
  }
}

TEST(RulesTest, WhatTheyReadIsDocumentedOrRecorded) {
  std::set<std::string> known = DocumentedFamilies();
  for (const Rule& rule : Rules()) {
    if (!rule.alert) known.insert(rule.name);
  }
  for (const Rule& rule : Rules()) {
    EXPECT_THAT(Selectors(rule.expr), Not(IsEmpty())) << rule.name;
    for (const Selector& selector : Selectors(rule.expr)) EXPECT_THAT(known, Contains(FamilyOf(selector.metric, known))) << rule.name;
  }
}

TEST(RulesTest, TheDocumentTellsWhatToDo) {
  const std::string document = base::ReadWholeFile(SourceFolder() + "/docs/reference/alerts.md");
  size_t sections = 0, alerts = 0;
  for (size_t at = document.find("\n## Fusion"); at != std::string::npos; at = document.find("\n## Fusion", at + 1)) ++sections;
  for (const Rule& rule : Rules()) {
    if (!rule.alert) continue;
    ++alerts;
    EXPECT_THAT(document, HasSubstr(absl::StrCat("\n## ", rule.name, "\n"))) << "docs/reference/alerts.md";
  }
  EXPECT_EQ(sections, alerts) << "docs/reference/alerts.md describes an alert that is none";
}

}  // namespace
}  // namespace fusionllm::monitoring
