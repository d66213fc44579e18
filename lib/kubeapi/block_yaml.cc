#include "absl/strings/str_cat.h"
#include "lib/job/printer.h"
#include "lib/kubeapi/crd.h"
#include "nlohmann/json.hpp"

namespace fusionllm::kubeapi {
namespace {

using nlohmann::ordered_json;

bool IsBlock(const ordered_json& value) { return value.is_structured() && !value.empty(); }

std::string Inline(const ordered_json& value) {
  return value.is_string() ? job::YamlText(value.get_ref<const std::string&>()) : value.dump();
}

void Append(const ordered_json& value, int indent, std::string& out);

void AppendEntry(const std::string& head, const ordered_json& value, int indent, std::string& out) {
  absl::StrAppend(&out, head, IsBlock(value) ? "\n" : absl::StrCat(" ", Inline(value), "\n"));
  // Lists stand at the indentation of their key, as kubectl prints them.
  if (IsBlock(value)) Append(value, value.is_array() ? indent : indent + 2, out);
}

void Append(const ordered_json& value, int indent, std::string& out) {
  const std::string space(indent, ' ');
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) AppendEntry(absl::StrCat(space, job::YamlText(key), ":"), item, indent, out);
    return;
  }
  for (const ordered_json& item : value) {
    if (!item.is_object() || item.empty()) {
      absl::StrAppend(&out, space, "- ", Inline(item), "\n");
      continue;
    }
    const size_t start = out.size();
    Append(item, indent + 2, out);
    out[start + indent] = '-';  // the first line of an element carries the dash in its indentation
  }
}

}  // namespace

std::string ToYaml(const ordered_json& document) {
  std::string out;
  Append(document, 0, out);
  return out;
}

}  // namespace fusionllm::kubeapi
