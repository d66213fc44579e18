// Named attributes of an operator: integers, numbers, booleans, texts and integer lists.
//
// Kept sorted by name, so printing and hashing are canonical. Getters with a default never fail; Validate in the op's schema has
// checked names and kinds before any kernel or rule reads them. Not thread-safe for writing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace fusionllm::opdag {

using AttributeValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>>;

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, AttributeValue>> values) : values_(values) {}

  void Set(absl::string_view name, AttributeValue value) { values_[std::string(name)] = std::move(value); }
  bool Has(absl::string_view name) const { return Find(name) != nullptr; }

  int64_t Int(absl::string_view name, int64_t fallback = 0) const;
  double Number(absl::string_view name, double fallback = 0) const;  // an integer converts
  bool Bool(absl::string_view name, bool fallback = false) const;
  std::string Text(absl::string_view name, absl::string_view fallback = "") const;
  std::vector<int64_t> Ints(absl::string_view name) const;  // empty when absent

  const std::map<std::string, AttributeValue>& values() const { return values_; }
  bool operator==(const Attributes&) const = default;

 private:
  const AttributeValue* Find(absl::string_view name) const;
  std::map<std::string, AttributeValue> values_;
};

// "causal=true, heads=6, shape=[b, 3]": the text form; numbers print so that they parse back to the same bits. A number always shows a
// point or an exponent, an integer never does; -2 prints as b in the attribute "shape" alone.
std::string ToString(const Attributes& attributes);

}  // namespace fusionllm::opdag
