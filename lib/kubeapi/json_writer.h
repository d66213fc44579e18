// Visitor that writes structs as JSON for the API server: what is absent is left out, so that a server-side apply owns exactly what is
// there. Numbers and booleans are always written; empty text, lists and mappings are absence. Pure; text must be UTF-8.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/base/json_text.h"
#include "lib/job/schema.h"
#include "lib/job/units.h"
#include "nlohmann/json.hpp"

namespace fusionllm::kubeapi {

class JsonWriter {
 public:
  static constexpr bool kFillsIn = false;

  template <class T>
  static nlohmann::json Write(T value) {  // a copy: visiting takes a reference
    JsonWriter writer;
    Visit(writer, value);
    return std::move(writer.out_);
  }

  void Constant(absl::string_view name, absl::string_view value) { out_[std::string(name)] = std::string(value); }

  template <class T>
  void Field(absl::string_view name, T& value, const job::Rule& rule, absl::string_view) {
    if (!rule.applies) return;
    const std::string key(name);
    if constexpr (job::IsOptional<T>::value) {
      if (value) out_[key] = Value(*value, rule);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.empty() || rule.required) out_[key] = value;
    } else if constexpr (job::IsVector<T>::value || std::is_same_v<T, job::RawExtension> || !job::kIsScalar<T>) {
      nlohmann::json inner = Value(value, rule);
      if (!inner.empty()) out_[key] = std::move(inner);
    } else {
      out_[key] = Value(value, rule);
    }
  }

 private:
  template <class T>
  static nlohmann::json Value(const T& value, const job::Rule& rule) {
    if constexpr (std::is_same_v<T, int64_t>) {
      if (rule.zero_is_auto && value == 0) return "auto";
      return value;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else if constexpr (std::is_same_v<T, absl::Time>) {
      return absl::FormatTime("%Y-%m-%d%ET%H:%M:%SZ", value, absl::UTCTimeZone());
    } else if constexpr (job::kIsEnum<T> || job::kIsQuantity<T>) {
      return job::ToString(value);
    } else if constexpr (std::is_same_v<T, job::RawExtension>) {
      // Empty text is absence: a mapping that was written as {} is kept by its caller as an optional.
      return value.json.empty() ? nlohmann::json() : base::ParseJson(value.json);
    } else if constexpr (job::IsVector<T>::value) {
      nlohmann::json list = nlohmann::json::array();
      for (const auto& element : value) list.push_back(Value(element, rule));
      return list;
    } else {
      return Write(value);
    }
  }

  nlohmann::json out_ = nlohmann::json::object();
};

}  // namespace fusionllm::kubeapi
