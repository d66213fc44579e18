#include "cli/run/run_outcome.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/run/resume_command.h"

namespace fusionllm::cli {

std::string OutcomeOf(const job::FusionJob& job, const SessionResult& result, const report::Run& run, bool steps_made, bool already_done) {
  if (already_done) {
    const bool changed =
        std::any_of(run.events.begin(), run.events.end(), [](const report::Event& event) { return event.reason == "JobChanged"; });
    return absl::StrCat("done already: an earlier start made all ", job.spec.training.steps, " steps, and nothing was left to train",
                        changed ? ", so what has changed in the job had no effect" : "",
                        " (more: --set spec.training.steps=N; from the start: --fresh)");
  }
  const bool none = run.steps.empty() || (!steps_made && result.exit_code != kExitDone);
  const std::string steps = none ? "before its first step" : absl::StrCat("after step ", run.steps.back().step);
  if (result.time_limit_reached) return absl::StrCat("ended ", steps, ", when its time was up");
  if (result.exit_code == kExitDone) {
    return absl::StrCat("done ", steps, job.spec.checkpoint.has_value() ? "" : "; nothing of it is kept: the run has no checkpoints");
  }
  if (result.exit_code == kExitInterrupted) {
    const bool lost = !none && !job.spec.checkpoint.has_value();
    return absl::StrCat("interrupted ", steps, lost ? "; nothing of it is kept: the run has no checkpoints" : "");
  }
  if (result.exit_code == kExitInfeasible) return "no plan";
  if (none && result.exit_code == kExitBadInput) return "cannot start";
  return absl::StrCat("failed ", steps);
}

std::string NextSteps(const job::FusionJob& job, const std::vector<std::string>& command, const std::string& folder, int exit_code,
                      bool trained, bool steps_made) {
  const std::optional<SavedStep> saved = NewestCheckpoint(job, folder);
  if (saved) {
    std::string text = absl::StrCat("checkpoint: ", saved->path, "\n");
    // After a loss there was no plan for what was left; a start would have all executors again.
    const bool too_few_left = exit_code == kExitInfeasible && steps_made;
    const bool early = exit_code == kExitInterrupted || exit_code == kExitFailed || too_few_left;
    const std::string again = early ? ResumeCommand(command, job, folder) : "";
    if (!again.empty())
      absl::StrAppend(&text, "to go on from step ", saved->step, too_few_left ? ", with all executors again" : "", ":\n  ", again, "\n");
    return text;
  }
  // A run that failed would fail again, and says why.
  if (exit_code != kExitInterrupted || command.empty()) return "";
  const bool said = trained && !job.spec.checkpoint.has_value();  // by OutcomeOf
  return absl::StrCat(said      ? ""
                      : trained ? "no checkpoint was saved yet, so there is nothing to go on from\n"
                                : "nothing was trained yet, so there is nothing to go on from\n",
                      "to start again at step 1:\n  ", CommandInFolder(command, folder), "\n");
}

}  // namespace fusionllm::cli
