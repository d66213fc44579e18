// Label and field selectors, as a fake API server needs them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kube::testing {

class Selector {
 public:
  // Labels as in "a=b,c!=d,e in (f,g),!h", fields as in "metadata.name=x,status.phase!=Running"; of either nothing: all objects.
  // InvalidArgument when one cannot be read.
  static absl::StatusOr<Selector> Parse(absl::string_view labels, absl::string_view fields);

  bool Holds(const nlohmann::json& object) const;

 private:
  // The label or field `name` is one of `values`, or is none of them; of a label: it is there, or is not.
  struct Requirement {
    std::string name;
    std::vector<std::string> values;
    bool negated = false;
    bool presence = false;
  };

  static absl::StatusOr<Requirement> ParseLabel(const std::string& text);
  static absl::StatusOr<Requirement> ParseField(const std::string& text);

  std::vector<Requirement> labels_;
  std::vector<std::vector<std::string>> paths_;  // of `fields_`
  std::vector<Requirement> fields_;
};

}  // namespace fusionllm::kube::testing
