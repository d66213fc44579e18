// Reads objects that others wrote: what is missing, or of another type than it should be, reads as nothing. An API server checks most of
// what it stores, not what is opaque to it, and a member's server need not be honest. Pure. Nothing here throws, unlike the library's own
// value(), at() and operator[], which throw at a value of another type.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::kube {

// What stands under `key`; null where `object` is no mapping or has no such key. Lives as long as `object`.
const nlohmann::json& At(const nlohmann::json& object, absl::string_view key);

// The same along a path of keys.
template <class... Keys>
const nlohmann::json& At(const nlohmann::json& object, absl::string_view key, absl::string_view next, const Keys&... rest) {
  return At(At(object, key), next, rest...);
}

// `value` if it is a list, else an empty one; the same for mappings. For loops, which would visit a bare value as if it were in a list.
const nlohmann::json& ListOf(const nlohmann::json& value);
const nlohmann::json& MappingOf(const nlohmann::json& value);

// `value` if it is text, else "".
std::string TextOf(const nlohmann::json& value);
template <class... Keys>
std::string TextAt(const nlohmann::json& object, const Keys&... path) {
  return TextOf(At(object, path...));
}

// `value` if it is a whole number that an int64_t holds, else `otherwise`.
int64_t IntegerOf(const nlohmann::json& value, int64_t otherwise);

// What `text` says; null if it is no JSON.
nlohmann::json ParseJson(absl::string_view text);

}  // namespace fusionllm::kube
