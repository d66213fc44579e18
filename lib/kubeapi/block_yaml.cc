#include "absl/strings/str_cat.h"
#include "lib/job/printer.h"
#include "lib/kubeapi/crd.h"
#include "nlohmann/json.hpp"

namespace fusionllm::kubeapi {
namespace {

using json = nlohmann::ordered_json;

bool IsBlock(const json& value) { return value.is_structured() && !value.empty(); }

std::string Inline(const json& value) { return value.is_string() ? job::YamlText(value.get_ref<const std::string&>()) : value.dump(); }

void Append(const json& value, int indent, std::string& out);

void AppendEntry(const std::string& head, const json& value, int indent, std::string& out) {
  absl::StrAppend(&out, head, IsBlock(value) ? "\n" : absl::StrCat(" ", Inline(value), "\n"));
  // Lists stand at the indentation of their key, as kubectl prints them.
  if (IsBlock(value)) Append(value, value.is_array() ? indent : indent + 2, out);
}

void Append(const json& value, int indent, std::string& out) {
  const std::string space(indent, ' ');
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) AppendEntry(absl::StrCat(space, job::YamlText(key), ":"), item, indent, out);
    return;
  }
  for (const json& item : value) {
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

std::string ToYaml(const json& document) {
  std::string out;
  Append(document, 0, out);
  return out;
}

}  // namespace fusionllm::kubeapi
