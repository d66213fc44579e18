// fusionctl init [PATH..]
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/commands/job_arguments.h"
#include "cli/commands/job_template.h"
#include "cli/commands/option_checks.h"
#include "lib/base/nearest_name.h"
#include "lib/base/object_uri.h"
#include "lib/base/status_macros.h"
#include "lib/job/field_hints.h"
#include "lib/job/parse.h"
#include "lib/models/families.h"

namespace fusionllm::cli {
namespace {

struct InitFlags {
  std::string family = "gpt2", preset, data, output, name;
  std::vector<std::string> paths;
  bool force = false;
};

template <class E>
E Named(const std::string& name) {
  for (const auto& [text, value] : job::EnumNames<E>::Names()) {
    if (name == text) return value;
  }
  return E{};
}

// As it is said of spec.model.family in a job.
std::string NoFamily(const std::string& text) {
  const std::vector<std::string> families = job::EnumChoices<models::FamilyName>();
  const std::string near = base::NearestNameOrPart(text, families);
  const std::string listed = absl::StrCat(text, " not in {", absl::StrJoin(families, ","), "}");
  if (!near.empty()) return absl::StrCat(listed, "; did you mean ", near, "?");
  return absl::StrCat(listed, job::FusionJobHints().ForValue("spec.model.family", text));
}

// As the job is to write it: relative to the job's folder where it lies below that, else absolute.
std::string PathFrom(const std::filesystem::path& folder, const std::string& path) {
  if (base::IsUri(path)) return path;
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  const std::string relative = whole.lexically_relative(folder).string();
  return relative.empty() || relative.starts_with("..") ? whole.string() : relative;
}

absl::Status CheckPreset(const models::Family& family, const InitFlags& flags) {
  if (flags.preset.empty()) return absl::OkStatus();
  const std::vector<std::string>& presets = family.facts().presets;
  if (std::find(presets.begin(), presets.end(), flags.preset) != presets.end()) return absl::OkStatus();
  if (presets.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--preset ", flags.preset, ": family ", flags.family, " has no presets; ",
                                                   family.facts().size_field, " says its widths"));
  }
  const std::string near = base::NearestNameOrPart(flags.preset, presets);
  return absl::InvalidArgumentError(absl::StrCat("--preset ", flags.preset, ": family ", flags.family, " has ",
                                                 absl::StrJoin(presets, ", "),
                                                 near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
}

// A job may be written before its data is there, or for a machine where it is.
void TellWhatIsMissing(const std::vector<std::string>& paths) {
  std::error_code error;
  for (const std::string& path : paths) {
    if (base::IsUri(path) || std::filesystem::exists(path, error)) continue;
    absl::FPrintF(
        stderr, "note: %s does not exist yet; the job names it, and `fusionctl run` reads it (`fusionctl plan` works without it)\n", path);
  }
}

absl::StatusOr<int> Init(const InitFlags& flags) {
  const models::Family& family = models::FamilyOf(Named<models::FamilyName>(flags.family));
  TemplateOptions options{.family = &family, .name = flags.name};
  const bool tokens = family.facts().samples == models::Samples::kTokens;
  options.data = flags.data.empty() ? (tokens ? job::DataKind::kText : job::DataKind::kShapes) : Named<job::DataKind>(flags.data);
  if (family.facts().samples != models::SamplesOf(options.data)) {
    return absl::InvalidArgumentError(absl::StrCat("--data ", flags.data, ": family ", flags.family, " trains on ",
                                                   tokens ? "text or tokens" : "images: cifar10, idx or shapes"));
  }
  const bool files = options.data != job::DataKind::kShapes;
  if (files == flags.paths.empty()) {
    return absl::InvalidArgumentError(
        files ? absl::StrCat("PATH is required: the files or folders of data of kind ", job::ToString(options.data))
              : "data of kind shapes is made up on the fly: leave PATH out, or say --data");
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckPreset(family, flags));
  options.preset = flags.preset;
  const bool to_stdout = flags.output.empty();
  const std::filesystem::path folder = std::filesystem::absolute(to_stdout ? "job.yaml" : flags.output).parent_path().lexically_normal();
  for (const std::string& path : flags.paths) options.paths.push_back(PathFrom(folder, path));
  const std::string text = JobTemplate(options);
  FUSIONLLM_RETURN_IF_ERROR(job::ParseFusionJob(text, "the job").status());
  std::error_code error;
  if (to_stdout) {
    TellWhatIsMissing(flags.paths);
    absl::PrintF("%s", text);
    return kExitDone;
  }
  if (!flags.force && std::filesystem::exists(flags.output, error)) {
    return absl::InvalidArgumentError(absl::StrCat(flags.output, " exists; --force replaces it"));
  }
  FUSIONLLM_RETURN_IF_ERROR(WriteTextFile(flags.output, text));
  TellWhatIsMissing(flags.paths);
  absl::FPrintF(stderr, "%s is written; check it by\n  fusionctl run %s --dry-run\n", flags.output, flags.output);
  return kExitDone;
}

std::string PresetHelp() {
  std::vector<std::string> parts;
  for (const models::Family* family : models::AllFamilies()) {
    const std::vector<std::string>& presets = family->facts().presets;
    if (!presets.empty()) parts.push_back(absl::StrCat("of ", family->name(), ": ", absl::StrJoin(presets, ", ")));
  }
  return absl::StrCat("size of the model (default: the smallest); ", absl::StrJoin(parts, "; "));
}

}  // namespace

void AddInit(CLI::App& app, const Globals&, Action& action) {
  const auto flags = std::make_shared<InitFlags>();
  CLI::App* const command = app.add_subcommand("init", "Write a job file to start from, with remarks");
  command->add_option("PATH", flags->paths, "files or folders of the data; none for shapes");
  command->add_option("--family", flags->family, "model")
      ->check(OneOf(job::EnumChoices<models::FamilyName>(), NoFamily))
      ->capture_default_str();
  command->add_option("--preset", flags->preset, PresetHelp())->option_text("NAME");
  command
      ->add_option("--data", flags->data,
                   absl::StrCat("kind of data (default: text for ", models::FamilyList(models::FamiliesOf(models::Samples::kTokens)),
                                ", shapes for the others)"))
      ->check(OneOf(job::EnumChoices<job::DataKind>()));
  command->add_option("--name", flags->name, "name of the job (default: FAMILY-DATA)")->check(JobName());
  command->add_option("-o,--output", flags->output, "file to write (default: stdout)");
  command->add_flag("--force", flags->force, "replace the file if there is one");
  command->footer("Example:\n  fusionctl init --family gpt2 --data text README.md docs -o job.yaml && fusionctl run job.yaml --dry-run");
  command->callback([flags, &action] {
    action = [flags] {
      const absl::StatusOr<int> code = Init(*flags);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace fusionllm::cli
