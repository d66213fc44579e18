#include "lib/kube/watch/strip_fields.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "lib/base/status_macros.h"
#include "lib/kube/watch/json_reading.h"

namespace fusionllm::kube {
namespace {

// As those of all kinds are. Others, which would have to be escaped, are left out.
bool IsPlain(absl::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); });
}

// Appends the fields that `keeps(name)`, in braces; `append(name, value)` says how.
template <class Keeps, class Append>
void Copy(simdjson::ondemand::object object, const Keeps& keeps, const Append& append, std::string& out) {
  char before = '{';
  for (auto field : object) {
    const std::string name(field.unescaped_key().value());
    if (!IsPlain(name) || !keeps(name)) continue;
    out += before;
    absl::StrAppend(&out, "\"", name, "\":");
    append(name, field.value());
    before = ',';
  }
  if (before == '{') out += before;
  out += '}';
}

}  // namespace

absl::StatusOr<std::string> StripFields(absl::string_view object, std::initializer_list<absl::string_view> without) {
  std::string lean;
  const auto raw = [&](const std::string&, JsonValue value) { absl::StrAppend(&lean, View(simdjson::to_json_string(value).value())); };
  const auto wanted = [&](const std::string& name) { return std::find(without.begin(), without.end(), name) == without.end(); };
  const auto top = [&](const std::string& name, JsonValue value) {
    if (name != "metadata" || value.type() != simdjson::ondemand::json_type::object) return raw(name, value);
    Copy(
        value.get_object().value(), [](const std::string& field) { return field != "managedFields"; }, raw, lean);
  };
  FUSIONLLM_RETURN_IF_ERROR(ReadJson(object, [&](simdjson::ondemand::object root) { Copy(root, wanted, top, lean); }));
  return lean;
}

}  // namespace fusionllm::kube
