// config.json of a model as Hugging Face's transformers keeps it beside the parameters: which family it is of, and its sizes. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/models/families.h"

namespace fusionllm::models {

struct ConfigJson {
  const Family* family = nullptr;
  ModelSizes sizes;                   // what the file leaves out is as transformers has it
  std::vector<std::string> problems;  // settings that the family does not have, a sentence about each
  std::vector<std::string> warnings;  // settings that change training and not what the model computes
};

// nullopt: it is no model's of transformers, as it names neither model_type nor architectures: other programs have files of that name.
// Errors: InvalidArgument for text that is no JSON object, for a model of no family, or a size that is no number in the range of the job's
// field.
absl::StatusOr<std::optional<ConfigJson>> ParseConfigJson(absl::string_view text);

// For Family::ReadConfig.
// The value as JSON, cut short.
std::string Excerpt(const nlohmann::json& value);
// Sets the sizes of the family's HuggingFaceFormat and whether its head is tied, where the document says them; others stay.
absl::Status ReadStoredSizes(const nlohmann::json& document, ConfigJson& config);

}  // namespace fusionllm::models
