#include "tests/monitoring/chart_files.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::monitoring {
namespace {

using nlohmann::json;

std::vector<std::string> FilesIn(const std::string& folder, const std::string& ending) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(SourceFolder() + "/" + folder)) {
    if (absl::EndsWith(entry.path().string(), ending)) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  EXPECT_FALSE(files.empty()) << folder;
  return files;
}

std::string Text(const YAML::Node& node) { return node ? node.as<std::string>() : ""; }

}  // namespace

std::string SourceFolder() {
  const char* root = std::getenv("FUSIONLLM_SOURCE_DIR");
  return root == nullptr ? "." : root;
}

std::vector<json> Dashboard::Panels() const {
  std::vector<json> panels;
  for (const json& panel : document["panels"]) {
    if (panel["type"] != "row") panels.push_back(panel);
  }
  return panels;
}

std::vector<Dashboard> Dashboards() {
  std::vector<Dashboard> dashboards;
  for (const std::string& path : FilesIn("helm/fusionllm/dashboards", ".json")) {
    json document = json::parse(base::ReadWholeFile(path), nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(document.is_object()) << path << " is no JSON object";
    if (document.is_object()) dashboards.push_back({std::filesystem::path(path).filename().string(), std::move(document)});
  }
  return dashboards;
}

std::vector<std::string> RuleFiles() { return FilesIn("helm/fusionllm/rules", ".yaml"); }
std::vector<std::string> RuleTestFiles() { return FilesIn("tests/monitoring/rules", ".test.yaml"); }

std::vector<Rule> Rules() {
  std::vector<Rule> rules;
  for (const std::string& path : RuleFiles()) {
    const YAML::Node file = YAML::LoadFile(path);
    for (const YAML::Node& group : file["groups"]) {
      for (const YAML::Node& rule : group["rules"]) {
        const bool alert = rule["alert"].IsDefined();
        rules.push_back({.file = std::filesystem::path(path).filename().string(),
                         .name = Text(alert ? rule["alert"] : rule["record"]),
                         .expr = Text(rule["expr"]),
                         .alert = alert,
                         .severity = alert ? Text(rule["labels"]["severity"]) : "",
                         .summary = alert ? Text(rule["annotations"]["summary"]) : "",
                         .description = alert ? Text(rule["annotations"]["description"]) : ""});
      }
    }
  }
  return rules;
}

std::set<std::string> DocumentedFamilies(const std::string& program) {
  std::set<std::string> families;
  const std::string document = base::ReadWholeFile(SourceFolder() + "/docs/reference/metrics.md");
  for (const absl::string_view line : absl::StrSplit(document, '\n')) {
    const std::vector<absl::string_view> cells = absl::StrSplit(line, '|');
    if (cells.size() < 6 || !absl::StartsWith(cells[1], " `") || !absl::EndsWith(cells[1], "` ")) continue;
    const std::vector<std::string> programs = absl::StrSplit(absl::StripAsciiWhitespace(cells[4]), ", ");
    if (!program.empty() && std::find(programs.begin(), programs.end(), program) == programs.end()) continue;
    families.emplace(cells[1].substr(2, cells[1].size() - 4));
  }
  EXPECT_FALSE(families.empty());
  return families;
}

}  // namespace fusionllm::monitoring
