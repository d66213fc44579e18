#include "cli/run/resume_command.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "cli/run/folder_lock.h"
#include "lib/base/object_uri.h"
#include "lib/job/parse.h"
#include "services/checkpoint_directory.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kResume = "spec.checkpoint.resume=";

// `words` without what they say of the checkpoint to go on from.
std::vector<std::string> WithoutResume(std::vector<std::string> words) {
  for (size_t i = 0; i + 1 < words.size();) {
    if (words[i] == "--set" && absl::StartsWith(words[i + 1], kResume)) {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i), words.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    } else {
      ++i;
    }
  }
  return words;
}

}  // namespace

std::string ShellWord(absl::string_view word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("-_./:=,@%+", static_cast<char>(c));
  });
  return plain ? std::string(word) : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string RelativeToWorkingFolder(const std::string& folder) {
  std::error_code error;
  const std::string relative = fs::path(folder).lexically_relative(fs::current_path(error)).string();
  return error || relative.empty() || relative == "." || absl::StartsWith(relative, "..") ? folder : relative;
}

std::optional<SavedStep> NewestCheckpoint(const job::FusionJob& job, const std::string& folder) {
  if (!job.spec.checkpoint) return std::nullopt;
  std::error_code error;
  const fs::path saved = services::CheckpointDirectory(job.spec.checkpoint->path, folder);
  const std::string name = fs::read_symlink(saved / "latest", error).filename().string();
  absl::string_view digits = name;
  int64_t step = 0;
  if (error || !absl::ConsumePrefix(&digits, "step-") || !absl::SimpleAtoi(digits, &step)) return std::nullopt;
  return SavedStep{(saved / name).string(), step};
}

std::string CommandInFolder(const std::vector<std::string>& command, const std::string& folder) {
  std::vector<std::string> words;
  for (const std::string& word : command) words.push_back(ShellWord(word));
  words.push_back("--output");
  words.push_back(ShellWord(RelativeToWorkingFolder(folder)));
  return absl::StrJoin(words, " ");
}

std::string ResumeCommand(const std::vector<std::string>& command, const job::FusionJob& job, const std::string& folder) {
  if (command.empty() || !NewestCheckpoint(job, folder)) return "";
  if (job.spec.checkpoint->resume == "auto") return CommandInFolder(command, folder);
  return absl::StrCat(CommandInFolder(WithoutResume(command), folder), " --set ", kResume, "auto");
}

std::optional<UnfinishedRun> FindUnfinishedRun(const job::FusionJob& job) {
  if (!job.spec.checkpoint || job.spec.checkpoint->resume != "auto" || base::IsUri(job.spec.checkpoint->path) ||
      fs::path(job.spec.checkpoint->path).is_absolute()) {
    return std::nullopt;
  }
  std::error_code error;
  // --output gives them any name: the newest by the time of their job.yaml first, and no more of them than anybody remembers.
  std::vector<std::pair<fs::file_time_type, fs::path>> folders;
  for (fs::directory_iterator entry("runs", error), end; !error && entry != end; entry.increment(error)) {
    std::error_code no_job;
    const fs::file_time_type time = fs::last_write_time(entry->path() / "job.yaml", no_job);
    if (!no_job) folders.emplace_back(time, entry->path());
  }
  constexpr size_t kMaxFolders = 50;
  std::sort(folders.rbegin(), folders.rend());
  folders.resize(std::min(folders.size(), kMaxFolders));
  for (const auto& [time, folder] : folders) {
    const std::optional<SavedStep> saved = NewestCheckpoint(job, folder.string());
    const absl::StatusOr<job::FusionJob> earlier = job::LoadFusionJob((folder / "job.yaml").string());
    if (!saved || !earlier.ok() || earlier->metadata.name != job.metadata.name) continue;
    const int64_t steps = earlier->spec.training.steps;  // its own: another job may have the name by now
    const bool ended = saved->step >= std::min(steps, job.spec.training.steps);
    if (ended || FolderLock::IsHeld(folder.string())) return std::nullopt;  // the newest says it all
    return UnfinishedRun{folder.string(), saved->step, steps};
  }
  return std::nullopt;
}

}  // namespace fusionllm::cli
