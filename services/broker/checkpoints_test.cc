#include "services/broker/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/job/parse.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointsTest : public ::testing::Test {
 protected:
  CheckpointsTest() { job_.spec.checkpoint->path = root_; }
  void Save(int64_t step) {
    const auto saved = checkpoint::SaveSample(root_, step, /*stages=*/1);
    EXPECT_TRUE(saved.ok()) << saved.status();
  }

  const base::TempFolder folder_;
  const std::string root_ = folder_ / "checkpoints";
  job::FusionJob job_ = *job::ParseFusionJob(
      "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
      "  model: {family: mlp, config: {layers: [3072, 16, 10]}}\n  data: {kind: shapes}\n"
      "  training: {steps: 90, globalBatchSize: 4}\n  checkpoint: {path: checkpoints}\n",
      "job.yaml");
};

TEST_F(CheckpointsTest, ANewestCheckpointWithADamagedManifestIsPassedOverWithAWord) {
  for (const int64_t step : {10, 20, 30}) Save(step);
  folder_.Write("checkpoints/step-000030/manifest.json", "{");
  const auto reports_skipped = ElementsAre(AllOf(HasSubstr("step-000030 is passed over"), HasSubstr("manifest.json")));
  const auto start = FindCheckpoint(job_, root_, folder_.path());
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->step, 20);
  EXPECT_THAT(start->skipped, reports_skipped);
  checkpoint::CheckpointFilter eligible{.first_sequence = 1, .unusable = {start->path}};
  const auto another = FindFallbackCheckpoint(job_, root_, folder_.path(), {}, eligible);
  ASSERT_TRUE(another.ok()) << another.status();
  EXPECT_EQ(another->step, 10);
  EXPECT_THAT(another->skipped, reports_skipped);
  eligible.unusable.insert(another->path);
  const absl::Status none = FindFallbackCheckpoint(job_, root_, folder_.path(), {}, eligible).status();
  EXPECT_TRUE(absl::IsDataLoss(none)) << none;
  EXPECT_THAT(none.message(), HasSubstr("step-000030 is passed over"));
}

TEST_F(CheckpointsTest, StagedFilesThatAreNotWhatWasReportedMakeNoCheckpoint) {
  const checkpoint::Manifest staged = *checkpoint::StageSample(root_, 10, /*stages=*/2);
  broker::CommitCheckpoint commit{.step = 10};
  for (const checkpoint::FileEntry& file : staged.files)
    commit.files.push_back({.name = file.name, .bytes = file.bytes, .sha256 = file.sha256});
  EXPECT_TRUE(CheckStaged(root_, commit).ok()) << CheckStaged(root_, commit);
  const std::string honest = commit.files[1].sha256;
  commit.files[1].sha256 = commit.files[0].sha256;  // that of a file that is there
  const absl::Status status = CheckStaged(root_, commit);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(commit.files[1].name), HasSubstr(honest)));
  commit.files[1].site = "lab";  // where it cannot be looked at from here
  EXPECT_TRUE(CheckStaged(root_, commit).ok());
  commit.files[0].name = "model-00009-of-00009.safetensors";
  EXPECT_TRUE(absl::IsNotFound(CheckStaged(root_, commit)));
}

TEST_F(CheckpointsTest, ACheckpointTellsTheMicroBatchSizeItWasMadeWith) {
  auto staged = *checkpoint::StageSample(root_, 10, /*stages=*/1);
  staged.resolved_job = job::ToYaml(job_);
  ASSERT_TRUE(checkpoint::CommitCheckpoint(root_, staged, 0).ok());
  job_.spec.training.global_batch_size = 64;
  EXPECT_EQ(FindCheckpoint(job_, root_, folder_.path())->micro_batch_size, 1)
      << "the default of the job that made it, as earlier releases had";
  staged = *checkpoint::StageSample(root_, 20, /*stages=*/1);
  staged.micro_batch_size = 16;
  ASSERT_TRUE(checkpoint::CommitCheckpoint(root_, staged, 0).ok());
  EXPECT_EQ(FindCheckpoint(job_, root_, folder_.path())->micro_batch_size, 16);
}

TEST_F(CheckpointsTest, ACheckpointTellsWhatItsRunFoundOutAboutCodecsUnlessTheGuardIsOff) {
  job_.spec.compression = {.policy = job::CompressionPolicy::kAdatopk};
  auto staged = *checkpoint::StageSample(root_, 10, /*stages=*/1);
  staged.resolved_job = job::ToYaml(job_);
  staged.codec_limit = "int8";
  staged.codec_limits = {{"block.1", true, "fp16"}};
  ASSERT_TRUE(checkpoint::CommitCheckpoint(root_, staged, 0).ok());
  const auto found = FindCheckpoint(job_, root_, folder_.path());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->codec_limit, "int8");
  EXPECT_EQ(found->codec_limits, (broker::CodecLimits{{{"block.1", true}, "fp16"}}));
  job_.spec.compression.guard = compression::GuardMode::kNone;
  EXPECT_TRUE(FindCheckpoint(job_, root_, folder_.path())->codec_limits.empty());
}

TEST_F(CheckpointsTest, ACheckpointWithMoreStepsIsRefusedByWhoseItIs) {
  Save(10);
  const std::string maker = checkpoint::CheckpointReader::Open(root_ + "/step-000010")->manifest()->job_name;
  job_.spec.training.steps = 9;
  job_.metadata.name = maker;
  EXPECT_THAT(FindCheckpoint(job_, root_, folder_.path()).status().message(), HasSubstr("has seen 10 steps already; give more steps"));
  job_.metadata.name = "test";
  EXPECT_THAT(FindCheckpoint(job_, root_, folder_.path()).status().message(),
              AllOf(HasSubstr(absl::StrCat("step-000010 is of the job ", maker, ", not of test")), Not(HasSubstr("give more steps"))));
}

// Of one tensor, layer.0.weight.
TEST_F(CheckpointsTest, NamesChangedFieldsAndParameters) {
  auto staged = *checkpoint::StageSample(root_, 10, /*stages=*/1);
  staged.resolved_job = job::ToYaml(job_);
  ASSERT_TRUE(checkpoint::CommitCheckpoint(root_, staged, 0).ok());
  job_.spec.model.config.activation = models::Activation::kGelu;
  job_.spec.training.steps = 95;  // with a constant learning rate no other job
  job_.spec.training.seed = 77;
  const auto found = FindCheckpoint(job_, root_, folder_.path());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->changed, "spec.model.config.activation relu -> gelu, spec.training.seed 1337 -> 77");
  EXPECT_THAT(found->other_model, AllOf(::testing::StartsWith("spec.model.config.activation relu -> gelu; "),
                                        HasSubstr("has no tensor 'layers.0.weight' and 3 more"),
                                        HasSubstr("1 tensor that the model does not have: layer.0.weight")));
}

TEST_F(CheckpointsTest, MoreStepsNameTheLearningRateOfTheNextStepWhereItChanges) {
  job_.spec.training.steps = 10;
  job_.spec.training.optimizer.learning_rate = 0.1;
  job_.spec.training.schedule = {.name = job::ScheduleName::kLinear};
  auto staged = *checkpoint::StageSample(root_, 10, /*stages=*/1);
  staged.resolved_job = job::ToYaml(job_);
  ASSERT_TRUE(checkpoint::CommitCheckpoint(root_, staged, 0).ok());
  EXPECT_EQ(FindCheckpoint(job_, root_, folder_.path())->changed, "") << "no step is left";
  job_.spec.training.steps = 20;
  EXPECT_EQ(FindCheckpoint(job_, root_, folder_.path())->changed,
            "spec.training.steps 10 -> 20; the learning rate of step 11 is 0.045 instead of 0");
  job_.spec.training.schedule.min_learning_rate = 0.1;
  EXPECT_THAT(FindCheckpoint(job_, root_, folder_.path())->changed, HasSubstr("step 11 is 0.1 instead of 0"));
}

TEST_F(CheckpointsTest, AFileOfOtherContentUnderTheSameNameIsReported) {
  const std::string graph =
      "graph \"net\" {\n  images = placeholder() {role=\"images\", dtype=\"f32\", shape=[b, 3072]}\n"
      "  labels = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b]}\n  act = relu(images)\n"
      "  logits = linear(act) {out=10}\n  loss = cross_entropy(logits, labels)\n  return loss\n}\n";
  folder_.Write("net.dag", graph);
  folder_.Write("start.safetensors", "as it was");
  job_.spec.model = {.graph = job::GraphSource{.file = "net.dag"}, .init = {.from = "start.safetensors"}};
  auto staged = *checkpoint::StageSample(root_, 10, /*stages=*/1);
  staged.resolved_job = job::ToYaml(job_);
  staged.contents = workload::FingerprintInputs(job_, folder_.path());
  ASSERT_TRUE(checkpoint::CommitCheckpoint(root_, staged, 0).ok());
  const auto found = [&] { return *FindCheckpoint(job_, root_, folder_.path()); };
  EXPECT_EQ(found().changed, "");
  EXPECT_EQ(found().contents, staged.contents) << "which the next manifest repeats";
  folder_.Write("net.dag", absl::StrReplaceAll(graph, {{"relu", "gelu"}}));
  EXPECT_THAT(found().changed, AllOf(HasSubstr("what spec.model.graph.file names holds"), Not(HasSubstr("init.from"))));
  folder_.Write("start.safetensors", "and as it is");
  EXPECT_THAT(found().changed, AllOf(HasSubstr("spec.model.graph.file"), HasSubstr("what spec.model.init.from names holds 12 bytes")));
  job_.spec.model.init.from = "another.safetensors";
  EXPECT_THAT(found().changed, AllOf(HasSubstr("spec.model.init.from start.safetensors -> another.safetensors"), Not(HasSubstr("holds"))));
}

TEST_F(CheckpointsTest, WhatADryRunForeseesIsWhatTheRunFinds) {
  EXPECT_EQ(workload::PreviewCheckpoint(job_, root_, folder_.path())->path, "") << "there is none";
  for (const int64_t step : {10, 20}) Save(step);
  auto staged = *checkpoint::StageSample(root_, 30, /*stages=*/1);
  staged.resolved_job = job::ToYaml(job_);
  ASSERT_TRUE(checkpoint::CommitCheckpoint(root_, staged, 0).ok());
  for (const std::string resume : {"auto", "never", "checkpoints/step-000010", "checkpoints/step-000030"}) {
    job_.spec.checkpoint->resume = resume;
    const auto foreseen = workload::PreviewCheckpoint(job_, root_, folder_.path()), found = FindCheckpoint(job_, root_, folder_.path());
    ASSERT_TRUE(foreseen.ok() && found.ok()) << resume << foreseen.status() << found.status();
    EXPECT_EQ(foreseen->path, found->path) << resume;
    EXPECT_EQ(foreseen->step, found->step) << resume;
    EXPECT_EQ(foreseen->other_model, found->other_model) << resume;
    EXPECT_EQ(workload::CheckCanStartFrom(*foreseen).ok(), found->other_model.empty()) << resume;
  }
  job_.spec.checkpoint->resume = "auto";
  folder_.Write("checkpoints/step-000030/manifest.json", "{");
  EXPECT_EQ(workload::PreviewCheckpoint(job_, root_, folder_.path())->step, 20) << "one that is not whole is passed over";
  EXPECT_EQ(workload::PreviewCheckpoint(job_, root_, folder_.path())->skipped, FindCheckpoint(job_, root_, folder_.path())->skipped);
  job_.spec.checkpoint->resume = "checkpoints/step-000030";
  EXPECT_EQ(workload::PreviewCheckpoint(job_, root_, folder_.path()).status(), FindCheckpoint(job_, root_, folder_.path()).status());
  job_.spec.checkpoint->resume = "auto";
  job_.spec.training.steps = 9;
  EXPECT_EQ(workload::PreviewCheckpoint(job_, root_, folder_.path()).status(), FindCheckpoint(job_, root_, folder_.path()).status());
}

TEST_F(CheckpointsTest, RunWithoutAUsableCheckpointIsRefused) {
  for (const int64_t step : {10, 20, 30, 40, 50, 60}) {
    Save(step);
    std::filesystem::resize_file(absl::StrCat(root_, "/step-0000", step, "/model.safetensors"), 9);
  }
  const auto found = FindCheckpoint(job_, root_, folder_.path());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->path, "");
  const absl::Status refused = workload::CheckCanStartFrom(*found);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("NoUsableCheckpoint: "), HasSubstr(root_ + ", and none"),
                                       HasSubstr("step-000060/model.safetensors has 9 bytes instead of"), HasSubstr("and 2 more"),
                                       Not(HasSubstr("step-000020")), HasSubstr("--fresh")));
  EXPECT_EQ(workload::CheckCanStartFrom(*workload::PreviewCheckpoint(job_, root_, folder_.path())), refused);
  job_.spec.checkpoint->replica = job::Replica{.path = folder_ / "replica"};
  EXPECT_TRUE(workload::CheckCanStartFrom(*workload::PreviewCheckpoint(job_, root_, folder_.path())).ok()) << "there may be a copy";
  job_.spec.checkpoint->resume = "never";
  EXPECT_TRUE(workload::CheckCanStartFrom(*FindCheckpoint(job_, root_, folder_.path())).ok());
}

TEST_F(CheckpointsTest, NewestCheckpointOfALaterReleaseRefusesTheRun) {
  for (const int64_t step : {10, 20}) Save(step);
  checkpoint::Manifest newer = *checkpoint::LoadManifest(root_ + "/step-000020");
  newer.format_version = 9;
  folder_.Write("checkpoints/step-000020/manifest.json", checkpoint::FormatManifest(newer));
  const auto found = FindCheckpoint(job_, root_, folder_.path());
  ASSERT_TRUE(found.ok()) << found.status();
  const absl::Status refused = workload::CheckCanStartFrom(*found);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("NewerCheckpoint: "), HasSubstr("step-000020"), HasSubstr("the format version is 9"),
                                       HasSubstr("to go on from " + root_ + "/step-000010"), HasSubstr("--fresh")));
  EXPECT_EQ(workload::CheckCanStartFrom(*workload::PreviewCheckpoint(job_, root_, folder_.path())), refused);
  Save(5);  // of a run that began at step 0 beside it
  const auto after = FindCheckpoint(job_, root_, folder_.path());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->step, 5);
  EXPECT_TRUE(workload::CheckCanStartFrom(*after).ok()) << after->unusable;
}

// The file named in the manifest is beside it, as if it had been brought from site paris.
TEST_F(CheckpointsTest, OfANamedCheckpointAPartThatIsDamagedHereIsAskedOfItsSite) {
  auto staged = *checkpoint::StageSample(root_, 10, /*stages=*/1);
  for (checkpoint::FileEntry& file : staged.files) {
    if (file.name != "optimizer.safetensors") continue;
    file.site = "paris";
    file.site_folder = "0123456789abcdef/paris-0/step-000010.fedcba9876543210";
  }
  const std::string part = base::ReadWholeFile(checkpoint::StagingFolder(root_, 10) + "/optimizer.safetensors");
  ASSERT_TRUE(checkpoint::CommitCheckpoint(root_, staged, 0).ok());
  folder_.Write("checkpoints/step-000010/optimizer.safetensors", std::string(part.size(), 'x'));
  job_.spec.checkpoint->resume = root_ + "/step-000010";
  const auto found = FindCheckpoint(job_, root_, folder_.path());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->step, 10);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/step-000010/optimizer.safetensors"));
}

}  // namespace
}  // namespace fusionllm::services
