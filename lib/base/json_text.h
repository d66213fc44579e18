// Text of others as JSON: the one way in for files, pages and answers.
//
// nlohmann's parser takes any depth, but copies and prints of what it made recurse once for each level: some 100,000 brackets end the
// process. So nothing is made of text that nests deeper than a limit. Pure; thread-safe; holds nothing.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::base {

inline constexpr int kMaxJsonDepth = 128;  // objects of Kubernetes nest up to some 30

struct JsonLimits {
  int depth = kMaxJsonDepth;
  size_t values = size_t{1} << 26;  // each takes many times the memory of its text
};

// What of `text` is beyond the limits: "byte 17: nested deeper than 16"; empty: nothing. Says nothing of whether it is JSON.
std::string BeyondJsonLimits(absl::string_view text, const JsonLimits& limits = {});

// A value that is_discarded() for text that is no JSON or beyond the limits.
nlohmann::json ParseJson(absl::string_view text, const JsonLimits& limits = {});

}  // namespace fusionllm::base
