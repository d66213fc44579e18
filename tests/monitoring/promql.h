// What an expression of PromQL reads. No parser of the language: Prometheus itself says whether an expression is one.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace fusionllm::monitoring {

struct Selector {
  std::string metric;
  std::string text;  // with its matchers: metric{label="value"}

  bool operator==(const Selector&) const = default;
};

// In the order of the text.
std::vector<Selector> Selectors(absl::string_view expression);

// The name of the family that a series belongs to: without the suffixes that histograms add, if what is left is one of `families`.
std::string FamilyOf(const std::string& metric, const std::set<std::string>& families);

}  // namespace fusionllm::monitoring
