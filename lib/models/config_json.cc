#include "lib/models/config_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "lib/base/status_macros.h"
#include "lib/base/truncate_utf8.h"

namespace fusionllm::models {
namespace {

using nlohmann::json;

constexpr size_t kMaxExcerptBytes = 60;

bool Describes(const json& document, const HuggingFaceFormat& form) {
  const auto any_of = [](const std::vector<const char*>& texts, const auto& fits) { return std::any_of(texts.begin(), texts.end(), fits); };
  if (const auto type = document.find("model_type"); type != document.end()) {
    return any_of(form.model_types, [&](const char* known) { return *type == known; });
  }
  const auto names = document.find("architectures");
  if (names == document.end() || !names->is_array()) return false;
  return std::any_of(names->begin(), names->end(), [&](const json& name) {
    const auto begins = [&](const char* prefix) { return name.get_ref<const std::string&>().starts_with(prefix); };
    return name.is_string() && any_of(form.architecture_prefixes, begins);
  });
}

absl::Status OfNoFamily(const json& document, const std::vector<const char*>& model_types) {
  const char* const key = document.contains("model_type") ? "model_type" : "architectures";
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is ", Excerpt(document.at(key)), ", not that of a ", absl::StrJoin(model_types, " or ")));
}

absl::Status GetSize(const json& document, const StoredSize& size, ModelSettings& settings) {
  const auto found = document.find(size.key);
  if (found == document.end()) return absl::OkStatus();
  if (!found->is_number_integer() || *found < 1 || *found > size.max) {
    return absl::InvalidArgumentError(absl::StrCat(size.key, " is ", Excerpt(*found), ", but must be a whole number from 1 to ", size.max));
  }
  settings.*size.value = found->get<int64_t>();
  return absl::OkStatus();
}

}  // namespace

std::string Excerpt(const json& value) {
  return base::TruncateUtf8(value.dump(-1, ' ', false, json::error_handler_t::replace), kMaxExcerptBytes);
}

absl::Status ReadStoredSizes(const json& document, ConfigJson& config) {
  const HuggingFaceFormat& form = *config.family->hugging_face_format();
  for (const StoredSize& size : form.sizes) FUSIONLLM_RETURN_IF_ERROR(GetSize(document, size, config.sizes.settings));
  const auto tied = document.find(form.tied_head.key);
  if (tied == document.end()) return absl::OkStatus();
  if (!tied->is_boolean()) {
    return absl::InvalidArgumentError(absl::StrCat(form.tied_head.key, " is ", Excerpt(*tied), ", but must be true or false"));
  }
  config.sizes.settings.*form.tied_head.value = tied->get<bool>();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ConfigJson>> ParseConfigJson(absl::string_view text) {
  const json document = base::ParseJson(text);
  if (!document.is_object()) return absl::InvalidArgumentError("it is no JSON object");
  if (!document.contains("model_type") && !document.contains("architectures")) return std::nullopt;
  std::vector<const char*> known;
  ConfigJson config;
  for (const Family* family : FamiliesWithHuggingFaceFormat()) {
    const HuggingFaceFormat& form = *family->hugging_face_format();
    known.insert(known.end(), form.model_types.begin(), form.model_types.end());
    if (config.family == nullptr && Describes(document, form)) config.family = family;
  }
  if (config.family == nullptr) return OfNoFamily(document, known);
  FUSIONLLM_RETURN_IF_ERROR(config.family->ReadConfig(document, config));
  return config;
}

}  // namespace fusionllm::models
