// The dashboards of the chart as Grafana reads them, without Grafana and without Prometheus: queries_test.cc runs their queries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/monitoring/chart_files.h"
#include "tests/monitoring/promql.h"

namespace fusionllm::monitoring {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// Of Grafana's list of units, what our figures are in.
const std::set<std::string> kUnits = {"short", "s", "percentunit", "bytes", "Bps", "ops", "reqps", "sci", "watt", "celsius", "hertz"};
const std::set<std::string> kPanelTypes = {"row", "stat", "table", "timeseries"};

std::set<std::string> VariableNames(const json& document) {
  std::set<std::string> names;
  for (const json& variable : document["templating"]["list"]) names.insert(variable["name"].get<std::string>());
  return names;
}

// $name, ${name}; those that Grafana itself has begin with two underscores.
std::set<std::string> VariablesUsed(const std::string& text) {
  static const std::regex use(R"(\$\{?([A-Za-z]\w*))");
  std::set<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), use), end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

TEST(DashboardsTest, EachIsKnownByItsNameAndFoundByItsTag) {
  std::set<std::string> uids, titles, files;
  for (const Dashboard& dashboard : Dashboards()) {
    const json& document = dashboard.document;
    EXPECT_TRUE(uids.insert(document["uid"].get<std::string>()).second) << dashboard.file;
    EXPECT_TRUE(titles.insert(document["title"].get<std::string>()).second) << dashboard.file;
    EXPECT_EQ(document["uid"].get<std::string>() + ".json", "fusionllm-" + dashboard.file);
    EXPECT_TRUE(absl::StartsWith(document["title"].get<std::string>(), "FusionLLM / ")) << dashboard.file;
    EXPECT_THAT(document["tags"].get<std::vector<std::string>>(), Contains("fusionllm"));
    EXPECT_GE(document["schemaVersion"].get<int>(), 36) << dashboard.file << ": before that, data sources were names";
    EXPECT_FALSE(document.contains("id")) << dashboard.file << ": a number of one Grafana";
    EXPECT_LT(document.dump().size(), 1 << 20) << dashboard.file << ": a ConfigMap holds no more";
    files.insert(dashboard.file);
  }
  EXPECT_THAT(files, IsSupersetOf({"fleet.json", "job.json", "operator.json"}));
}

TEST(DashboardsTest, TheDataSourceIsAVariable) {
  for (const Dashboard& dashboard : Dashboards()) {
    const json& variables = dashboard.document["templating"]["list"];
    ASSERT_FALSE(variables.empty()) << dashboard.file;
    EXPECT_EQ(variables[0]["type"], "datasource") << dashboard.file;
    EXPECT_EQ(variables[0]["query"], "prometheus") << dashboard.file;
    EXPECT_THAT(VariableNames(dashboard.document), Contains("namespace")) << dashboard.file;
    const json source = {{"type", "prometheus"}, {"uid", absl::StrCat("${", variables[0]["name"].get<std::string>(), "}")}};
    for (const json& panel : dashboard.Panels()) {
      EXPECT_EQ(panel["datasource"], source) << panel["title"];
      for (const json& target : panel["targets"]) EXPECT_EQ(target["datasource"], source) << panel["title"];
    }
    for (const json& variable : variables) {
      if (variable["type"] == "query") {
        EXPECT_EQ(variable["datasource"], source) << variable["name"];
      }
    }
  }
}

// In a member no broker tells which jobs there are.
TEST(DashboardsTest, TheOneOfAJobOffersJobsOfWhichExecutorsAloneAreSeen) {
  for (const Dashboard& dashboard : Dashboards()) {
    if (dashboard.file != "job.json") continue;
    for (const json& variable : dashboard.document["templating"]["list"]) {
      if (variable["type"] != "query") continue;
      EXPECT_THAT(variable["query"]["query"].get<std::string>(), HasSubstr("fusion-executor")) << variable["name"];
      EXPECT_EQ(variable["definition"], variable["query"]["query"]);
    }
  }
}

TEST(DashboardsTest, EveryVariableIsThereAndIsUsed) {
  for (const Dashboard& dashboard : Dashboards()) {
    const std::set<std::string> defined = VariableNames(dashboard.document);
    EXPECT_EQ(defined.size(), dashboard.document["templating"]["list"].size()) << dashboard.file;
    EXPECT_EQ(VariablesUsed(dashboard.document.dump()), defined) << dashboard.file;
  }
}

TEST(DashboardsTest, EveryPanelSaysWhatItShowsInWhichUnit) {
  for (const Dashboard& dashboard : Dashboards()) {
    std::set<int> ids;
    for (const json& panel : dashboard.document["panels"]) {
      const std::string where = absl::StrCat(dashboard.file, ": ", panel["title"].get<std::string>());
      EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << where;
      EXPECT_THAT(kPanelTypes, Contains(panel["type"].get<std::string>())) << where;
      EXPECT_FALSE(panel["title"].get<std::string>().empty()) << dashboard.file;
      if (panel["type"] == "row") continue;
      EXPECT_TRUE(absl::EndsWith(panel["description"].get<std::string>(), ".")) << where;
      EXPECT_THAT(kUnits, Contains(panel["fieldConfig"]["defaults"]["unit"].get<std::string>())) << where;
      for (const json& one : panel["fieldConfig"]["overrides"]) {
        for (const json& property : one["properties"]) {
          if (property["id"] == "unit") {
            EXPECT_THAT(kUnits, Contains(property["value"].get<std::string>())) << where;
          }
        }
      }
      EXPECT_FALSE(panel["targets"].empty()) << where;
      std::set<std::string> refs;
      for (const json& target : panel["targets"]) {
        EXPECT_TRUE(refs.insert(target["refId"].get<std::string>()).second) << where;
        EXPECT_FALSE(target["expr"].get<std::string>().empty()) << where;
        EXPECT_EQ(target.value("format", ""), panel["type"] == "table" ? "table" : "") << where;
        if (panel["type"] == "timeseries") {
          EXPECT_FALSE(target.value("legendFormat", "").empty()) << where;
        }
      }
    }
  }
}

TEST(DashboardsTest, TablesNameTheirColumns) {
  for (const Dashboard& dashboard : Dashboards()) {
    for (const json& panel : dashboard.Panels()) {
      if (panel["type"] != "table") continue;
      std::map<std::string, std::string> names;
      for (const json& step : panel["transformations"]) {
        if (step["id"] == "organize") names = step["options"]["renameByName"].get<std::map<std::string, std::string>>();
      }
      std::set<std::string> shown;
      for (const auto& [from, to] : names) EXPECT_TRUE(shown.insert(to).second) << panel["title"] << ": two columns " << to;
      for (const json& target : panel["targets"]) {
        EXPECT_TRUE(names.contains("Value #" + target["refId"].get<std::string>())) << panel["title"] << " " << target["refId"];
      }
      for (const json& one : panel["fieldConfig"]["overrides"]) {
        EXPECT_THAT(shown, Contains(one["matcher"]["options"].get<std::string>())) << panel["title"] << ": no such column";
      }
    }
  }
}

TEST(DashboardsTest, PanelsFitBesideEachOther) {
  constexpr int kColumns = 24;
  for (const Dashboard& dashboard : Dashboards()) {
    std::map<std::pair<int, int>, std::string> taken;
    for (const json& panel : dashboard.document["panels"]) {
      const json& at = panel["gridPos"];
      EXPECT_LE(at["x"].get<int>() + at["w"].get<int>(), kColumns) << panel["title"];
      for (int x = at["x"]; x < at["x"].get<int>() + at["w"].get<int>(); ++x) {
        for (int y = at["y"]; y < at["y"].get<int>() + at["h"].get<int>(); ++y) {
          const auto [other, free] = taken.emplace(std::pair(x, y), panel["title"]);
          ASSERT_TRUE(free) << dashboard.file << ": " << panel["title"] << " lies over " << other->second;
        }
      }
    }
  }
}

TEST(DashboardsTest, WhatTheyReadIsDocumented) {
  const std::set<std::string> documented = DocumentedFamilies();
  for (const Dashboard& dashboard : Dashboards()) {
    for (const json& panel : dashboard.Panels()) {
      for (const json& target : panel["targets"]) {
        const std::string expr = target["expr"];
        EXPECT_THAT(Selectors(expr), Not(::testing::IsEmpty())) << expr;
        for (const Selector& selector : Selectors(expr)) {
          EXPECT_THAT(documented, Contains(FamilyOf(selector.metric, documented))) << dashboard.file << ": " << panel["title"];
        }
      }
    }
  }
}

// Controllers of all kinds have queues and clients; a dashboard shows ours.
TEST(DashboardsTest, EverySelectorSaysWhose) {
  for (const Dashboard& dashboard : Dashboards()) {
    for (const json& panel : dashboard.Panels()) {
      for (const json& target : panel["targets"]) {
        for (const Selector& selector : Selectors(target["expr"].get<std::string>())) {
          EXPECT_THAT(selector.text,
                      ::testing::AnyOf(::testing::HasSubstr("namespace=~\"$namespace\""), ::testing::HasSubstr("namespace=~\"$operator\"")))
              << dashboard.file << ": " << panel["title"];
        }
      }
    }
  }
}

}  // namespace
}  // namespace fusionllm::monitoring
