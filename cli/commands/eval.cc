// fusionctl eval CHECKPOINT [--data FILE]
#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/commands/evaluate.h"
#include "cli/commands/job_arguments.h"
#include "lib/base/exit_code.h"
#include "lib/base/status_macros.h"
#include "lib/job/data_rules.h"
#include "lib/job/initial_model.h"
#include "lib/job/parse.h"
#include "lib/models/families.h"
#include "lib/report/number_format.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;

struct EvalFlags {
  std::string checkpoint, data, job;
  std::vector<std::string> overrides;
  int64_t sequence_length = 0;
  int threads = 0;
};

constexpr absl::string_view kTokenEndings[] = {".bin", ".u16", ".u32", ".uint16", ".uint32"};
constexpr int64_t kBytesOfText = 256;

bool IsFileOfTokens(absl::string_view path) {
  return std::any_of(std::begin(kTokenEndings), std::end(kTokenEndings), [&](absl::string_view end) { return absl::EndsWith(path, end); });
}

// A model of Hugging Face says in its config.json what it is; what its tokens are the file must tell.
absl::StatusOr<job::FusionJob> JobOfConfig(const EvalFlags& flags, const job::InitialModel& start) {
  const int64_t vocab_size = start.sizes.settings.vocab_size.value_or(0);
  if (flags.data.empty()) {
    const bool bytes = vocab_size == kBytesOfText;
    return absl::InvalidArgumentError(
        absl::StrCat("--data is required: the file to evaluate on, ",
                     bytes ? "text" : "of token ids that the model's own tokenizer made (docs/tasks/prepare-data.md)",
                     ", as in fusionctl eval ", flags.checkpoint, " --data FILE", bytes ? "" : ".bin"));
  }
  const bool tokens = IsFileOfTokens(flags.data);
  const bool is_overridden = std::any_of(flags.overrides.begin(), flags.overrides.end(),
                                         [](const std::string& text) { return absl::StartsWith(text, "spec.data"); });
  if (!tokens && !is_overridden && vocab_size != kBytesOfText) {
    return absl::InvalidArgumentError(absl::StrCat("--data ", flags.data, ": of text every byte is a token, and ", start.file,
                                                   " has a vocabulary of ", vocab_size, "; give token ids (",
                                                   absl::StrJoin(kTokenEndings, ", "), "), or say --set spec.data.kind=text"));
  }
  job::FusionJob job;
  job.metadata.name = "eval";
  job.spec.model = {.family = start.family->facts().id, .preset = start.sizes.preset, .config = start.sizes.settings};
  job.spec.data.kind = tokens ? job::DataKind::kTokens : job::DataKind::kText;
  job.spec.data.path = {flags.data.empty() ? "." : flags.data};
  job.spec.training.sequence_length = start.sizes.settings.block_size.value_or(job.spec.training.sequence_length);
  return job::ParseFusionJob(job::ToYaml(job), start.file, flags.overrides);
}

// The job that a checkpoint belongs to stands in its manifest; models of other makers need one, or a config.json beside them.
absl::StatusOr<job::FusionJob> JobOf(const EvalFlags& flags, const checkpoint::CheckpointReader& stored) {
  if (!flags.job.empty()) return job::LoadFusionJob(flags.job, flags.overrides);
  if (!stored.manifest().has_value()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<job::InitialModel> start, job::ReadInitialModel(stored.path()));
    if (start.has_value()) return JobOfConfig(flags, *start);
    return absl::InvalidArgumentError(
        absl::StrCat(stored.path(), " does not say what model it belongs to: give a job file by --job, or put its config.json there",
                     flags.data.empty() ? "; and what to evaluate on by --data FILE" : ""));
  }
  const std::string name = absl::StrCat(stored.path(), "/manifest.json: resolved_job");
  FUSIONLLM_ASSIGN_OR_RETURN(job::FusionJob job, job::ParseFusionJob(stored.manifest()->resolved_job, name, flags.overrides));
  // What it held out, and nothing that it trained on.
  const absl::StatusOr<job::FusionJob> maker = job::ParseFusionJob(stored.manifest()->resolved_job, name);
  if (maker.ok()) job::FixDataRules(job::DataRulesOfCheckpoint(maker->spec.data), job.spec.data);
  return job;
}

absl::StatusOr<int> Eval(const EvalFlags& flags, OutputFormat format) {
  FUSIONLLM_RETURN_IF_ERROR(base::AsBadInput(checkpoint::VerifyCheckpoint(flags.checkpoint)));
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader stored,
                             base::AsBadInput(checkpoint::CheckpointReader::Open(flags.checkpoint)));
  FUSIONLLM_ASSIGN_OR_RETURN(job::FusionJob job, JobOf(flags, stored));
  const int threads = flags.threads > 0 ? flags.threads : MachineCores();
  FUSIONLLM_ASSIGN_OR_RETURN(const EvaluationReport report,
                             EvaluateFile(std::move(job), stored, flags.data, flags.sequence_length, threads));
  if (format == OutputFormat::kJson) {
    const json accuracy = report.accuracy.has_value() ? json(*report.accuracy) : json(nullptr);
    absl::PrintF("%s\n", json{{"accuracy", accuracy},
                              {"loss", report.loss.has_value() ? json(*report.loss) : json(nullptr)},
                              {"tokens", report.tokens},
                              {"ignored_tokens", report.ignored_tokens},
                              {"windows", report.windows}}
                             .dump());
  } else {
    const std::string accuracy = report.accuracy.has_value() ? absl::StrCat(", accuracy ", report::Percent(*report.accuracy)) : "";
    const int64_t tokens = report.windows > 0 ? (report.tokens + report.ignored_tokens) / report.windows : 1;
    const std::string ignored = report.ignored_tokens > 0 ? absl::StrFormat(" that count, %d ignored", report.ignored_tokens) : "";
    const std::string loss = report.loss.has_value() ? absl::StrFormat("%.4f", *report.loss) : "none: no target counts,";
    absl::PrintF("loss %s%s over %d windows%s (%d targets%s)\n", loss, accuracy, report.windows,
                 tokens > 1 ? absl::StrFormat(" of %d tokens", tokens) : "", report.tokens, ignored);
  }
  return kExitDone;
}

}  // namespace

void AddEval(CLI::App& app, const Globals& globals, Action& action) {
  const auto flags = std::make_shared<EvalFlags>();
  CLI::App* const command = app.add_subcommand("eval", "Mean loss of a checkpoint over a file");
  command->add_option("CHECKPOINT", flags->checkpoint, "a checkpoint, a folder as Hugging Face has it, or a .safetensors file")->required();
  command->add_option(
      "--data", flags->data,
      "file whose windows are read in order, or a folder, of which those to test on are; required unless the job generates its data");
  command
      ->add_option("--sequence-length", flags->sequence_length,
                   "tokens of a window (default: the job's; of a folder of transformers its n_positions)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command->add_option("--job", flags->job, "job file with the model, for checkpoints that do not say it");
  command->add_option("--set", flags->overrides, kSetHelp)->allow_extra_args(false);
  command->add_option("--threads", flags->threads, "threads to compute with (default: all cores)")
      ->check(CLI::Range(1, 1024));  // as many as kernels::CreateBackend takes
  command->footer("Example:\n  fusionctl eval runs/tiny/checkpoints/latest --data README.md");
  command->callback([flags, &globals, &action] {
    action = [flags, &globals] {
      const absl::StatusOr<int> code = Eval(*flags, globals.format);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace fusionllm::cli
