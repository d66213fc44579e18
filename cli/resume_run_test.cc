// fusionctl run: what is reported of a run that goes on from its checkpoint when its files or its steps are not what they were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/testing/fusionctl_test.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class GoingOnTest : public FusionctlTest {
 protected:
  GoingOnTest() { Write("text.txt", std::string(400, 'x')); }

  std::string changed_;  // what was said to have changed last
};

TEST_F(GoingOnTest, AFileWhoseContentHasChangedSinceTheCheckpointIsNamed) {
  const std::string graph =
      "graph \"net\" {\n  tokens = placeholder() {role=\"tokens\", dtype=\"i32\", shape=[b, 16]}\n"
      "  next = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b, 16]}\n"
      "  embed = embedding(tokens) {vocab=256, dim=8}\n  act = relu(embed)\n  logits = linear(act) {out=256}\n"
      "  loss = cross_entropy(logits, next)\n  return loss\n}\n";
  Write("net.dag", graph);
  Write("net.yaml",
        "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: net}\nspec:\n"
        "  model: {graph: {file: net.dag}}\n  data: {kind: text, path: [text.txt]}\n"
        "  training: {globalBatchSize: 4, microBatchSize: 2, sequenceLength: 16, schedule: {name: constant}}\n"
        "  checkpoint: {path: kept}\n");
  const auto run = [&](const std::string& output, const std::string& more) {
    const Outcome outcome = Run(absl::StrCat("run net.yaml --format json --output ", output, " --set spec.training.steps=", more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  run("out", "1");
  EXPECT_THAT(run("out", "2"), Not(HasSubstr("JobChanged")));
  Write("net.dag", absl::StrReplaceAll(graph, {{"relu", "gelu"}}));
  EXPECT_THAT(run("out", "3"), AllOf(HasSubstr("JobChanged"), HasSubstr("what spec.model.graph.file names holds")));
  const std::string start = " --set spec.model.init.from=start.safetensors";
  const auto export_step = [&](const char* step) {
    fs::remove(Path("start.safetensors"));
    EXPECT_EQ(Run(absl::StrCat("checkpoint export out/kept/", step, " start.safetensors")).code, 0);
  };
  export_step("step-000001");
  run("new", "1" + start);
  export_step("step-000003");
  EXPECT_THAT(run("new", "2" + start), AllOf(HasSubstr("JobChanged"), HasSubstr("what spec.model.init.from names holds")));
}

// The rate falls to its least at the last step, so one that is trained longer falls more slowly: from the checkpoint on, not from its own
// beginning.
TEST_F(GoingOnTest, ExtendedScheduleContinuesAsIfPlannedFromTheStart) {
  const auto rates = [&](const std::string& output, const char* steps) {
    const Outcome outcome =
        Run(absl::StrCat("run job.yaml --format json --output ", output, " --set 'spec.checkpoint={path: kept}' ",
                         "--set 'spec.training.schedule={name: cosine, warmupSteps: 2}' --set spec.training.steps=", steps));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::map<int64_t, double> found;
    for (const absl::string_view line : absl::StrSplit(outcome.out, '\n', absl::SkipEmpty())) {
      const nlohmann::json parsed = nlohmann::json::parse(line);
      if (parsed.value("type", "") == "step") found[parsed["step"]] = parsed["learning_rate"];
      if (parsed.value("reason", "") == "JobChanged") changed_ = parsed["message"];
    }
    return found;
  };
  const auto whole = rates("whole", "12");
  ASSERT_EQ(whole.size(), 12u);
  const auto first = rates("parts", "6");
  EXPECT_EQ(first.at(2), whole.at(2)) << "of the warm-up";
  EXPECT_LT(first.at(6), whole.at(6));
  EXPECT_EQ(changed_, "");
  const auto rest = rates("parts", "12");
  ASSERT_EQ(rest.size(), 6u);
  for (const auto& [step, rate] : rest) EXPECT_EQ(rate, whole.at(step)) << step;
  EXPECT_THAT(changed_, AllOf(HasSubstr("spec.training.steps 6 -> 12"), HasSubstr("the learning rate of step 7 is ")));
}

}  // namespace
}  // namespace fusionllm::cli
