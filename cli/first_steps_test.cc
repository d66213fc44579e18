// What a newcomer types first: explain, init, run --dry-run.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/testing/fusionctl_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/parse.h"
#include "lib/models/families.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FirstStepsTest : public FusionctlTest {
 protected:
  FirstStepsTest() {
    Write("text.txt", std::string(40'000, 'x'));
    std::string ids;
    for (int i = 0; i < 20'000; ++i) ids += {static_cast<char>(i % 200), '\1'};
    Write("ids.bin", ids);  // uint16, 256 to 455
    std::string cifar;
    for (int i = 0; i < 80; ++i) cifar.append(1, static_cast<char>(i % 10)).append(3072, 'x');
    Write("data_batch_1.bin", cifar);
    const std::string extent("\0\0\0\x50", 4), side("\0\0\0\x1c", 4);
    Write("train-images-idx3-ubyte", std::string("\0\0\x08\x03", 4) + extent + side + side + std::string(80 * 28 * 28, 'x'));
    Write("train-labels-idx1-ubyte", std::string("\0\0\x08\x01", 4) + extent + std::string(80, '\3'));
  }
};

TEST_F(FirstStepsTest, ExplainSaysWhatAFieldMeans) {
  const Outcome text = Run("explain spec.training.optimizer");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("spec.training.optimizer  <mapping>"), HasSubstr("learningRate")));
  const Outcome wrong = Run("explain spec.training.lr");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean spec.training.optimizer.learningRate?"));
  EXPECT_EQ(wrong.out, "");
}

TEST_F(FirstStepsTest, ExplainSaysWhatHoldsForAJob) {
  Write("small.yaml",
        "{apiVersion: fusionllm.io/v1alpha1, kind: FusionJob, metadata: {name: t}, spec: {model: {family: gpt2, preset: small}, "
        "data: {kind: text, path: [text.txt]}}}");
  const std::string field = "explain spec.training.optimizer.learningRate";
  EXPECT_THAT(Run(field).out, HasSubstr("What holds for a job: fusionctl explain spec.training.optimizer.learningRate --job JOB.yaml\n"));
  EXPECT_THAT(Run(field + " --job small.yaml").out, HasSubstr("\nIn small.yaml it is 6.0e-04.\n"));
  EXPECT_THAT(Run(field + " --job small.yaml --set spec.model.preset=xl").out, HasSubstr("In small.yaml it is 2.0e-04.\n"));
  EXPECT_EQ(json::parse(Run(field + " --job small.yaml --format json").out)["value"], 6e-4);
  EXPECT_THAT(Run("explain spec.checkpoint.path --job small.yaml").out, HasSubstr("In small.yaml it is not set.\n"));
  EXPECT_THAT(Run("explain spec.training.optimizer --job small.yaml").out,
              HasSubstr("\nIn small.yaml it is:\nname: adamw\nlearningRate: 6.0e-04\n"));
  const std::string pins =
      "explain spec.strategy.pins --job small.yaml --set 'spec.strategy.pins=[{ops: \"h.0.*\", device: a}, {ops: \"h.1.*\", device: b}]'";
  EXPECT_THAT(Run(pins).out, HasSubstr("\nIn small.yaml it is:\n- ops: \"h.0.*\"\n  device: a\n- ops: \"h.1.*\"\n"));
  const std::string element = absl::StrReplaceAll(pins, {{"spec.strategy.pins --job", "'spec.strategy.pins[0].ops' --job"}});
  EXPECT_THAT(Run(element).out, HasSubstr("\nIn small.yaml spec.strategy.pins is:\n- ops: \"h.0.*\"\n")) << "of a list all of it";
  EXPECT_EQ(Run(field + " --job none.yaml").code, 2);
}

TEST_F(FirstStepsTest, ExplainAnswersProgramsInJson) {
  const json field = json::parse(Run("explain spec.training.optimizer --format json").out);
  EXPECT_EQ(field["path"], "spec.training.optimizer");
  ASSERT_EQ(field["fields"][0]["path"], "spec.training.optimizer.name");
  EXPECT_EQ(field["fields"][0]["choices"], json({"adamw", "sgd"}));
  EXPECT_EQ(field["fields"][1]["minimum"], 0);
  EXPECT_EQ(field["fields"][1]["default_depends"], true);
  const json all = json::parse(Run("explain --recursive --format json").out);
  EXPECT_EQ(all["path"], "");
  EXPECT_EQ(json::parse(Run("explain spec.strategy.pins --format json").out)["fields"][0]["path"], "spec.strategy.pins[].ops");
}

TEST_F(FirstStepsTest, AJobHasNoFieldsOfTopologies) {
  Write("text.txt", std::string(400, 'x'));
  const Outcome outcome = Run("explain topology.spec.sites --job job.yaml");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--job: a job has no field topology.spec.sites"));
}

TEST_F(FirstStepsTest, CompletionKnowsFieldsAndHelpDoesNotListThem) {
  EXPECT_THAT(Run("completion bash").out, HasSubstr(" spec.training.optimizer.learningRate "));
  EXPECT_EQ(Run("explain --help").out.find("weightDecay"), std::string::npos);
}

TEST_F(FirstStepsTest, EveryJobThatInitWritesPassesADryRun) {
  const std::string profiles = Calibrated();  // of another job: how good the plans are is no matter here
  const std::pair<job::DataKind, const char*> files[] = {{job::DataKind::kText, "text.txt"},
                                                         {job::DataKind::kTokens, "ids.bin"},
                                                         {job::DataKind::kCifar10, "data_batch_1.bin"},
                                                         {job::DataKind::kIdx, "train-images-idx3-ubyte train-labels-idx1-ubyte"},
                                                         {job::DataKind::kShapes, ""}};
  std::vector<std::string> commands;
  for (const models::Family* family : models::AllFamilies()) {
    for (const auto& [kind, paths] : files) {
      if (models::SamplesOf(kind) != family->facts().samples) continue;
      commands.push_back(absl::StrCat("--family ", family->name(), " --data ", job::ToString(kind), " ", paths));
    }
  }
  commands.emplace_back("--family mlp");
  for (const std::string& what : commands) {
    const Outcome made = Run(absl::StrCat("init ", what, " -o made.yaml --force"));
    ASSERT_EQ(made.code, 0) << what << "\n" << made.err;
    EXPECT_THAT(made.err, HasSubstr("fusionctl run made.yaml --dry-run")) << what;
    const Outcome dry = Run("run made.yaml --dry-run --profiles " + profiles);
    EXPECT_EQ(dry.code, 0) << what << "\n" << dry.err;
    EXPECT_THAT(dry.out, HasSubstr("stage")) << what;
    EXPECT_THAT(dry.err, AllOf(HasSubstr("dry run: training: "), HasSubstr("learning rate "), HasSubstr("nothing was started"))) << what;
  }
  EXPECT_FALSE(std::filesystem::exists(Path("runs")));
}

TEST_F(FirstStepsTest, InitPrintsToStdoutAndKeepsFilesThatAreThere) {
  const Outcome printed = Run("init text.txt");
  EXPECT_EQ(printed.code, 0) << printed.err;
  EXPECT_TRUE(job::ParseFusionJob(printed.out, "stdout").ok()) << printed.out;
  EXPECT_THAT(printed.out, HasSubstr("path: [text.txt]"));
  const Outcome kept = Run("init text.txt -o job.yaml");
  EXPECT_EQ(kept.code, 2);
  EXPECT_THAT(kept.err, HasSubstr("job.yaml exists; --force replaces it"));
}

TEST_F(FirstStepsTest, AJobIsWrittenBeforeItsDataIsThere) {
  const Outcome made = Run("init --data tokens corpus.bin -o job2.yaml");
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("note: corpus.bin does not exist yet"));
  EXPECT_EQ(job::LoadFusionJob(Path("job2.yaml"))->spec.data.path[0], Path("corpus.bin"));
  EXPECT_THAT(Run("init text.txt").err, Not(HasSubstr("note:")));
}

TEST_F(FirstStepsTest, InitTakesAPresetAndHelpListsThem) {
  EXPECT_THAT(Run("init --help").out, AllOf(HasSubstr("--preset NAME"), HasSubstr("tiny, small, medium, large, xl")));
  for (const char* preset : {"tiny", "small", "medium", "large", "xl"}) {
    const Outcome made = Run(absl::StrCat("init --data tokens ids.bin --preset ", preset));
    ASSERT_EQ(made.code, 0) << made.err;
    const job::FusionJob job = *job::ParseFusionJob(made.out, "stdout");
    EXPECT_EQ(job.spec.model.preset, preset);
    EXPECT_EQ(job.spec.training.sequence_length, std::string(preset) == "tiny" ? 128 : 1024);
  }
  EXPECT_EQ(job::ParseFusionJob(Run("init --family resnet --preset 50").out, "stdout")->spec.model.preset, "50");
}

TEST_F(FirstStepsTest, PathsOfAJobElsewhereStillLeadToTheData) {
  std::filesystem::create_directories(Path("jobs"));
  ASSERT_EQ(Run("init text.txt -o jobs/far.yaml").code, 0);
  EXPECT_EQ(job::LoadFusionJob(Path("jobs/far.yaml"))->spec.data.path[0], Path("text.txt"));
}

TEST_F(FirstStepsTest, InitRefusesWhatDoesNotFitTogether) {
  const struct {
    const char* arguments;
    const char* said;
  } cases[] = {{"init --family gpt2 --data shapes", "family gpt2 trains on text or tokens"},
               {"init --family resnet --data text text.txt", "family resnet trains on images"},
               {"init", "PATH is required"},
               {"init --family mlp text.txt", "leave PATH out"},
               {"init --family llama text.txt", "llama not in {gpt2,resnet,mlp}; another model, a Llama too"},
               {"init --family llama text.txt", "spec.model.graph (docs/tasks/own-graph.md"},
               {"init --family gpt text.txt", "did you mean gpt2?"}};
  for (const auto& c : cases) {
    const Outcome outcome = Run(c.arguments);
    EXPECT_EQ(outcome.code, 2) << c.arguments;
    EXPECT_THAT(outcome.err, HasSubstr(c.said)) << c.arguments;
  }
}

TEST_F(FirstStepsTest, ADryRunStartsNothingAndPrintsThePlan) {
  const std::string profiles = Calibrated();
  const Outcome text = Run(absl::StrCat("run job.yaml --topology topology.yaml --dry-run --output out --profiles ", profiles));
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out, Run(absl::StrCat("plan job.yaml --topology topology.yaml --profiles ", profiles)).out);
  const Outcome line = Run("run job.yaml --topology topology.yaml --dry-run --format json --profiles " + profiles);
  EXPECT_EQ(line.code, 0) << line.err;
  const json plan = json::parse(line.out);
  EXPECT_EQ(plan["type"], "plan");
  EXPECT_GT(plan["predicted_step_seconds"], 0);
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
  EXPECT_FALSE(std::filesystem::exists(Path("runs")));
}

TEST_F(FirstStepsTest, KubernetesOnlyFieldsAreWarnedOfOnce) {
  const std::string profiles = Calibrated();
  constexpr char kSaid[] = "fusionctl: warning: --set spec.placement.device has no effect here: only Kubernetes reads it";
  const std::string set = absl::StrCat(" --set spec.placement.device=cuda --topology topology.yaml --profiles ", profiles);
  for (const char* command : {"run job.yaml --dry-run", "plan job.yaml", "simulate job.yaml", "run job.yaml --output out"}) {
    const Outcome outcome = Run(command + set);
    EXPECT_EQ(outcome.code, 0) << command << outcome.err;
    const size_t at = outcome.err.find(kSaid);
    ASSERT_NE(at, std::string::npos) << command << outcome.err;
    EXPECT_EQ(outcome.err.find(kSaid, at + 1), std::string::npos) << command;
  }
}

TEST_F(FirstStepsTest, ADryRunEndsAsTheRunWould) {
  const std::string profiles = Calibrated();
  EXPECT_EQ(Run("run job.yaml --dry-run --set spec.training.lr=1").code, 2);
  EXPECT_EQ(Run("run job.yaml --dry-run --set spec.data.path=[nowhere]").code, 2);
  EXPECT_EQ(Run("run job.yaml --dry-run --listen 127.0.0.1:0").code, 2);
  EXPECT_EQ(Run("run job.yaml --dry-run --device cpu,cpu").code, 2);
  EXPECT_EQ(Run("run job.yaml --dry-run --topology topology.yaml --device cpu").code, 2);
  const Outcome refused = Run("run job.yaml --dry-run --set spec.executors.min=2 --profiles " + profiles);
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("no plan"));
}

}  // namespace
}  // namespace fusionllm::cli
