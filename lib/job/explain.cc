#include "lib/job/explain.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/job/field_hints.h"
#include "lib/job/reference.h"
#include "lib/job/scalar.h"

namespace fusionllm::job {
namespace {

constexpr size_t kColumns = 100;

std::string TypeOf(const FieldSchema& field) {
  switch (field.type) {
    case FieldType::kBool:
      return "true or false";
    case FieldType::kInteger:
      return field.rule.zero_is_auto ? "whole number or auto" : "whole number";
    case FieldType::kNumber:
      return "number";
    case FieldType::kText:
      return field.constant.empty() ? "text" : field.constant;
    case FieldType::kTime:
      return "time, as in 2026-01-31T12:00:00Z";
    case FieldType::kEnum:
      return absl::StrCat("one of ", absl::StrJoin(field.choices, ", "));
    case FieldType::kBandwidth:
      return "bandwidth, as in 100Mbit";
    case FieldType::kSize:
      return "size, as in 2Gi";
    case FieldType::kDuration:
      return "duration, as in 40ms";
    case FieldType::kObject:
      return "mapping";
    case FieldType::kAny:
      return "mapping of any shape";
    case FieldType::kList:
      return absl::StrCat(field.rule.one_or_many ? "one or a list of: " : "list of: ", TypeOf(field.children[0]));
  }
  return "";
}

// A mapping's fields, be it in a list or not; null: it has none.
const FieldSchema* MappingOf(const FieldSchema& field) {
  const FieldSchema& inner = field.type == FieldType::kList ? field.children[0] : field;
  return inner.type == FieldType::kObject ? &inner : nullptr;
}

std::string Wrapped(absl::string_view text, size_t indent) {
  std::string out, line(indent, ' ');
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (line.size() > indent && line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&out, line, "\n");
      line.assign(indent, ' ');
    }
    absl::StrAppend(&line, line.size() > indent ? " " : "", word);
  }
  return line.size() > indent ? absl::StrCat(out, line, "\n") : out;
}

std::string Facts(const FieldSchema& field) {
  std::vector<std::string> facts = {TypeAndRange(field)};
  if (std::string text = DefaultOf(field); !text.empty()) facts.push_back(std::move(text));
  if (!field.rule.belongs_to.empty()) facts.push_back(absl::StrCat("belongs to ", field.rule.belongs_to));
  if (field.rule.kubernetes_only) facts.push_back("Kubernetes only");
  return absl::StrJoin(facts, "; ");
}

void AppendTree(const FieldSchema& mapping, size_t indent, std::string& out) {
  for (const FieldSchema& field : mapping.children) {
    absl::StrAppend(&out, std::string(indent, ' '), field.name, "  <", Facts(field), ">\n");
    if (const FieldSchema* inner = MappingOf(field); inner != nullptr) AppendTree(*inner, indent + 2, out);
  }
}

void CollectPaths(const FieldSchema& mapping, const std::string& path, std::vector<std::string>& paths) {
  for (const FieldSchema& field : mapping.children) {
    paths.push_back(absl::StrCat(path, path.empty() ? "" : ".", field.name));
    if (field.type == FieldType::kObject) CollectPaths(field, std::string(paths.back()), paths);
  }
}

// Whether a topology, the other kind of file, has a field of that path.
bool IsOfTopology(absl::string_view path) { return FindField(absl::StrCat("topology.", path)).ok(); }

}  // namespace

std::vector<std::string> FieldPaths() {
  std::vector<std::string> paths;
  CollectPaths(FusionJobSchema(), "", paths);
  return paths;
}

std::string TypeAndRange(const FieldSchema& field) {
  const Rule& rule = field.type == FieldType::kList ? field.children[0].rule : field.rule;
  std::string text = TypeOf(field);
  if (std::isfinite(rule.min)) absl::StrAppend(&text, ", ", rule.above_min ? "> " : ">= ", NumberText(rule.min));
  if (std::isfinite(rule.max)) absl::StrAppend(&text, ", ", rule.below_max ? "< " : "<= ", NumberText(rule.max));
  return text;
}

std::string DefaultOf(const FieldSchema& field) {
  if (!field.constant.empty()) return "";
  if (field.rule.required) return "required";
  if (field.default_text.empty()) return "";
  return absl::StrCat("default ", field.default_text, field.rule.default_depends ? ", depends on other fields" : "");
}

absl::StatusOr<FoundField> FindField(absl::string_view path) {
  absl::string_view rest = path;
  bool topology = false;
  const auto take_kind = [&rest](absl::string_view kind) {
    absl::string_view after = rest;
    if (!absl::StartsWithIgnoreCase(after, kind)) return false;
    after.remove_prefix(kind.size());
    if (!after.empty() && !absl::ConsumePrefix(&after, ".")) return false;
    rest = after;
    return true;
  };
  if (take_kind("topology")) {
    topology = true;
  } else {
    (void)take_kind("fusionjob");
  }
  FoundField found{.field = topology ? TopologySchema() : FusionJobSchema()};
  found.field.doc = topology ? "Emulated sites, devices and links." : "A training job.";
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of(".["), rest.size());
    const std::string key(rest.substr(0, end));
    rest.remove_prefix(end);
    if (absl::ConsumePrefix(&rest, "[")) rest.remove_prefix(std::min(rest.find(']') + 1, rest.size()));  // npos + 1 is 0
    (void)absl::ConsumePrefix(&rest, ".");
    const FieldSchema* const mapping = MappingOf(found.field);
    const auto next = mapping == nullptr ? std::optional<FieldSchema>() : [&]() -> std::optional<FieldSchema> {
      for (const FieldSchema& child : mapping->children) {
        if (child.name == key) return child;
      }
      return std::nullopt;
    }();
    if (!next) {
      std::vector<std::string> known;
      for (const FieldSchema& child : mapping == nullptr ? std::vector<FieldSchema>() : mapping->children) known.push_back(child.name);
      std::string hint = (topology ? TopologyHints() : FusionJobHints()).For(found.path, key, known);
      if (!topology && IsOfTopology(path)) hint = absl::StrCat("did you mean topology.", path, "?");
      const std::string place = found.path.empty() ? (topology ? "a topology" : "a job") : found.path;
      return absl::NotFoundError(absl::StrCat(place, mapping == nullptr ? " has no fields, so no '" : " has no field '", key, "'",
                                              hint.empty() ? "" : "; ", hint,
                                              hint.empty() && !known.empty() ? absl::StrCat("; it has ", absl::StrJoin(known, ", ")) : ""));
    }
    absl::StrAppend(&found.path, found.path.empty() ? "" : ".", key);
    if (!rest.empty() && next->type == FieldType::kList) found.path += "[]";
    found.field = *next;
  }
  return found;
}

std::string ExplainText(const FoundField& found, bool recursive) {
  const FieldSchema& field = found.field;
  std::string text = absl::StrCat(found.path.empty() ? "(the document)" : found.path, "  <", Facts(field), ">\n", Wrapped(field.doc, 2));
  const FieldSchema* const mapping = MappingOf(field);
  if (mapping == nullptr) return text;
  absl::StrAppend(&text, "\nFields:\n");
  if (recursive) {
    AppendTree(*mapping, 2, text);
    return text;
  }
  for (const FieldSchema& child : mapping->children) {
    absl::StrAppend(&text, "  ", child.name, "  <", Facts(child), ">\n", Wrapped(child.doc, 6));
  }
  return text;
}

}  // namespace fusionllm::job
