// What is wrong with a job is reported before anything is measured or started, with its place and what to write instead.
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/testing/fusionctl_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class EarlyRefusalsTest : public FusionctlTest {
 protected:
  EarlyRefusalsTest() {
    Write("text.txt", std::string(4'000, 'x'));
    Write("pinned.yaml",
          absl::StrCat(kJob, "  strategy:\n    pins:\n    - {ops: block.0.*, device: a-0}\n    - {ops: block.1.*, device: c-0}\n"));
  }
};

constexpr char kWithTopology[] = " --topology topology.yaml";

TEST_F(EarlyRefusalsTest, NamesThatAClusterRefusesAreRefused) {
  for (const char* name : {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "2026-run", "run.v1", "Run", "run-"}) {
    for (const char* command :
         {"plan job.yaml --set metadata.name=", "run job.yaml --output out --set metadata.name=", "init text.txt --name "}) {
      const Outcome outcome = Run(absl::StrCat(command, name));
      EXPECT_EQ(outcome.code, 2) << command << name;
      EXPECT_THAT(outcome.err, HasSubstr("at most 37 lower-case letters")) << command << name;
    }
  }
}

TEST_F(EarlyRefusalsTest, ADocumentOfRemarksIsNoneAndTwoJobsAreRefused) {
  Write("remarks.yaml", absl::StrCat("---\n# remark\n---\n", kJob, "---\n# remark\n"));
  EXPECT_EQ(Run("plan remarks.yaml").code, 0);
  Write("two.yaml", absl::StrCat(kJob, "---\n", kJob));
  const Outcome two = Run("plan two.yaml");
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, HasSubstr("a second document: one file holds one document"));
}

TEST_F(EarlyRefusalsTest, APinToNoDeviceNamesLineAndDevices) {
  for (const char* command : {"plan pinned.yaml", "simulate pinned.yaml", "run pinned.yaml --output out", "run pinned.yaml --dry-run",
                              "graph pinned.yaml --plan -o out.svg"}) {
    const Outcome outcome = Run(absl::StrCat(command, kWithTopology));
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_EQ(
        outcome.err,
        "fusionctl: pinned.yaml:11: spec.strategy.pins[1].device: no device of topology two is named c-0; did you mean a-0? there are "
        "a-0, a-1, b-0\n")
        << command;
    EXPECT_EQ(outcome.out, "") << command;
  }
  EXPECT_FALSE(std::filesystem::exists(Path("out"))) << "nothing was started";
}

TEST_F(EarlyRefusalsTest, ADeviceThatIsCalledLikeAServiceIsRefusedWithItsLineEverywhere) {
  Write("t.yaml", absl::StrReplaceAll(kTopology, {{"a-1", "Broker"}}));
  for (const char* command : {"plan job.yaml", "run job.yaml --dry-run", "run job.yaml --output out", "simulate job.yaml"}) {
    const Outcome outcome = Run(absl::StrCat(command, " --topology t.yaml"));
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_EQ(outcome.err,
              "fusionctl: t.yaml:6: spec.sites[0].devices[1].name: the name 'Broker' is taken: a process of every run is called broker\n");
  }
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
}

TEST_F(EarlyRefusalsTest, APinOfNoOpNamesTheOverrideAndOps) {
  for (const char* command : {"plan job.yaml", "simulate job.yaml", "run job.yaml --output out", "run job.yaml --dry-run"}) {
    const Outcome outcome = Run(absl::StrCat(command, kWithTopology, " --set 'spec.strategy.pins=[{ops: blok.*, device: a-0}]'"));
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("--set spec.strategy.pins: spec.strategy.pins[0].ops: no op of the model matches 'blok.*'"),
                                   HasSubstr("did you mean block.*?"), Not(HasSubstr("measuring"))))
        << command;
  }
}

TEST_F(EarlyRefusalsTest, ThisMachineIsADeviceToo) {
  for (const char* command : {"plan pinned.yaml", "run pinned.yaml --output out"}) {
    const Outcome outcome = Run(command);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_THAT(outcome.err,
                HasSubstr("pinned.yaml:10: spec.strategy.pins[0].device: no device of this machine is named a-0; there is local-0"))
        << command;
  }
  EXPECT_THAT(Run("run pinned.yaml --output out --device cpu,cpu").err, HasSubstr("there are local-0, local-1"));
}

TEST_F(EarlyRefusalsTest, MachinesThatJoinAreNotKnownButOpsAre) {
  const Outcome outcome = Run(
      "run job.yaml --output out --listen 127.0.0.1:0 --join-timeout-seconds 1 --set 'spec.strategy.pins=[{ops: blok.*, device: any}]'");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("did you mean block.*?"), Not(HasSubstr("waiting for executors"))));
}

TEST_F(EarlyRefusalsTest, ADeviceToLeaveOutThatIsNotThereIsWarnedOfWithTheNearest) {
  const Outcome outcome = Run(absl::StrCat(
      "plan job.yaml --set spec.strategy.exclude=[b0] --set 'spec.strategy.pins=[{ops: blok.*, device: a-0}]'", kWithTopology));
  EXPECT_THAT(outcome.err,
              HasSubstr("warning: --set spec.strategy.exclude: topology two has no device 'b0', so none is left out for it; did "
                        "you mean b-0?"));
}

TEST_F(EarlyRefusalsTest, NamesOfChangesToSimulateHaveTheNearest) {
  const std::string rest = absl::StrCat(kWithTopology, " --profiles ", Calibrated());
  EXPECT_THAT(Run(absl::StrCat("simulate job.yaml --straggler a0:2", rest)).err,
              HasSubstr("no device 'a0'; did you mean a-0? there are a-0, a-1"));
  EXPECT_THAT(Run(absl::StrCat("simulate job.yaml --what-if device:b0=absent", rest)).err, HasSubstr("did you mean b-0?"));
}

TEST_F(EarlyRefusalsTest, TooFewExecutorsEndADryRunWithTheAdviceOfTheRun) {
  const std::string set = absl::StrCat(" --set spec.strategy.stages=2 --profiles ", Calibrated());
  const Outcome run = Run("run job.yaml --output out" + set), dry = Run("run job.yaml --dry-run" + set);
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(dry.code, 3);
  const std::string advice =
      "To have enough executors, start them on this machine by --device cpu,cpu, or by --topology FILE with 2 or more";
  EXPECT_THAT(run.err, HasSubstr(advice));
  EXPECT_THAT(dry.err, HasSubstr(advice));
}

TEST_F(EarlyRefusalsTest, TooFewExecutorsOfATopologyAreAdvisedOnEverywhere) {
  const std::string set = absl::StrCat(" --set spec.strategy.stages=4 --profiles ", Calibrated(), kWithTopology);
  for (const char* command : {"run job.yaml --dry-run", "plan job.yaml", "simulate job.yaml"}) {
    const Outcome outcome = Run(command + set);
    EXPECT_EQ(outcome.code, 3) << command;
    EXPECT_THAT(outcome.err, HasSubstr("To have enough executors, give topology two 4 devices that may train, it has 3")) << command;
  }
}

TEST_F(EarlyRefusalsTest, DataThatIsNotThereIsSaidOfTheOverrideThatNamesIt) {
  std::filesystem::create_directories(Path("jobs"));
  Write("jobs/job.yaml", kJob);
  const Outcome here = Run("run job.yaml --dry-run --set spec.data.path=nowhere.txt");
  EXPECT_EQ(here.code, 2);
  EXPECT_EQ(here.err, absl::StrCat("fusionctl: --set spec.data.path: ", Path("nowhere.txt"), " does not exist\n"));
  EXPECT_EQ(Run("run jobs/job.yaml --dry-run").err, absl::StrCat("fusionctl: jobs/job.yaml:6: spec.data.path: ", Path("jobs/text.txt"),
                                                                 " does not exist; paths in a job are relative to the folder of its file: "
                                                                 "write ",
                                                                 Path("text.txt"), "\n"));
  Write("short.txt", "x");
  EXPECT_THAT(Run("run job.yaml --dry-run --set spec.data.path=short.txt").err, HasSubstr("--set spec.data.path: the data has 1 tokens"));
}

TEST_F(EarlyRefusalsTest, AFolderForCheckpointsThatKeepsNothingIsRefusedByRunAndDryRunAlike) {
  Write("kept.yaml", absl::StrCat(kJob, "  checkpoint: {path: /proc/kept}\n"));
  const Outcome dry = Run("run kept.yaml --dry-run"), run = Run("run kept.yaml --output out");
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(dry.code, 2);
  EXPECT_EQ(run.err,
            "fusionctl: kept.yaml:8: spec.checkpoint.path: cannot make the folder /proc/kept: /proc is of the kernel and keeps no files\n");
  EXPECT_EQ(dry.err, run.err);
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
}

TEST_F(EarlyRefusalsTest, ANameOfTheHubIsNoFolder) {
  for (const char* name : {"gpt2", "openai-community/gpt2"}) {
    const Outcome outcome = Run(absl::StrCat("run job.yaml --dry-run --set spec.model.init.from=", name));
    EXPECT_EQ(outcome.code, 2) << name;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("--set spec.model.init.from: "), HasSubstr("does not exist"),
                                   HasSubstr(absl::StrCat("`hf download ", name, " --local-dir gpt2`"))))
        << name;
  }
  EXPECT_THAT(Run("run job.yaml --dry-run --set spec.model.init.from=start.safetensors").err, Not(HasSubstr("hf download")));
}

constexpr char kImageGraph[] =
    "graph \"mlp\" {\n"
    "  images = placeholder() {dtype=\"f32\", role=\"images\", shape=[b, 28, 28, 3]}\n"
    "  labels = placeholder() {dtype=\"i32\", role=\"labels\", shape=[b]}\n"
    "  flat = flatten(images)\n"
    "  head = linear(flat) {out=10}\n"
    "  loss = cross_entropy(head, labels)\n"
    "  return loss\n"
    "}\n";
constexpr char kGraphJob[] =
    "apiVersion: fusionllm.io/v1alpha1\n"
    "kind: FusionJob\n"
    "metadata: {name: graph}\n"
    "spec:\n"
    "  model: {graph: {file: model.dag}}\n"
    "  data: {kind: shapes, shapes: {samples: 100, imageSize: 8, numClasses: 4}}\n"
    "  training: {steps: 1, globalBatchSize: 4, microBatchSize: 2}\n";

TEST_F(EarlyRefusalsTest, DataThatDoesNotFitAGraphNamesBothPlacesAndTheShape) {
  Write("model.dag", kImageGraph);
  Write("graph.yaml", kGraphJob);
  for (const char* command : {"plan graph.yaml", "run graph.yaml --dry-run"}) {
    const Outcome outcome = Run(command);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_EQ(outcome.err,
              absl::StrCat("fusionctl: graph.yaml:6: spec.data: ", Path("model.dag"),
                           ":2:3: op 'images' wants f32[2, 28, 28, 3] for 2 samples, but one sample of spec.data is f32[8, 8, 3], "
                           "so they are f32[2, 8, 8, 3] or, flat, f32[2, 192]; write shape=[b, 8, 8, 3] or [b, 192] there, or "
                           "choose other data\n"))
        << command;
  }
  EXPECT_THAT(Run("plan graph.yaml --set 'spec.data={kind: text, path: [text.txt]}'").err,
              HasSubstr(absl::StrCat("--set spec.data: spec.data.kind: text gives tokens, and the graph reads images (", Path("model.dag"),
                                     ":2:3: placeholder 'images'")));
}

TEST_F(EarlyRefusalsTest, AnUnusedParameterIsRefusedWithTheLineOfItsOp) {
  Write("model.dag", absl::StrReplaceAll(
                         kImageGraph, {{"[b, 28, 28, 3]", "[b, 192]"}, {"  return loss", "  idle = linear(flat) {out=3}\n  return loss"}}));
  Write("graph.yaml", kGraphJob);
  EXPECT_THAT(Run("plan graph.yaml").err, HasSubstr(absl::StrCat(Path("model.dag"), ":7:3: parameter 'idle.weight' is trainable")));
}

TEST_F(EarlyRefusalsTest, EmbeddingsOfFrozenZerosThatNothingFillsAreWarnedOf) {
  constexpr char kText[] =
      "graph \"lm\" {\n"
      "  tokens = placeholder() {role=\"tokens\", dtype=\"i32\", shape=[b, 16]}\n"
      "  next = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b, 16]}\n"
      "  embed = embedding(tokens; @wte, @wpe) {vocab=256, dim=8, positions=16}\n"
      "  cos = embedding(tokens; @rope.zero, @rope.cos) {vocab=256, dim=8, positions=16}\n"
      "  turned = mul(embed, cos)\n"
      "  logits = linear(turned) {out=256}\n"
      "  loss = cross_entropy(logits, next)\n"
      "  param @rope.zero f32[256, 8] zeros frozen\n"
      "  param @rope.cos f32[16, 8] zeros frozen\n"
      "  return loss\n"
      "}\n";
  Write("model.dag", kText);
  const std::string run = "run job.yaml --dry-run --set 'spec.model={graph: {file: model.dag}}'";
  const Outcome outcome = Run(run);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("spec.model.graph: embedding 'cos': tables of frozen zeros, which no"));
  EXPECT_THAT(Run(run + " --set spec.training.steps=0").err, Not(HasSubstr("frozen zeros"))) << "to be filled after that";
  Write("model.dag", absl::StrReplaceAll(kText, {{"@rope.cos f32[16, 8] zeros frozen", "@rope.cos f32[16, 8] normal(0.1) frozen"}}));
  EXPECT_THAT(Run(run).err, Not(HasSubstr("frozen zeros"))) << "one of two tables may be zero";
}

TEST_F(EarlyRefusalsTest, ProbabilitiesWhereALossWantsLogitsAreWarnedOf) {
  const std::string graph = absl::StrReplaceAll(kImageGraph, {{"[b, 28, 28, 3]", "[b, 192]"}});
  Write("model.dag", absl::StrReplaceAll(graph, {{"  loss = cross_entropy(head",
                                                  "  probabilities = softmax(head)\n  loss = cross_entropy(probabilities"}}));
  Write("graph.yaml", kGraphJob);
  constexpr char kWarning[] =
      "spec.model.graph: cross_entropy 'loss' takes the softmax of its logits itself, and 'probabilities' is a softmax";
  EXPECT_THAT(Run("run graph.yaml --dry-run").err, HasSubstr(kWarning));
  EXPECT_THAT(Run("plan graph.yaml").err, HasSubstr(kWarning));
  Write("model.dag", graph);
  const Outcome logits = Run("run graph.yaml --dry-run");
  EXPECT_EQ(logits.code, 0) << logits.err;
  EXPECT_THAT(logits.err, Not(HasSubstr("softmax")));
}

TEST_F(EarlyRefusalsTest, LabelsThatNothingReadsAreWarnedOf) {
  constexpr char kText[] =
      "graph \"lm\" {\n"
      "  tokens = placeholder() {role=\"tokens\", dtype=\"i32\", shape=[b, 16]}\n"
      "  next = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b, 16]}\n"
      "  embed = embedding(tokens) {vocab=256, dim=8, positions=16}\n"
      "  logits = linear(embed) {out=256}\n"
      "  loss = cross_entropy(logits, tokens)\n"
      "  return loss\n"
      "}\n";
  Write("model.dag", kText);
  const std::string run = "run job.yaml --dry-run --set 'spec.model={graph: {file: model.dag}}'";
  EXPECT_THAT(Run(run).err, HasSubstr("spec.model.graph: nothing reads the placeholder 'next' (labels)"));
  Write("model.dag", absl::StrReplaceAll(kText, {{"(logits, tokens)", "(logits, next)"}}));
  const Outcome good = Run(run);
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_THAT(good.err, Not(HasSubstr("nothing reads")));
}

TEST_F(EarlyRefusalsTest, CopiesInTheDataAreWarnedOf) {
  std::filesystem::create_directories(Path("corpus"));
  for (const char* name : {"corpus/GPL", "corpus/GPL-3"}) Write(name, std::string(4'000, 'g'));
  Write("val.txt", std::string(4'000, 'g'));
  const std::string set = "run job.yaml --dry-run --set spec.data.path=corpus";
  EXPECT_THAT(Run(set + " --set spec.data.validation.fraction=0.1").err,
              HasSubstr("spec.data.path: GPL-3 is a copy of GPL, by size and by both ends; then copied data counts as often, and what is "
                        "held out for validation is "
                        "trained on, too"));
  EXPECT_THAT(
      Run("run job.yaml --dry-run --set spec.data.path=corpus/GPL --set spec.data.validation.path=val.txt").err,
      HasSubstr("spec.data.validation.path: val.txt is a copy of GPL, by size and by both ends; then the validation loss says little"));
}

TEST_F(EarlyRefusalsTest, APlanNeedsNoData) {
  const std::string rest = absl::StrCat(kWithTopology, " --set 'spec.data={kind: tokens, path: [corpus.bin]}' --profiles ", Calibrated());
  for (const char* command : {"plan job.yaml", "simulate job.yaml"}) {
    const Outcome outcome = Run(command + rest);
    EXPECT_EQ(outcome.code, 0) << command << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("stage")) << command;
  }
  EXPECT_EQ(Run("run job.yaml --dry-run" + rest).code, 2) << "a run reads it";
}

TEST_F(EarlyRefusalsTest, APlanForAStartThatIsNotThereSaysWhatItTakes) {
  const std::string rest = absl::StrCat(" --set spec.model.init.from=hf --profiles ", Calibrated());
  EXPECT_THAT(Run("plan job.yaml" + rest).err, Not(HasSubstr("warning"))) << "the job says all sizes";
  Write("bare.yaml", absl::StrReplaceAll(kJob, {{", preset: tiny", ""}, {"nLayer: 2, ", ""}}));
  EXPECT_THAT(Run("plan bare.yaml" + rest).err, HasSubstr("warning: --set spec.model.init.from: "));
}

}  // namespace
}  // namespace fusionllm::cli
