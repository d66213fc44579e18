// How two jobs differ, field by field: what a run says of a checkpoint that another form of its job has made.
//
// Pure functions, thread-safe.
#pragma once

#include <string>
#include <vector>

#include "lib/job/fusion_job.h"

namespace fusionllm::job {

struct FieldDifference {
  std::string path;      // "spec.training.steps", "spec.strategy.pins[0].device"
  std::string from, to;  // as a job file has them, cut where they are long; "none" where the field is absent
  bool operator==(const FieldDifference&) const = default;
};

// In the order of the reference, defaults filled in. The model is compared by what it resolves to: another preset of the same sizes is
// none, and another preset of other sizes is named by the sizes. A list is one value unless both have as many elements, and these are
// mappings.
std::vector<FieldDifference> Differences(const FusionJob& from, const FusionJob& to);

// Those of `differences` that make another model: all of spec.model but where its parameters start, and but for a graph, whose text says
// little of what it computes.
std::vector<FieldDifference> ArchitectureDifferences(const std::vector<FieldDifference>& differences);

// "spec.training.steps 200 -> 400, spec.training.seed 1 -> 2 and 3 more".
std::string ToString(const std::vector<FieldDifference>& differences, size_t max);

}  // namespace fusionllm::job
