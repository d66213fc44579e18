// Reading JSON text by simdjson's on-demand parser; for the sources of this folder only, which keep its large header to themselves.
//
// Reads throw simdjson::simdjson_error; ReadJson() turns that into a status. The document is read in one pass, front to back.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kube {

using JsonValue = simdjson::ondemand::value;

inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Text where null or nothing is the same as "".
inline std::string TextOf(JsonValue value) { return value.is_null() ? std::string() : std::string(value.get_string().value()); }

// Calls `each(name, value)` for every field of an object; none for null.
template <class Each>
void ForEachField(JsonValue value, const Each& each) {
  if (value.is_null()) return;
  for (auto field : value.get_object()) {
    // The name is a view of memory that the next string may move on from, not overwrite.
    const std::string_view name = field.unescaped_key();
    JsonValue field_value = field.value();
    each(name, field_value);
  }
}

template <class Each>
void ForEachElement(JsonValue value, const Each& each) {
  if (value.is_null()) return;
  for (auto element : value.get_array()) {
    JsonValue element_value = element.value();
    each(element_value);
  }
}

// Parses `json` and calls `read(object)` with the root, a simdjson::ondemand::object. What it hands out is valid during the call. Each
// place that calls this has a parser of its own for each thread, and must not be entered again from within.
template <class Read>
absl::Status ReadJson(absl::string_view json, const Read& read) {
  // Kept for the next document, unless one was so large that it would be a waste.
  constexpr size_t kKeptBytes = size_t{1} << 20;
  thread_local simdjson::ondemand::parser parser;
  thread_local std::string padded;
  absl::Status status;
  try {
    padded.assign(json.data(), json.size());
    padded.resize(json.size() + simdjson::SIMDJSON_PADDING);
    simdjson::ondemand::document document = parser.iterate(padded.data(), json.size(), padded.size());
    read(document.get_object().value());
  } catch (const simdjson::simdjson_error& error) {
    status = absl::InvalidArgumentError(absl::StrCat("not the JSON of a Kubernetes object: ", error.what()));
  }
  if (json.size() > kKeptBytes) {
    parser = simdjson::ondemand::parser();
    padded = std::string();
  }
  return status;
}

}  // namespace fusionllm::kube
