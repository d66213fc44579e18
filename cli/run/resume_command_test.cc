#include "cli/run/resume_command.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_replace.h"
#include "cli/run/folder_lock.h"
#include "cli/run/run_outcome.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;

class GoOnTest : public ::testing::Test {
 protected:
  GoOnTest() : before_(fs::current_path()) {
    fs::current_path(folder_.path());
    job_ = *job::ParseFusionJob(
        "{apiVersion: fusionllm.io/v1alpha1, kind: FusionJob, metadata: {name: t}, spec: {model: {family: mlp, config: {layers: [192, "
        "10]}}, "
        "data: {kind: shapes, shapes: {imageSize: 8}}, training: {steps: 100}, checkpoint: {}}}",
        "job.yaml");
  }
  ~GoOnTest() override { fs::current_path(before_); }

  // A run of the job that saved its last checkpoint after this step.
  void MakeRun(const std::string& folder, int step) {
    const std::string name = step == 40 ? "step-000040" : "step-000100";
    fs::create_directories(fs::path(folder) / "checkpoints" / name);
    fs::create_directory_symlink(name, fs::path(folder) / "checkpoints" / "latest");
    folder_.Write(folder + "/job.yaml", job::ToYaml(job_));
  }

  const base::TempFolder folder_;
  const fs::path before_;
  job::FusionJob job_;
};

TEST_F(GoOnTest, WordsAreQuotedAsAShellNeedsThem) {
  EXPECT_EQ(ShellWord("spec.training.steps=50"), "spec.training.steps=50");
  EXPECT_EQ(ShellWord("spec.checkpoint={path: a}"), "'spec.checkpoint={path: a}'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("$HOME"), "'$HOME'");
}

TEST_F(GoOnTest, TheCommandHasWhatWasTypedAndTheFolder) {
  MakeRun("runs/t-1", 40);
  const std::vector<std::string> command = {"bin/fusionctl", "run", "my job.yaml", "--set", "spec.model={family: mlp}"};
  EXPECT_EQ(ResumeCommand(command, job_, folder_ / "runs/t-1"),
            "bin/fusionctl run 'my job.yaml' --set 'spec.model={family: mlp}' --output runs/t-1");
  job_.spec.checkpoint->resume = "never";
  EXPECT_THAT(ResumeCommand(command, job_, "/elsewhere"), "") << "nothing was saved there";
  EXPECT_THAT(ResumeCommand(command, job_, folder_ / "runs/t-1"), ::testing::EndsWith(" --set spec.checkpoint.resume=auto"));
  EXPECT_EQ(ResumeCommand({"fusionctl", "run", "job.yaml", "--set", "spec.checkpoint.resume=never", "--allow-nondeterminism"}, job_,
                          folder_ / "runs/t-1"),
            "fusionctl run job.yaml --allow-nondeterminism --output runs/t-1 --set spec.checkpoint.resume=auto");
  job_.spec.checkpoint.reset();
  EXPECT_EQ(ResumeCommand(command, job_, folder_ / "runs/t-1"), "");
}

TEST_F(GoOnTest, AnInterruptedRunWithoutACheckpointSaysThatItStartsAgain) {
  const std::vector<std::string> command = {"fusionctl", "run", "job.yaml"};
  const std::string again = "to start again at step 1:\n  fusionctl run job.yaml --output runs/t-1\n";
  const auto left = [&](int exit_code, bool trained) {
    return NextSteps(job_, command, folder_ / "runs/t-1", exit_code, trained, /*steps_made=*/trained);
  };
  EXPECT_EQ(left(kExitInterrupted, false), "nothing was trained yet, so there is nothing to go on from\n" + again);
  EXPECT_EQ(left(kExitInterrupted, true), "no checkpoint was saved yet, so there is nothing to go on from\n" + again);
  EXPECT_EQ(left(kExitFailed, false), "") << "it would fail again";
  EXPECT_EQ(left(kExitDone, true), "");
  MakeRun("runs/t-1", 40);
  EXPECT_THAT(left(kExitInterrupted, false), ::testing::HasSubstr("to go on from step 40:\n  fusionctl run job.yaml --output runs/t-1\n"));
  EXPECT_THAT(left(kExitInfeasible, true), ::testing::HasSubstr("to go on from step 40, with all executors again:\n  fusionctl run"))
      << "executors were lost";
  EXPECT_THAT(left(kExitInfeasible, false), ::testing::Not(::testing::HasSubstr("to go on"))) << "it would be refused again";
  job_.spec.checkpoint.reset();
  EXPECT_EQ(left(kExitInterrupted, true), again) << "that nothing is kept stands before it";
}

TEST_F(GoOnTest, TheNewestRunThatEndedEarlyIsFound) {
  EXPECT_FALSE(FindUnfinishedRun(job_)) << "there is no folder runs";
  MakeRun("runs/t-20260101-000000", 40);
  job_.metadata.name = "other";
  MakeRun("runs/other-20260105-000000", 40);
  job_.metadata.name = "t";
  const auto found = FindUnfinishedRun(job_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->folder, "runs/t-20260101-000000");
  EXPECT_EQ(found->step, 40);
  job_.spec.training.steps = 1000;
  ASSERT_TRUE(FindUnfinishedRun(job_));
  EXPECT_EQ(FindUnfinishedRun(job_)->steps, 100) << "its own, whatever the job of that name has now";
  job_.spec.checkpoint->resume = "runs/t-1/checkpoints/latest";
  EXPECT_FALSE(FindUnfinishedRun(job_)) << "the job says where it begins";
  job_.spec.checkpoint->resume = "auto";
  MakeRun("runs/t-20260101-000001", 100);
  folder_.Write("runs/t-20260101-000001/job.yaml", absl::StrReplaceAll(job::ToYaml(job_), {{"steps: 1000", "steps: 100"}}));
  EXPECT_FALSE(FindUnfinishedRun(job_)) << "made all of its own steps";
  fs::remove_all("runs/t-20260101-000001");
  job_.spec.training.steps = 100;
  MakeRun("runs/t-20260102-000000", 100);
  EXPECT_FALSE(FindUnfinishedRun(job_)) << "a later one came to its end";
}

TEST_F(GoOnTest, ARunInAFolderThatTheUserNamedIsFound) {
  MakeRun("runs/first", 40);
  const auto found = FindUnfinishedRun(job_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->folder, "runs/first");
  job_.metadata.name = "u";
  EXPECT_FALSE(FindUnfinishedRun(job_)) << "its job.yaml says t";
}

TEST_F(GoOnTest, ARunThatGoesOnIsLeftAlone) {
  MakeRun("runs/t-20260101-000000", 40);
  const auto lock = FolderLock::Acquire(folder_ / "runs/t-20260101-000000", "");
  ASSERT_TRUE(lock.ok());
  EXPECT_FALSE(FindUnfinishedRun(job_));
}

TEST_F(GoOnTest, RunsOfOtherJobsAndJobsWithAPlaceOfTheirOwnAreNoHint) {
  MakeRun("runs/t-x-20260101-000000", 40);
  job_.metadata.name = "t-x";
  ASSERT_TRUE(FindUnfinishedRun(job_) == std::nullopt) << "its job.yaml says t";
  job_.metadata.name = "t";
  EXPECT_FALSE(FindUnfinishedRun(job_) == std::nullopt);
  job_.spec.checkpoint->path = "/srv/checkpoints";
  EXPECT_FALSE(FindUnfinishedRun(job_));
}

}  // namespace
}  // namespace fusionllm::cli
