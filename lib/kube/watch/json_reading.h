// Reading JSON text by simdjson's on-demand parser; for the sources of this folder only, which keep its large header to themselves.
//
// Reads throw simdjson::simdjson_error; ReadJson() turns that into a status. The document is read in one pass, front to back.
#pragma once

#include <simdjson.h>

#include <memory>
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

// A parser and the copy of a document that it reads, out of a pool that the whole process shares: an informer's thread parses for a moment
// and then waits for minutes, and a parser takes some seven times what it has read. With one for each thread and place that reads, an
// operator of eight clusters kept 3 MiB of them.
class ParserLease {
 public:
  ParserLease();
  ~ParserLease();
  ParserLease(const ParserLease&) = delete;
  ParserLease& operator=(const ParserLease&) = delete;

  // Throws simdjson::simdjson_error. The document is valid until the next call.
  simdjson::ondemand::document Iterate(absl::string_view json);

  struct Parser {
    simdjson::ondemand::parser parser;
    std::string padded;
  };

 private:
  std::unique_ptr<Parser> parser_;
};

// Parses `json` and calls `read(object)` with the root, a simdjson::ondemand::object. What it hands out is valid during the call.
template <class Read>
absl::Status ReadJson(absl::string_view json, const Read& read) {
  ParserLease parser;
  try {
    simdjson::ondemand::document document = parser.Iterate(json);
    read(document.get_object().value());
  } catch (const simdjson::simdjson_error& error) {
    return absl::InvalidArgumentError(absl::StrCat("not the JSON of a Kubernetes object: ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::kube
