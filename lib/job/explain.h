// What the field table says of one field, for people: `fusionctl explain`. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/job/schema.h"

namespace fusionllm::job {

struct FoundField {
  std::string path;  // as it is written in a job: "spec.strategy.pins[].ops"; empty: the document
  FieldSchema field;
};

// "spec.training.optimizer"; elements of lists as "pins[0].ops", "pins[].ops" or "pins.ops"; before it may stand "fusionjob" (which is what
// is meant without it) or "topology", alone or with a dot. Errors: NotFound, with what was probably meant.
absl::StatusOr<FoundField> FindField(absl::string_view path);

// Of all mappings of a job and their fields, without those inside lists: what a shell completes.
std::vector<std::string> FieldPaths();

// "whole number or auto, >= 1, <= 1048576", "one of adamw, sgd", "list of: text".
std::string TypeAndRange(const FieldSchema& field);
// "required", "default 0.001", "default 0.01, depends on other fields"; empty: absence means something of its own, or nothing.
std::string DefaultOf(const FieldSchema& field);

// The field and, of a mapping or a list of them, a paragraph for each of its fields; with `recursive` the names and types of all below it.
std::string ExplainText(const FoundField& found, bool recursive);

}  // namespace fusionllm::job
