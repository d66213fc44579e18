// Where the fields of a job were written, for who finds something wrong with them once the job is read: a file and a line, or --set.
// Plain data, pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/job/document.h"

namespace fusionllm::job {

class FieldLocations {
 public:
  FieldLocations() = default;  // of no document: messages stay as they are
  FieldLocations(absl::string_view file_name, Node root, std::span<const std::string> overrides);

  // Every line of `message` that begins with a field has its place in front: "spec.data.path: no such file" becomes
  // "job.yaml:7: spec.data.path: no such file", or "--set spec.data.path: no such file". Of a field that is left out the place is that of
  // the mapping it belongs to. Other lines stay as they are.
  std::string Located(absl::string_view message) const;
  absl::Status Located(const absl::Status& status) const;

 private:
  std::string LocatedLine(absl::string_view line) const;

  std::string file_name_;
  Node root_;
  std::vector<std::string> overrides_;  // their paths
  bool known_ = false;
};

}  // namespace fusionllm::job
