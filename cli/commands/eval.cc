// fusionctl eval CHECKPOINT [--data FILE]
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/command.h"
#include "cli/commands/evaluate.h"
#include "cli/commands/job_arguments.h"
#include "lib/base/exit_code.h"
#include "lib/base/status_macros.h"
#include "lib/job/parse.h"
#include "lib/report/words.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;

struct Flags {
  std::string checkpoint, data, job;
  std::vector<std::string> overrides;
  int64_t sequence_length = 0;
  int threads = 0;
};

// The job that a checkpoint belongs to stands in its manifest; models of other makers need one.
absl::StatusOr<job::FusionJob> JobOf(const Flags& flags, const checkpoint::CheckpointReader& stored) {
  if (!flags.job.empty()) return job::LoadFusionJob(flags.job, flags.overrides);
  if (!stored.manifest().has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(stored.path(), " does not say what model it belongs to: give a job file by --job"));
  }
  return job::ParseFusionJob(stored.manifest()->resolved_job, absl::StrCat(stored.path(), "/manifest.json: resolved_job"), flags.overrides);
}

absl::StatusOr<int> Eval(const Flags& flags, OutputFormat format) {
  FUSIONLLM_RETURN_IF_ERROR(base::OfNamedFile(checkpoint::VerifyCheckpoint(flags.checkpoint)));
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader stored,
                             base::OfNamedFile(checkpoint::CheckpointReader::Open(flags.checkpoint)));
  FUSIONLLM_ASSIGN_OR_RETURN(job::FusionJob job, JobOf(flags, stored));
  const int threads = flags.threads > 0 ? flags.threads : MachineCores();
  FUSIONLLM_ASSIGN_OR_RETURN(const EvaluationReport report,
                             EvaluateFile(std::move(job), stored, flags.data, flags.sequence_length, threads));
  if (format == OutputFormat::kJson) {
    const json accuracy = report.accuracy.has_value() ? json(*report.accuracy) : json(nullptr);
    absl::PrintF("%s\n",
                 json{{"accuracy", accuracy}, {"loss", report.loss}, {"tokens", report.tokens}, {"windows", report.windows}}.dump());
  } else {
    const std::string accuracy = report.accuracy.has_value() ? absl::StrCat(", accuracy ", report::Percent(*report.accuracy)) : "";
    absl::PrintF("loss %.4f%s over %d windows (%d targets)\n", report.loss, accuracy, report.windows, report.tokens);
  }
  return kExitDone;
}

}  // namespace

void AddEval(CLI::App& app, const Globals& globals, Action& action) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command = app.add_subcommand("eval", "Mean loss of a checkpoint over a file");
  command->add_option("CHECKPOINT", flags->checkpoint, "a checkpoint, a folder as Hugging Face has it, or a .safetensors file")->required();
  command->add_option("--data", flags->data, "file whose windows are read in order; required unless the job generates its data");
  command->add_option("--sequence-length", flags->sequence_length, "tokens of a window (default: the job's)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command->add_option("--job", flags->job, "job file with the model, for checkpoints that do not say it");
  command->add_option("--set", flags->overrides, kSetHelp)->allow_extra_args(false);
  command->add_option("--threads", flags->threads, "threads to compute with (default: all cores)")
      ->check(CLI::Range(1, 1024));  // as many as kernels::CreateBackend takes
  command->footer("Example:\n  fusionctl eval runs/tiny/checkpoints/latest --data README.md");
  command->callback([flags, &globals, &action] {
    action = [flags, &globals] {
      const absl::StatusOr<int> code = Eval(*flags, globals.format);
      return code.ok() ? *code : Complain(code.status());
    };
  });
}

}  // namespace fusionllm::cli
