// The dashboards and rules of the chart (helm/fusionllm/dashboards, helm/fusionllm/rules), and what the documents say of metrics, read for
// tests. Found by FUSIONLLM_SOURCE_DIR. A file that cannot be read fails the test that asks.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace fusionllm::monitoring {

std::string SourceFolder();

struct Dashboard {
  std::string file;
  nlohmann::json document;

  // All but rows, in their order.
  std::vector<nlohmann::json> Panels() const;
};
std::vector<Dashboard> Dashboards();

struct Rule {
  std::string file, name, expr;
  bool alert = false;
  std::string severity, summary, description;  // of an alert
};
std::vector<Rule> Rules();
// Paths.
std::vector<std::string> RuleFiles();
std::vector<std::string> RuleTestFiles();

// The families that the table of docs/reference/metrics.md lists; of one program: its own.
std::set<std::string> DocumentedFamilies(const std::string& program = "");

}  // namespace fusionllm::monitoring
