// Every example is run: with the command that its own first lines tell the reader to type, to the end, with fewer steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/testing/temp_folder.h"
#include "tests/integration/fusionctl_child.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;

constexpr int64_t kExampleSteps = 3;
constexpr double kExampleLimit = 240;  // of one example, built for speed or with sanitizers, on a busy machine

// The repository; ctest sets the variable (cmake/Targets).
std::filesystem::path SourceDir() {
  const char* folder = std::getenv("FUSIONLLM_SOURCE_DIR");
  return folder == nullptr ? "." : folder;
}

std::vector<std::string> YamlFiles(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(SourceDir() / folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(absl::StrCat(folder, "/", entry.path().filename().string()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// "fusionctl run examples/jobs/x.yaml ..." of a comment in the file, as arguments without the program; empty: there is none.
std::vector<std::string> CommandIn(const std::string& file) {
  std::istringstream lines(base::ReadWholeFile((SourceDir() / file).string()));
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("fusionctl run ");
    if (absl::StartsWith(line, "#") && at != std::string::npos) {
      return absl::StrSplit(line.substr(at + std::string("fusionctl ").size()), ' ', absl::SkipWhitespace());
    }
  }
  return {};
}

struct Example {
  std::string name;                    // of the test
  std::vector<std::string> arguments;  // of fusionctl, relative to the repository
};

// Each job by its own command; the demo's by its topology; topologies that no command names with the job for two sites.
std::vector<Example> Examples() {
  std::vector<Example> examples;
  std::set<std::string> used;
  const auto add = [&](const std::string& file, std::vector<std::string> arguments) {
    std::string name = std::filesystem::path(file).stem().string();
    std::replace(name.begin(), name.end(), '-', '_');
    for (const std::string& argument : arguments) used.insert(argument);
    examples.push_back({name, std::move(arguments)});
  };
  for (const std::string& file : YamlFiles("examples/jobs")) {
    std::vector<std::string> command = CommandIn(file);
    if (file == "examples/jobs/demo.yaml") command = {"run", file, "--topology", "examples/topologies/demo.yaml"};
    add(file, command);
  }
  for (const std::string& file : YamlFiles("examples/topologies")) {
    if (!used.contains(file)) add(file, {"run", "examples/jobs/gpt2-two-sites.yaml", "--topology", file});
  }
  return examples;
}

class ExampleTest : public ::testing::TestWithParam<Example> {};

TEST_P(ExampleTest, RunsToTheEndByTheCommandItShows) {
  std::vector<std::string> arguments = GetParam().arguments;
  ASSERT_GE(arguments.size(), 2u) << "the example shows no command `fusionctl run ...` in its comments";
  for (std::string& argument : arguments) {
    if (absl::StartsWith(argument, "examples/")) argument = (SourceDir() / argument).string();
  }
  arguments.insert(arguments.end(), {"--set", absl::StrCat("spec.training.steps=", kExampleSteps), "--format", "json", "--output", "out"});
  const base::TempFolder folder;
  FusionctlChild run(arguments, folder.path());
  EXPECT_EQ(run.Wait(kExampleLimit), 0) << run.Stderr();
  EXPECT_TRUE(run.AllProcessesExited(10));
  int64_t steps = 0;
  for (const json& line : run.lines()) {
    if (line.value("type", "") != "step") continue;
    EXPECT_EQ(line["step"], ++steps);
    EXPECT_GT(line["loss"].get<double>(), 0);
  }
  EXPECT_EQ(steps, kExampleSteps);
  ASSERT_FALSE(run.lines().empty());
  const json& summary = run.lines().back();
  EXPECT_EQ(summary.value("type", ""), "summary");
  EXPECT_EQ(summary.value("steps", 0), kExampleSteps);
  EXPECT_TRUE(std::filesystem::exists(summary.value("report", ""))) << summary;
}

INSTANTIATE_TEST_SUITE_P(All, ExampleTest, ::testing::ValuesIn(Examples()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fusionllm::integration
