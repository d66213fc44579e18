// fusionctl plan --running as users call it: whether a running plan is left when a device is lost, slows down or joins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/testing/fusionctl.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kRunningJob[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
    "  model: {family: mlp, config: {layers: [192, 2048, 2048, 2048, 2048, 8], activation: relu}}\n"
    "  data: {kind: shapes, shapes: {samples: 4096, imageSize: 8, numClasses: 8}}\n"
    "  training: {steps: 100, globalBatchSize: 4096, microBatchSize: 256}\n";

// GPUs by name: nothing is measured, so the same figures come out everywhere.
constexpr char kSpareTopology[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: gpus}\nspec:\n  sites:\n"
    "  - name: a\n    internal: {bandwidth: 100Gbit, latency: 10us}\n    devices:\n"
    "    - {name: a-0, profile: nvidia-t4}\n    - {name: a-1, profile: nvidia-t4}\n    - {name: a-2, profile: nvidia-t4, role: spare}\n";

class PlanRunningTest : public ::testing::Test {
 protected:
  void SetUp() override {
    program_.Write("job.yaml", kRunningJob);
    program_.Write("t.yaml", kSpareTopology);
    const Outcome planned = program_.Run("--format json plan job.yaml --topology t.yaml");
    ASSERT_EQ(planned.code, 0) << planned.err;
    program_.Write("plan.json", planned.out);
    plan_ = json::parse(planned.out);
    ASSERT_EQ(plan_["stages"].size(), 2u) << planned.out;
  }
  // Under `topology`, with further arguments.
  json Ask(const std::string& topology, const std::string& arguments = "") {
    program_.Write("now.yaml", topology);
    const Outcome outcome = program_.Run(absl::StrCat("--format json plan job.yaml --topology now.yaml --running plan.json ", arguments));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json::object();
  }

  Fusionctl program_;
  json plan_;
};

TEST_F(PlanRunningTest, StaysWhereNothingHasChanged) {
  const json answer = Ask(kSpareTopology);
  EXPECT_EQ(answer["decision"], "stay") << answer["reason"];
  EXPECT_EQ(answer["plan"]["stages"], plan_["stages"]);
  EXPECT_EQ(answer["running_step_seconds"], plan_["predicted_step_seconds"]);
  EXPECT_TRUE(answer["migration"]["moved"].empty());
}

TEST_F(PlanRunningTest, TheSpareTakesWhatALostDeviceRan) {
  const json answer = Ask(absl::StrReplaceAll(kSpareTopology, {{"    - {name: a-1, profile: nvidia-t4}\n", ""}}));
  EXPECT_EQ(answer["decision"], "must-move");
  EXPECT_TRUE(answer["running_step_seconds"].is_null());
  EXPECT_THAT(answer["reason"].get<std::string>(), HasSubstr("a-1 is not there any more"));
  ASSERT_FALSE(answer["migration"]["moved"].empty());
  for (const json& move : answer["migration"]["moved"]) {
    EXPECT_TRUE(move["from"].is_null());
    EXPECT_EQ(move["to"], "a-2");
  }
}

TEST_F(PlanRunningTest, AFasterDeviceThatJoinsIsWorthAMoveOnlyForLong) {
  const std::string joined = absl::StrCat(kSpareTopology, "    - {name: a-3, profile: nvidia-h100-sxm}\n");
  const json soon_over = Ask(joined, "--steps-left 1 --move-seconds 60");
  EXPECT_EQ(soon_over["decision"], "stay") << soon_over["reason"];
  const json long_run = Ask(joined, "--steps-left 1000000 --move-seconds 60");
  EXPECT_EQ(long_run["decision"], "move") << long_run["reason"];
  EXPECT_GT(long_run["gain_seconds"], 0);
  EXPECT_LT(long_run["plan"]["predicted_step_seconds"], long_run["running_step_seconds"]);
  const Outcome text = program_.Run("plan job.yaml --topology now.yaml --running plan.json --steps-left 1000000 --move-seconds 60");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("move: "));
  EXPECT_THAT(text.out, HasSubstr("a-3"));
}

TEST_F(PlanRunningTest, RefusesWhatIsNoPlanOfThisJob) {
  const auto error = [&](const std::string& arguments) {
    const Outcome outcome = program_.Run("plan job.yaml --topology t.yaml " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(error("--running nowhere.json"), HasSubstr("nowhere.json"));
  program_.Write("torn.json", plan_.dump().substr(0, 100));
  EXPECT_THAT(error("--running torn.json"), HasSubstr("torn.json: plan"));
  program_.Write("refused.json", R"({"refused":{"reason":"NoOps","message":"none","shortfall":{}}})");
  EXPECT_THAT(error("--running refused.json"), HasSubstr("refused.json"));
  EXPECT_THAT(error("--running plan.json --steps-left -3"), HasSubstr("--steps-left"));
  for (const char* option : {"--step-seconds", "--move-seconds"}) {
    EXPECT_THAT(error(absl::StrCat("--running plan.json ", option, " 1e308")), HasSubstr(option));
  }
  json other = plan_;
  other["micro_batches"] = plan_["micro_batches"].get<int>() + 1;
  program_.Write("other.json", other.dump());
  EXPECT_THAT(error("--running other.json"), HasSubstr("plan.micro_batches"));
  EXPECT_THAT(error("--running plan.json --strategy equal-ops"), HasSubstr("--strategy equal-ops"));
  EXPECT_THAT(error("--running plan.json --set spec.model.config.layers=[192,16,8]"), HasSubstr("plan.graph_hash"));
}

}  // namespace
}  // namespace fusionllm::cli
