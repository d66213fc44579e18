// What the sentences of the YAML parser mean for who wrote the line. Pure and thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::job {

// `parser_message` behind what is mostly wrong: "this line does not fit ..: .. (end of map not found)"; as it is where nothing is known.
std::string ExplainYamlError(absl::string_view parser_message);

}  // namespace fusionllm::job
