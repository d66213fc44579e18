// fusionctl explain [FIELD]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/commands/command.h"
#include "cli/commands/job_arguments.h"
#include "cli/commands/option_checks.h"
#include "lib/base/json_text.h"
#include "lib/base/status_macros.h"
#include "lib/job/document.h"
#include "lib/job/explain.h"
#include "lib/job/parse.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;

struct ExplainFlags {
  std::string path, job;
  std::vector<std::string> overrides;
  bool recursive = false;
};

json ToJson(const job::FieldSchema& field, const std::string& path, bool recursive, int depth) {
  const job::FieldSchema& inner = field.type == job::FieldType::kList ? field.children[0] : field;
  json document = {{"path", path},
                   {"type", job::TypeAndRange(field)},
                   {"description", field.doc},
                   {"required", field.rule.required},
                   {"default", field.default_text.empty() ? json(nullptr) : json(field.default_text)},
                   {"default_depends", field.rule.default_depends},
                   {"kubernetes_only", field.rule.kubernetes_only}};
  if (!inner.choices.empty()) document["choices"] = inner.choices;
  if (std::isfinite(inner.rule.min)) document["minimum"] = inner.rule.min;
  if (std::isfinite(inner.rule.max)) document["maximum"] = inner.rule.max;
  if (inner.type != job::FieldType::kObject || (depth > 0 && !recursive)) return document;
  document["fields"] = json::array();
  const std::string before = path.empty() ? "" : path + (field.type == job::FieldType::kList ? "[]." : ".");
  for (const job::FieldSchema& child : inner.children)
    document["fields"].push_back(ToJson(child, before + child.name, recursive, depth + 1));
  return document;
}

struct Value {
  std::string json;
  std::string yaml;  // "0.0006", or the lines below the field's name, each with its end
};

// The lines of `yaml` that belong to the field on line `line` (from 1), without the indentation that they share. The dashes of a list
// stand below the first character of its name.
std::string LinesBelow(absl::string_view yaml, int line) {
  const std::vector<absl::string_view> lines = absl::StrSplit(yaml, '\n');
  const auto indentation = [&](size_t i) { return std::min(lines[i].find_first_not_of(' '), lines[i].size()); };
  const size_t first = line;
  std::string below;
  const size_t outer = indentation(first - 1);
  const auto belongs = [&](size_t i) {
    return indentation(i) > outer || (indentation(i) == outer && absl::StartsWith(lines[i].substr(outer), "- "));
  };
  for (size_t i = first; i < lines.size() && belongs(i); ++i) {
    absl::StrAppend(&below, lines[i].substr(indentation(first)), "\n");
  }
  return below;
}

// As a job file would have it, defaults filled in; of a field inside a list the whole list. Absent: the job has no such value.
absl::StatusOr<std::optional<Value>> ValueIn(const ExplainFlags& flags, const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob job, job::LoadFusionJob(flags.job, flags.overrides));
  const std::string yaml = job::ToYaml(job);
  job::Node root;
  job::Problems problems(flags.job);
  if (!job::LoadDocument(yaml, root, problems)) return problems.ToStatus();
  if (path.empty()) return Value{job::ToJson(root), yaml};
  const job::Node* node = &root;
  for (const absl::string_view key : absl::StrSplit(path.substr(0, path.find('[')), '.', absl::SkipEmpty())) {
    node = node->Find(key);
    if (node == nullptr) return std::nullopt;
  }
  const std::string json = job::ToJson(*node);
  if (node->kind == job::Node::Kind::kScalar) return Value{json, json};
  const std::string below = LinesBelow(yaml, node->line);
  return Value{json, below.empty() ? json : below};  // a list of scalars stands beside its name
}

int Explain(const ExplainFlags& flags, OutputFormat format) {
  const absl::StatusOr<job::FoundField> found = job::FindField(flags.path);
  if (!found.ok()) {
    absl::FPrintF(stderr, "fusionctl: %s\n", found.status().message());
    return kExitBadInput;
  }
  std::optional<Value> value;
  if (!flags.job.empty() && absl::StartsWith(flags.path, "topology.")) {
    absl::FPrintF(stderr, "fusionctl: --job: a job has no field %s, which is one of topologies\n", flags.path);
    return kExitBadInput;
  }
  if (!flags.job.empty()) {
    absl::StatusOr<std::optional<Value>> read = ValueIn(flags, found->path);
    if (!read.ok()) return ReportError(read.status());
    value = *std::move(read);
  }
  if (format == OutputFormat::kJson) {
    json document = ToJson(found->field, found->path, flags.recursive, 0);
    if (value) document["value"] = base::ParseJson(value->json);
    absl::PrintF("%s\n", document.dump());
    return kExitDone;
  }
  absl::PrintF("%s", job::ExplainText(*found, flags.recursive));
  if (!flags.job.empty()) {
    const std::string text = value ? value->yaml : "not set";
    const bool lines = absl::EndsWith(text, "\n");
    const size_t list = found->path.find('[');
    absl::PrintF("\nIn %s %s is%s%s%s", flags.job, list == std::string::npos ? "it" : found->path.substr(0, list), lines ? ":\n" : " ",
                 text, lines ? "" : ".\n");
  } else if (found->field.rule.default_depends) {
    absl::PrintF("\nWhat holds for a job: fusionctl explain %s --job JOB.yaml\n", found->path);
  }
  return kExitDone;
}

}  // namespace

void AddExplain(CLI::App& app, const Globals& globals, Action& action) {
  const auto flags = std::make_shared<ExplainFlags>();
  CLI::App* const command = app.add_subcommand("explain", "Say what a field of a job or topology file means");
  command->add_option("FIELD", flags->path, "such as spec.training, or topology.spec.links; omitted: the whole job")
      ->check(OneOf(job::FieldPaths(), [](const std::string&) { return std::string(); }))  // the words are for completion; Explain() checks
      ->option_text("TEXT");
  CLI::Option* const file = command->add_option("--job", flags->job, "a job file, to say what the field is there, by default or not");
  command->add_option("--set", flags->overrides, kSetHelp)->allow_extra_args(false)->needs(file);
  command->add_flag("--recursive", flags->recursive, "names and types of all fields below it");
  command->footer(
      "Example:\n  fusionctl explain spec.training.optimizer\n  fusionctl explain spec.training.optimizer.learningRate --job "
      "examples/jobs/gpt2-tiny.yaml\n"
      "  fusionctl explain topology.spec.sites --recursive");
  command->callback([flags, &globals, &action] { action = [flags, &globals] { return Explain(*flags, globals.format); }; });
}

}  // namespace fusionllm::cli
