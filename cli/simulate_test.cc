// fusionctl simulate as users call it: on every example it takes what fusionctl plan predicts, and what it writes can be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/testing/fusionctl.h"
#include "lib/report/testing/xml_check.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr char kTwoStageJob[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
    "  model: {family: mlp, config: {layers: [192, 256, 256, 256, 8], activation: relu}}\n"
    "  data: {kind: shapes, shapes: {samples: 2048, imageSize: 8, numClasses: 8}}\n"
    "  training: {steps: 2, globalBatchSize: 32, microBatchSize: 4}\n"
    "  strategy: {stages: 2}\n";

// GPUs by name: nothing is measured, so the same figures come out everywhere.
constexpr char kSimulatedTopology[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: gpus}\nspec:\n  sites:\n"
    "  - {name: a, devices: [{name: a-0, profile: nvidia-l4}, {name: a-1, profile: nvidia-t4}]}\n"
    "  - {name: b, devices: [{name: b-0, profile: nvidia-t4}]}\n"
    "  links:\n  - {from: a, to: b, bandwidth: 1Gbit, latency: 1ms, symmetric: true}\n";

fs::path SourceDir() {
  const char* folder = std::getenv("FUSIONLLM_SOURCE_DIR");
  return fs::absolute(folder == nullptr ? "." : folder);
}

std::vector<std::string> YamlFiles(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(SourceDir() / folder)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

class Simulate : public ::testing::Test {
 protected:
  void SetUp() override {
    program_.Write("job.yaml", kTwoStageJob);
    program_.Write("t.yaml", kSimulatedTopology);
  }
  json Json(const std::string& arguments) const {
    const Outcome outcome = program_.Run("--format json " + arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json::object();
  }
  Fusionctl program_;
};

// Measured for one small job: the others are priced by the rates of their ops' classes, which is enough here.
TEST_F(Simulate, TakesWhatPlanPredictsBitForBitOnEveryExample) {
  ASSERT_EQ(program_.Run("bench job.yaml --calibrate -o profiles.json").code, 0);
  int compared = 0;
  for (const std::string& job : YamlFiles("examples/jobs")) {
    for (const std::string& topology : YamlFiles("examples/topologies")) {
      SCOPED_TRACE(job + " " + topology);
      // Several pipelines are one planner's alone.
      const bool full = topology.ends_with("two-sites.yaml") || job.ends_with("gpt2-replicas.yaml");
      const std::string rest = absl::StrCat(" '", job, "' --topology '", topology, "' --profiles profiles.json --strategy ",
                                            full ? "op-fence" : "equal-compute");
      const json plan = Json("plan" + rest), simulation = Json("simulate" + rest);
      ASSERT_TRUE(simulation.contains("step_seconds"));
      EXPECT_EQ(simulation["step_seconds"].get<double>(), plan["predicted_step_seconds"].get<double>());
      for (const json& stage : simulation["stages"]) {
        double sum = 0;
        for (const char* part : {"forward", "backward", "weights", "codec", "update", "idle"}) {
          sum += stage[absl::StrCat(part, "_seconds")].get<double>();
        }
        EXPECT_NEAR(sum, simulation["step_seconds"].get<double>(), 1e-9 * sum);
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, 24);
}

TEST_F(Simulate, DrawsATimelineThatCanBeRead) {
  const Outcome both = program_.Run("simulate job.yaml --topology t.yaml --timeline drawn");
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_THAT(both.err, AllOf(HasSubstr("drawn/timeline.svg"), HasSubstr("drawn/timeline.json")));
  const std::string svg = base::ReadWholeFile(program_.Path("drawn/timeline.svg"));
  EXPECT_EQ(report::testing::XmlProblem(svg), "");
  EXPECT_THAT(svg, HasSubstr("stage 0: "));
  const json trace = json::parse(base::ReadWholeFile(program_.Path("drawn/timeline.json")));
  std::map<std::pair<int, int>, double> free_us;
  std::map<std::pair<int, int>, std::string> names;
  int spans = 0;
  for (const json& event : trace["traceEvents"]) {
    const std::pair<int, int> row(event["pid"].get<int>(), event["tid"].get<int>());
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") names[row] = event["args"]["name"];
      continue;
    }
    ++spans;
    EXPECT_TRUE(names.contains(row));
    EXPECT_GE(event["ts"].get<double>(), free_us[row] - 1e-6) << names[row];
    free_us[row] = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_GE(spans, 2 * (2 * 8 + 1) + 2 * 8);
  EXPECT_EQ(program_.Run("simulate job.yaml --topology t.yaml --timeline only.svg").code, 0);
  EXPECT_EQ(base::ReadWholeFile(program_.Path("only.svg")), svg) << "the same inputs, the same bytes";
  EXPECT_EQ(program_.Run("simulate job.yaml --topology t.yaml --timeline /nonexistent/x.svg").code, 2);
}

TEST_F(Simulate, WhatIfsStandBesideTheStepAsItIs) {
  const std::string what_ifs =
      " --what-if 'link:a<->b.bandwidth=10Mbit' --what-if device:b-0=absent --what-if 'device:a-0.straggler=3,schedule=gpipe'";
  const json simulation = Json("simulate job.yaml --topology t.yaml --strategy equal-ops" + what_ifs);
  ASSERT_EQ(simulation["what_if"].size(), 3);
  for (const json& what_if : simulation["what_if"]) {
    EXPECT_EQ(what_if["before"]["step_seconds"], simulation["step_seconds"]);
    EXPECT_TRUE(what_if["replanned"].contains("plan")) << what_if["change"];
  }
  EXPECT_EQ(simulation["what_if"][2]["replanned"]["schedule"], "gpipe");
  const Outcome text = program_.Run("simulate job.yaml --topology t.yaml --strategy equal-ops" + what_ifs);
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("what if"), HasSubstr("re-planned"), HasSubstr("The step is limited by"),
                              HasSubstr("and the global norm on 2 links")));
  const Outcome model = program_.Run("simulate job.yaml --topology t.yaml --schedule 1f1b-split");
  EXPECT_THAT(model.out, HasSubstr("a model only: the runtime runs gpipe and 1f1b"));
  EXPECT_THAT(program_.Run("simulate job.yaml --topology t.yaml").out, Not(HasSubstr("a model only")));
}

TEST_F(Simulate, AWhatIfOfAnotherBatchSaysTheRate) {
  const std::string command = "simulate job.yaml --topology t.yaml --what-if spec.training.";
  EXPECT_THAT(program_.Run(command + "globalBatchSize=64").out,
              ContainsRegex("globalBatchSize=64: a step then sees 64 images instead of 32: [0-9,.]+ images/s instead of [0-9,.]+"));
  EXPECT_THAT(program_.Run(command + "steps=7").out, Not(HasSubstr("a step then sees")));
}

TEST_F(Simulate, NoiseFollowsTheSeed) {
  const std::string command = "simulate job.yaml --topology t.yaml --jitter 0.2 --straggler a-0:4@0.1 --steps 50 --seed ";
  const json first = Json(command + "1");
  EXPECT_EQ(first["spread"]["steps"], 50);
  json again = Json(command + "1");
  EXPECT_EQ(again["spread"], first["spread"]);
  EXPECT_NE(Json(command + "2")["spread"], first["spread"]);
  EXPECT_THAT(program_.Run(command + "1").out, HasSubstr("50 steps: mean "));
}

TEST_F(Simulate, MistakesAreBadUsageAndRefusalsAreThree) {
  for (const std::string arguments :
       {"--what-if 'link:a->c.bandwidth=1Mbit'", "--what-if device:c-0=absent", "--what-if link:a-", "--schedule zigzag", "--straggler a-0",
        "--jitter -1", "--steps 0", "--steps 1000000000", "--what-if spec.training.microBatchSize=0"}) {
    const Outcome outcome = program_.Run("simulate job.yaml --topology t.yaml " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
  }
  EXPECT_THAT(program_.Run("simulate job.yaml --topology t.yaml --what-if device:c-0=absent").err, HasSubstr("a-0, a-1, b-0"));
  const Outcome refused = program_.Run(
      "--format json simulate job.yaml --topology t.yaml --set spec.strategy.stages=3 --set "
      "'spec.strategy.exclude=[b-0]'");
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_TRUE(json::parse(refused.out).contains("refused"));
}

}  // namespace
}  // namespace fusionllm::cli
