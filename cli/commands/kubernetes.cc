// fusionctl kubernetes prepare JOB [-n NAMESPACE] [-o FILE]
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "cli/commands/command.h"
#include "cli/commands/job_arguments.h"
#include "cli/commands/option_checks.h"
#include "cli/kubernetes/prepare_job.h"
#include "lib/base/status_macros.h"

namespace fusionllm::cli {
namespace {

struct KubernetesFlags {
  PrepareOptions options;
  std::string output;
};

// kubectl takes a list as it takes a stream.
std::string ToJsonList(const PreparedJob& prepared) {
  nlohmann::ordered_json list = {{"apiVersion", "v1"}, {"kind", "List"}};
  list["items"] = prepared.documents;
  return list.dump() + "\n";
}

absl::StatusOr<int> Prepare(const KubernetesFlags& flags, OutputFormat format) {
  FUSIONLLM_ASSIGN_OR_RETURN(const PreparedJob prepared, PrepareJob(flags.options));
  const std::string text = format == OutputFormat::kJson ? ToJsonList(prepared) : ToYamlStream(prepared);
  if (flags.output.empty()) {
    absl::PrintF("%s", text);
  } else {
    FUSIONLLM_RETURN_IF_ERROR(WriteTextFile(flags.output, text));
    absl::FPrintF(stderr, "%s is written; next: kubectl apply -f %s\n", flags.output, flags.output);
  }
  for (const std::string& note : prepared.notes) absl::FPrintF(stderr, "note: %s\n", note);
  if (!prepared.commands.empty()) {
    absl::FPrintF(stderr, "note: the files are too large for ConfigMaps; once this is applied, fill the claim%s:\n",
                  flags.options.without_job ? "" : ", for which the job waits suspended");
    for (const std::string& command : prepared.commands) absl::FPrintF(stderr, "  %s\n", command);
  }
  return kExitDone;
}

}  // namespace

void AddKubernetesCommands(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* const kubernetes = app.add_subcommand("kubernetes", "Jobs of this machine as a cluster takes them");
  kubernetes->require_subcommand(1);
  const auto flags = std::make_shared<KubernetesFlags>();
  PrepareOptions& options = flags->options;
  CLI::App* const command =
      kubernetes->add_subcommand("prepare", "Print a job and the objects that bring its files to a cluster, for kubectl apply -f -");
  command->add_option("JOB", options.job, "job file")->required()->check(JobFile());
  command->add_option("--set", options.overrides, kSetHelp)->allow_extra_args(false);
  command->add_option("-n,--namespace", options.name_space, "of the job and the objects (default: the job's, else kubectl's)")
      ->check(ObjectName());
  command->add_option("-o,--output", flags->output, "file to write (default: stdout)");
  command->add_flag("--without-job", options.without_job,
                    "the other objects alone: what each member of the hub needs in the job's namespace");
  command->add_option("--access-mode", options.claim.access_mode, "of a claim, where files are too large for ConfigMaps")
      ->check(OneOf({"ReadWriteOnce", "ReadWriteMany"}))
      ->capture_default_str();
  command->add_option("--storage-class", options.claim.storage_class, "of the claim (default: the cluster's)");
  command->add_option("--image", options.claim.image, "of the Pod by which the claim is filled: one with sleep, mkdir and tar")
      ->capture_default_str();
  command->footer("Example:\n  fusionctl kubernetes prepare examples/jobs/gpt2-tiny.yaml | kubectl apply -f -");
  command->callback([flags, &globals, &action] {
    action = [flags, &globals] {
      const absl::StatusOr<int> code = Prepare(*flags, globals.format);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace fusionllm::cli
