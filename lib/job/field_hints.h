// What a field that does not exist was probably meant to be: by its spelling, by where else in the document a field has that name, and by
// what other trainers call it (`lr`, `batch_size`, `max_steps`). Pure and thread-safe.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/job/schema.h"

namespace fusionllm::job {

class FieldHints {
 public:
  enum class Document { kFusionJob, kTopology };
  // Both know words that others have for their fields.
  FieldHints(const FieldSchema& root, Document document);

  // For `key` in the mapping at `path` ("spec.training"; empty: the document), whose fields are `known`. "did you mean steps?",
  // "did you mean spec.training.optimizer.learningRate?", or a sentence on what takes its place; empty: nothing is near.
  std::string For(absl::string_view path, absl::string_view key, std::span<const std::string> known) const;
  // Behind `wrong`, what is said of a value at `path` that is refused: what to do where none of what may stand there is meant. Mostly
  // empty.
  std::string ForValue(absl::string_view path, absl::string_view wrong) const;

 private:
  std::map<std::string, std::vector<std::string>> paths_;  // by folded name; without fields inside lists
  std::vector<std::string> names_;                         // as the fields are written
  Document document_;
};

// Of a FusionJob and of a Topology; made once.
const FieldHints& FusionJobHints();
const FieldHints& TopologyHints();

}  // namespace fusionllm::job
