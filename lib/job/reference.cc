#include "lib/job/reference.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "lib/job/describer.h"
#include "lib/job/family_docs.h"
#include "lib/job/fusion_job_fields.h"
#include "lib/job/scalar.h"
#include "lib/job/topology_fields.h"

namespace fusionllm::job {
namespace {

std::string TypeText(const FieldSchema& field) {
  switch (field.type) {
    case FieldType::kBool:
      return "true or false";
    case FieldType::kInteger:
      return field.rule.zero_is_auto ? "whole number or `auto`" : "whole number";
    case FieldType::kNumber:
      return "number";
    case FieldType::kText:
      return field.constant.empty() ? "text" : absl::StrCat("`", field.constant, "`");
    case FieldType::kTime:
      return "time";
    case FieldType::kEnum:
      return absl::StrCat("`", absl::StrJoin(field.choices, "` `"), "`");
    case FieldType::kBandwidth:
      return "bandwidth";
    case FieldType::kSize:
      return "size";
    case FieldType::kDuration:
      return "duration";
    case FieldType::kObject:
      return "mapping";
    case FieldType::kAny:
      return "mapping, any";
    case FieldType::kList:
      return absl::StrCat(field.rule.one_or_many ? "one or a list of: " : "list of: ", TypeText(field.children[0]));
  }
  return "";
}

std::string RangeText(const Rule& rule) {
  std::vector<std::string> parts;
  if (std::isfinite(rule.min)) parts.push_back(absl::StrCat(rule.above_min ? "> " : ">= ", NumberText(rule.min)));
  if (std::isfinite(rule.max)) parts.push_back(absl::StrCat(rule.below_max ? "< " : "<= ", NumberText(rule.max)));
  return absl::StrJoin(parts, ", ");
}

std::string DefaultText(const FieldSchema& field) {
  if (field.rule.required) return "required";
  return field.default_text.empty() ? "" : absl::StrCat("`", field.default_text, "`");
}

}  // namespace

void AppendTables(const FieldSchema& object, const std::string& path, std::string& page) {
  absl::StrAppend(&page, "\n### ", path.empty() ? "(top)" : path,
                  "\n\n| field | type | default | range | meaning |\n|---|---|---|---|---|\n");
  for (const FieldSchema& field : object.children) {
    absl::StrAppend(&page, "| `", field.name, "` | ", TypeText(field), " | ", DefaultText(field), " | ", RangeText(field.rule), " | ",
                    absl::StrReplaceAll(field.doc, {{"|", "\\|"}}), field.rule.kubernetes_only ? " Kubernetes only." : "", " |\n");
  }
  for (const FieldSchema& field : object.children) {
    const std::string inner = path.empty() ? field.name : absl::StrCat(path, ".", field.name);
    if (field.type == FieldType::kObject) AppendTables(field, inner, page);
    if (field.type == FieldType::kList && field.children[0].type == FieldType::kObject) AppendTables(field.children[0], inner + "[]", page);
  }
}

FieldSchema FusionJobSchema() { return Describer::Root<FusionJob>(); }
FieldSchema TopologySchema() { return Describer::Root<Topology>(); }

std::string ReferencePage() {
  std::string page =
      "# Job and topology files\n\n"
      "<!-- Generated from lib/job; `FUSIONLLM_REGENERATE=1 build/tests/job_tests --test_file=lib/job/job_examples_test.cc` rewrites "
      "it. -->\n\n"
      "Unknown keys, wrong types and values out of range are errors that name file, line and field. No default and not required: absence "
      "means what the last column says, or nothing. `status`, and what the API server alone writes in `metadata` (`creationTimestamp`, "
      "`uid`, `managedFields`, `finalizers` and so on), are passed over in a FusionJob: a file may be what `kubectl get -o yaml` or "
      "`kustomize build` printed. Invisible characters (a no-break space, a zero-width space) are refused outside quotes, block "
      "text and remarks.\n\n"
      "Units: `bit`, `kbit`, `Mbit`, `Gbit` per second (decimal); `Ki`, `Mi`, `Gi`, `Ti` bytes; `us`, `ms`, `s`. "
      "Limits: 1 MiB of UTF-8 text, 100,000 values, 64 levels (a topology: 4 MiB, 400,000 values); "
      "text of 4,096 bytes unless said otherwise; lists of 1,000 elements.\n\n"
      "Fields that are Kubernetes only have no effect elsewhere: `fusionctl run`, `plan` and `simulate` name those that are set in a "
      "warning.\n\n"
      "## FusionJob\n";
  AppendTables(FusionJobSchema(), "", page);
  page += TrainingDefaultsSection();
  absl::StrAppend(
      &page,
      "\n## Topology\n\n"
      "The most specific link wins: between two devices (theirs alone, no port or uplink is passed), then between a device and a "
      "site, then between two sites (one capacity in each direction, shared by all pairs that cross). Inside a site, `internal` "
      "is each device's own port, and its latency counts once. Between sites a message passes the sender's port, the sender's "
      "uplink, the link, the receiver's uplink and the receiver's port: the narrowest limits it, and the latency is the link's "
      "alone. Every pair of devices must have a link in both directions.\n");
  AppendTables(TopologySchema(), "", page);
  return page;
}

}  // namespace fusionllm::job
