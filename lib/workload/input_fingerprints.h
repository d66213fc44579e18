// What lies in the files that a job names, so that a run which goes on can tell whether it is still what it was: a path says no more than
// where to look.
#pragma once

#include <map>
#include <string>

#include "lib/job/fusion_job.h"

namespace fusionllm::workload {

// By field ("spec.model.graph.file"): what is compared, in words for users.
using InputFingerprints = std::map<std::string, std::string>;

inline constexpr char kTrainingDataField[] = "spec.data.path";
inline constexpr char kValidationDataField[] = "spec.data.validation.path";

// Of the graph's file and of the files that the model starts from, those that can be read here: a broker may not see them. Blocks.
InputFingerprints FingerprintInputs(const job::FusionJob& job, const std::string& base_directory);

// "spec.model.graph.file holds 12 bytes, 9f.. instead of 14 bytes, 1c.."; empty: all that both have is the same.
std::string ChangedInputs(const InputFingerprints& then, const InputFingerprints& now);

}  // namespace fusionllm::workload
