#include "lib/job/reference.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "lib/job/fusion_job_fields.h"
#include "lib/job/printer.h"
#include "lib/job/scalar.h"
#include "lib/job/topology_fields.h"

namespace fusionllm::job {
namespace {

template <class T>
constexpr FieldType ScalarType() {
  if constexpr (std::is_same_v<T, bool>) return FieldType::kBool;
  if constexpr (std::is_same_v<T, int64_t>) return FieldType::kInteger;
  if constexpr (std::is_same_v<T, double>) return FieldType::kNumber;
  if constexpr (std::is_same_v<T, Bandwidth>) return FieldType::kBandwidth;
  if constexpr (std::is_same_v<T, ByteSize>) return FieldType::kSize;
  if constexpr (std::is_same_v<T, Duration>) return FieldType::kDuration;
  if constexpr (std::is_enum_v<T>) return FieldType::kEnum;
  return FieldType::kText;
}

// Visitor that turns the table into data.
class Describer {
 public:
  static constexpr bool kFillsIn = false;

  template <class T>
  static FieldSchema Root() {
    T value;
    Describer describer;
    Visit(describer, value);
    FieldSchema root;
    root.children = std::move(describer.fields_);
    return root;
  }

  void Constant(absl::string_view name, absl::string_view value) {
    FieldSchema& field = fields_.emplace_back();
    field.name = std::string(name);
    field.type = FieldType::kText;
    field.rule.required = true;
    field.constant = std::string(value);
    field.doc = "Always this.";
  }

  template <class T>
  void Field(absl::string_view name, T& value, const Rule& rule, absl::string_view doc) {
    FieldSchema field = Describe(value, rule);
    field.name = std::string(name);
    field.doc = std::string(doc);
    fields_.push_back(std::move(field));
  }

 private:
  template <class T>
  static FieldSchema Describe(T& value, const Rule& rule) {
    FieldSchema field;
    field.rule = rule;
    field.rule.applies = true;
    if constexpr (IsOptional<T>::value) {
      typename T::value_type inner{};
      field = Describe(inner, rule);
      field.optional = true;
      field.default_text.clear();
    } else if constexpr (IsVector<T>::value) {
      typename T::value_type element{};
      field.type = FieldType::kList;
      field.children.push_back(Describe(element, rule));
      field.children[0].default_text.clear();
    } else if constexpr (std::is_same_v<T, Opaque>) {
      field.type = FieldType::kAny;
      field.optional = true;
    } else if constexpr (kIsScalar<T>) {
      field.type = ScalarType<T>();
      if constexpr (std::is_enum_v<T>) field.choices = EnumChoices<T>();
      const std::string text = ScalarText(value, rule);
      if (!rule.required && text != "\"\"") field.default_text = text;
    } else {
      Describer inner;
      Visit(inner, value);
      field.children = std::move(inner.fields_);
    }
    return field;
  }

  std::vector<FieldSchema> fields_;
};

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

void AppendObject(const FieldSchema& object, const std::string& path, std::string& page) {
  absl::StrAppend(&page, "\n### ", path.empty() ? "(top)" : path,
                  "\n\n| field | type | default | range | meaning |\n|---|---|---|---|---|\n");
  for (const FieldSchema& field : object.children) {
    absl::StrAppend(&page, "| `", field.name, "` | ", TypeText(field), " | ", DefaultText(field), " | ", RangeText(field.rule), " | ",
                    absl::StrReplaceAll(field.doc, {{"|", "\\|"}}), field.rule.kubernetes_only ? " Kubernetes only." : "", " |\n");
  }
  for (const FieldSchema& field : object.children) {
    const std::string inner = path.empty() ? field.name : absl::StrCat(path, ".", field.name);
    if (field.type == FieldType::kObject) AppendObject(field, inner, page);
    if (field.type == FieldType::kList && field.children[0].type == FieldType::kObject) AppendObject(field.children[0], inner + "[]", page);
  }
}

}  // namespace

FieldSchema FusionJobSchema() { return Describer::Root<FusionJob>(); }
FieldSchema TopologySchema() { return Describer::Root<Topology>(); }

std::string ReferencePage() {
  std::string page =
      "# Job and topology files\n\n"
      "<!-- Generated from lib/job; `FUSIONLLM_REGENERATE=1 build/tests/job_examples_test` writes it anew. -->\n\n"
      "Unknown keys, wrong types and values out of range are errors that name file, line and field. No default and not required: absence "
      "means what the last column says, or nothing.\n\n"
      "Units: `bit`, `kbit`, `Mbit`, `Gbit` per second (decimal); `Ki`, `Mi`, `Gi`, `Ti` bytes; `us`, `ms`, `s`. "
      "Limits: 1 MiB of UTF-8 text, 100,000 values, 64 levels; text of 4,096 bytes unless said otherwise; lists of 1,000 elements.\n\n"
      "## FusionJob\n";
  AppendObject(FusionJobSchema(), "", page);
  absl::StrAppend(
      &page,
      "\n## Topology\n\n"
      "The most specific link wins: between two devices (theirs alone, no port or uplink is passed), then between a device and a "
      "site, then between two sites (one capacity in each direction, shared by all pairs that cross). Inside a site, `internal` "
      "is each device's own port, and its latency counts once. Between sites a message passes the sender's port, the sender's "
      "uplink, the link, the receiver's uplink and the receiver's port: the narrowest limits it, and the latency is the link's "
      "alone. Every pair of devices must have a link in both directions.\n");
  AppendObject(TopologySchema(), "", page);
  return page;
}

}  // namespace fusionllm::job
