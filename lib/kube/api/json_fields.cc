#include "lib/kube/api/json_fields.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "lib/base/json_text.h"

namespace fusionllm::kube {

using nlohmann::json;

const json& At(const json& object, absl::string_view key) {
  static const json kNothing;
  if (!object.is_object()) return kNothing;
  const auto at = object.find(key);
  return at == object.end() ? kNothing : *at;
}

const json& ListOf(const json& value) {
  static const json kEmpty = json::array();
  return value.is_array() ? value : kEmpty;
}

const json& MappingOf(const json& value) {
  static const json kEmpty = json::object();
  return value.is_object() ? value : kEmpty;
}

std::string TextOf(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

int64_t IntegerOf(const json& value, int64_t otherwise) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return otherwise;
  return value.is_number_integer() ? value.get<int64_t>() : otherwise;
}

json ParseJson(absl::string_view text) {
  json parsed = base::ParseJson(text);
  if (parsed.is_discarded()) return {};
  return parsed;
}

}  // namespace fusionllm::kube
