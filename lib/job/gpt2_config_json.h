// config.json of a GPT-2 as Hugging Face's transformers keeps it beside the parameters (GPT2Config). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/job/model_config.h"

namespace fusionllm::job {

struct Gpt2ConfigJson {
  GptConfig sizes;                    // what the file leaves out is as in GPT2Config
  std::vector<std::string> problems;  // settings that family gpt2 does not have, a sentence about each
  std::vector<std::string> warnings;  // settings that change training and not what the model computes
};

// nullopt: it is no model's of transformers, as it names neither model_type nor architectures: other programs have files of that name.
// Errors: InvalidArgument for text that is no JSON object, another model's, or a size that is no number in the range of the job's field.
absl::StatusOr<std::optional<Gpt2ConfigJson>> ParseGpt2ConfigJson(absl::string_view text);

// What GPT2LMHeadModel.from_pretrained needs for parameters of these sizes, and that there is no dropout. Tokens of a tokenizer that no one
// here knows are null.
std::string FormatGpt2ConfigJson(const GptConfig& sizes);

}  // namespace fusionllm::job
