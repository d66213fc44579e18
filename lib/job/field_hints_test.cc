#include "lib/job/field_hints.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/parse.h"
#include "lib/job/reference.h"

namespace fusionllm::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What is said of `path` when it is set; its parents exist.
std::string SaidOf(const std::string& path, const std::string& value = "1") {
  constexpr char kJob[] =
      "{apiVersion: fusionllm.io/v1alpha1, kind: FusionJob, metadata: {name: t}, spec: {model: {family: gpt2, preset: tiny}, "
      "data: {kind: text, path: [a]}}}";
  const std::vector<std::string> overrides = {absl::StrCat(path, "=", value)};
  return std::string(ParseFusionJob(kJob, "job.yaml", overrides).status().message());
}

std::string Unknown(const std::string& path, const std::string& hint) {
  return absl::StrCat("--set ", path, ": unknown field", hint.empty() ? "" : "; ", hint);
}

TEST(FieldHintsTest, WordsOfOtherTrainersNameTheField) {
  const struct {
    const char* word;
    const char* field;
  } cases[] = {{"lr", "spec.training.optimizer.learningRate"},
               {"learning_rate", "spec.training.optimizer.learningRate"},
               {"batch_size", "spec.training.globalBatchSize"},
               {"batchSize", "spec.training.globalBatchSize"},
               {"max_steps", "spec.training.steps"},
               {"warmup_steps", "spec.training.schedule.warmupSteps"},
               {"weight_decay", "spec.training.optimizer.weightDecay"},
               {"max_grad_norm", "spec.training.gradientClipNorm"},
               {"eval_steps", "spec.training.evaluation.everySteps"},
               {"save_steps", "spec.checkpoint.everySteps"},
               {"gradient_checkpointing", "spec.training.recompute"},
               {"num_hidden_layers", "spec.model.config.nLayer"}};
  for (const auto& c : cases) {
    const std::string path = absl::StrCat("spec.training.", c.word);
    EXPECT_EQ(SaidOf(path), Unknown(path, absl::StrCat("did you mean ", c.field, "?")));
  }
}

TEST(FieldHintsTest, SeedsOfOtherTrainersNameBothSeeds) {
  for (const char* word : {"random_seed", "manual_seed"}) {
    EXPECT_THAT(SaidOf(absl::StrCat("spec.training.", word)),
                HasSubstr("spec.training.seed (data order, dropout) or spec.model.init.seed"));
  }
  EXPECT_THAT(SaidOf("spec.training.data_seed"), HasSubstr("did you mean spec.training.seed?"));
}

TEST(FieldHintsTest, EpochsAreTurnedIntoSteps) {
  for (const char* word : {"epochs", "num_train_epochs", "maxEpochs"}) {
    EXPECT_THAT(SaidOf(absl::StrCat("spec.training.", word)), HasSubstr("an epoch is (samples / spec.training.globalBatchSize) steps"));
  }
}

TEST(FieldHintsTest, BatchesOfADeviceAreMicroBatches) {
  for (const char* word : {"per_device_train_batch_size", "gradient_accumulation_steps"}) {
    EXPECT_THAT(SaidOf(absl::StrCat("spec.training.", word)), HasSubstr("globalBatchSize / microBatchSize passes"));
  }
}

TEST(FieldHintsTest, SwitchesOfPrecisionNameTheValue) {
  EXPECT_THAT(SaidOf("spec.training.bf16", "true"), HasSubstr("did you mean spec.training.precision: bf16?"));
  EXPECT_THAT(SaidOf("spec.training.fp16", "true"), HasSubstr("fp32 or bf16"));
}

TEST(FieldHintsTest, WhatComputesIsAnOptionOfTheProgram) {
  for (const char* word : {"device", "devices", "gpu", "gpus", "n_gpu", "num_gpus", "cuda", "no_cuda"}) {
    EXPECT_THAT(SaidOf(absl::StrCat("spec.training.", word)), AllOf(HasSubstr("`fusionctl run --device cuda:0`"), Not(HasSubstr("mean"))))
        << word;
  }
}

TEST(FieldHintsTest, LinesOfProgressAreAnOptionOfTheProgram) {
  for (const char* word : {"log_every", "logging_steps", "log_interval", "logEvery"}) {
    EXPECT_THAT(SaidOf(absl::StrCat("spec.training.", word)), HasSubstr("`fusionctl run --log-every N`")) << word;
  }
}

TEST(FieldHintsTest, DropoutIsAnOpOfGraphsAlone) {
  EXPECT_THAT(SaidOf("spec.model.config.dropout", "0.1"), HasSubstr("families have no dropout"));
  EXPECT_THAT(SaidOf("spec.model.config.resid_pdrop", "0.1"), HasSubstr("spec.model.graph"));
}

TEST(FieldHintsTest, ATokenizerIsSentToTheTokensItMakes) {
  for (const char* path : {"spec.data.tokenizer", "spec.model.tokenizer", "spec.model.tokenizer_name"}) {
    EXPECT_THAT(SaidOf(path, "gpt2"), AllOf(HasSubstr("docs/tasks/prepare-data.md"), HasSubstr("spec.data.kind: tokens"))) << path;
  }
}

TEST(FieldHintsTest, BetasAreTwoFields) {
  EXPECT_THAT(SaidOf("spec.training.optimizer.betas", "[0.9, 0.95]"), HasSubstr("as in beta1: 0.9, beta2: 0.95"));
}

TEST(FieldHintsTest, CompilersAreLeftOut) {
  for (const char* word : {"compile", "torch_compile"})
    EXPECT_THAT(SaidOf(absl::StrCat("spec.training.", word)), HasSubstr("leave it out"));
}

TEST(FieldHintsTest, AWordMayMeanSomethingElseInItsMapping) {
  EXPECT_THAT(SaidOf("spec.model.name", "gpt2"), HasSubstr("did you mean spec.model.family (gpt2, resnet, mlp)"));
  EXPECT_THAT(SaidOf("spec.data.dataset", "wikitext"), AllOf(HasSubstr("did you mean spec.data.path?"), HasSubstr("hub")));
  EXPECT_THAT(SaidOf("spec.training.dataset"), HasSubstr("did you mean spec.data?"));
  EXPECT_THAT(SaidOf("spec.data.dtype", "uint16"), HasSubstr("did you mean spec.data.tokenDtype?"));
  EXPECT_THAT(SaidOf("spec.training.dtype", "bf16"), HasSubstr("did you mean spec.training.precision?"));
}

TEST(FieldHintsTest, ABackendThatIsADeviceIsSentToTheProgram) {
  EXPECT_THAT(SaidOf("spec.strategy.backend", "cuda"),
              AllOf(HasSubstr("must be one of cpu, ref, got \"cuda\"; "), HasSubstr("`fusionctl run --device cuda:0`")));
  EXPECT_THAT(SaidOf("spec.strategy.backend", "cpy"), AllOf(HasSubstr("did you mean cpu?"), Not(HasSubstr("--device"))));
}

TEST(FieldHintsTest, AFieldOfAnotherMappingIsNamedByItsPath) {
  EXPECT_EQ(SaidOf("spec.training.learningRate"),
            Unknown("spec.training.learningRate", "did you mean spec.training.optimizer.learningRate?"));
  EXPECT_EQ(SaidOf("spec.steps"), Unknown("spec.steps", "did you mean spec.training.steps?"));
  EXPECT_EQ(SaidOf("steps"), Unknown("steps", "did you mean spec.training.steps?"));
  EXPECT_EQ(SaidOf("spec.replicas"), Unknown("spec.replicas", "did you mean spec.strategy.replicas or spec.executors.replicas?"));
  EXPECT_EQ(SaidOf("training.steps"), "--set training.steps: training: unknown field; did you mean spec.training?");
  EXPECT_THAT(SaidOf("spec.seed"), HasSubstr("spec.training.seed (data order, dropout) or spec.model.init.seed"));
}

TEST(FieldHintsTest, AMisspeltFieldOfAnotherMappingIsFound) {
  EXPECT_EQ(SaidOf("spec.training.learnigRate"),
            Unknown("spec.training.learnigRate", "did you mean spec.training.optimizer.learningRate?"));
}

TEST(FieldHintsTest, NeighboursGoBeforeTheRest) {
  EXPECT_EQ(SaidOf("spec.training.stpes"), Unknown("spec.training.stpes", "did you mean steps?"));
  EXPECT_EQ(SaidOf("spec.training.optimizer.learning_rate"),
            Unknown("spec.training.optimizer.learning_rate", "did you mean learningRate?"));
}

TEST(FieldHintsTest, WhereNothingIsNearNothingIsGuessed) {
  for (const char* path : {"spec.training.colour", "spec.training.xyz", "spec.qq", "spec.name"}) EXPECT_EQ(SaidOf(path), Unknown(path, ""));
}

TEST(FieldHintsTest, EveryFieldThatIsNamedExists) {
  // The words' targets are text: one that was renamed would send people to a field that is not there.
  for (const char* word : {"lr",
                           "min_lr",
                           "optim",
                           "eps",
                           "scheduler",
                           "lr_scheduler_type",
                           "warmup",
                           "max_iters",
                           "batch_size",
                           "train_micro_batch_size_per_gpu",
                           "grad_clip",
                           "dtype",
                           "gradient_checkpointing",
                           "seq_len",
                           "eval_interval",
                           "eval_iters",
                           "eval",
                           "save_steps",
                           "save_total_limit",
                           "resume_from_checkpoint",
                           "pretrained",
                           "val_split",
                           "dataset",
                           "train_file",
                           "validation_file",
                           "num_layers",
                           "num_heads",
                           "hidden_size",
                           "n_positions",
                           "world_size",
                           "pipeline_parallel_size",
                           "data_parallel_size"}) {
    const std::string hint = FusionJobHints().For("spec", word, {});
    const std::vector<std::string> parts = absl::StrSplit(hint, ' ');
    ASSERT_EQ(parts.size(), 4u) << word << ": " << hint;
    const FieldSchema schema = FusionJobSchema();
    const FieldSchema* at = &schema;
    for (const absl::string_view step : absl::StrSplit(parts[3].substr(0, parts[3].size() - 1), '.')) {
      const FieldSchema* next = nullptr;
      for (const FieldSchema& child : at->children) next = child.name == step ? &child : next;
      ASSERT_NE(next, nullptr) << hint;
      at = next;
    }
  }
}

TEST(FieldHintsTest, AFamilyThatIsNotThereYetIsSentToGraphs) {
  EXPECT_THAT(SaidOf("spec.model.family", "llama"), HasSubstr("spec.model.graph (docs/tasks/own-graph.md has the parts of a Llama)"));
  EXPECT_THAT(SaidOf("spec.model.family", "gpt3"), HasSubstr("did you mean gpt2?"));
}

TEST(FieldHintsTest, TopologiesHaveNoWordsOfTrainers) { EXPECT_EQ(TopologyHints().For("spec", "lr", {}), ""); }

TEST(FieldHintsTest, TopologiesPointFromAGpuToItsProfileAndFromASpeedToTheBandwidth) {
  EXPECT_THAT(TopologyHints().For("spec.sites[0].devices[0]", "gpu", {}), HasSubstr("profile: nvidia-a100-80gb-sxm"));
  EXPECT_THAT(TopologyHints().For("spec.links[0]", "rtt", {}), HasSubstr("half the round trip: `latency`"));
  EXPECT_THAT(TopologyHints().For("spec.links[0]", "speed", {}), HasSubstr("bandwidth: 100Mbit"));
}

}  // namespace
}  // namespace fusionllm::job
