#include "lib/base/json_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace fusionllm::base {

// Brackets and commas inside texts do not count.
std::string BeyondJsonLimits(absl::string_view text, const JsonLimits& limits) {
  int depth = 0;
  size_t values = 1;
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      ++values;
      if (++depth > limits.depth) return absl::StrFormat("byte %d: nested deeper than %d", i, limits.depth);
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ',' && ++values > limits.values) {
      return absl::StrFormat("byte %d: more than %d values", i, limits.values);
    }
  }
  return "";
}

nlohmann::json ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (!BeyondJsonLimits(text, limits).empty()) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, false);  // tidy-allow: json because its limits are looked at here
}

}  // namespace fusionllm::base
