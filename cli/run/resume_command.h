// How a run that ended before its last step is gone on with: the command, and finding such a run. Blocks on the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::cli {

// A word as a shell takes it: as it is where no shell would change it, else in single quotes.
std::string ShellWord(absl::string_view word);
// The absolute folder as it is written from the working directory: relative where it lies below.
std::string RelativeToWorkingFolder(const std::string& folder);

// `command` with the folder behind it, as a shell takes it.
std::string CommandInFolder(const std::vector<std::string>& command, const std::string& folder);
// `command` has everything but the folder: {"fusionctl", "run", "job.yaml", "--set", "spec.training.steps=50"}. Empty: nothing to go on
// from, because the job keeps no checkpoints or none was saved in `folder`.
std::string ResumeCommand(const std::vector<std::string>& command, const job::FusionJob& job, const std::string& folder);

struct SavedStep {
  std::string path;  // of the checkpoint
  int64_t step = 0;
};
// The newest checkpoint that the job would find in the folder of a run, as `latest` there says; absent: there is none.
std::optional<SavedStep> NewestCheckpoint(const job::FusionJob& job, const std::string& folder);

struct UnfinishedRun {
  std::string folder;  // "runs/NAME-20261127-172639", or as --output named it
  int64_t step = 0;
  int64_t steps = 0;  // that it was to make
};
// The newest run of a job of this name in runs/ below the working directory that ended before its last step, and the job's, and that
// no process holds. A job whose checkpoints lie elsewhere goes on by itself, and one that says where it begins is understood: none.
std::optional<UnfinishedRun> FindUnfinishedRun(const job::FusionJob& job);

}  // namespace fusionllm::cli
