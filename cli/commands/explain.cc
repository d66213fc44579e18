// fusionctl explain [FIELD]
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "cli/commands/command.h"
#include "cli/commands/option_checks.h"
#include "lib/job/explain.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;

struct Flags {
  std::string path;
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

int Explain(const Flags& flags, OutputFormat format) {
  const absl::StatusOr<job::FoundField> found = job::FindField(flags.path);
  if (!found.ok()) {
    absl::FPrintF(stderr, "fusionctl: %s\n", found.status().message());
    return kExitBadInput;
  }
  if (format == OutputFormat::kJson) {
    absl::PrintF("%s\n", ToJson(found->field, found->path, flags.recursive, 0).dump());
  } else {
    absl::PrintF("%s", job::ExplainText(*found, flags.recursive));
  }
  return kExitDone;
}

}  // namespace

void AddExplain(CLI::App& app, const Globals& globals, Action& action) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command = app.add_subcommand("explain", "Say what a field of a job or topology file means");
  command->add_option("FIELD", flags->path, "such as spec.training, or topology.spec.links; omitted: the whole job")
      ->check(OneOf(job::FieldPaths(), [](const std::string&) { return std::string(); }))  // the words are for completion; Explain() checks
      ->option_text("TEXT");
  command->add_flag("--recursive", flags->recursive, "names and types of all fields below it");
  command->footer("Example:\n  fusionctl explain spec.training.optimizer\n  fusionctl explain topology.spec.sites --recursive");
  command->callback([flags, &globals, &action] { action = [flags, &globals] { return Explain(*flags, globals.format); }; });
}

}  // namespace fusionllm::cli
