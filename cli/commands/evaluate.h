// The mean loss of a stored model over a file, in this process alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "lib/checkpoint/reader.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::cli {

struct EvaluationReport {
  std::optional<double> loss;      // mean over all targets that count; none where no target does
  std::optional<double> accuracy;  // of the targets; none for a loss that counts no labels
  int64_t windows = 0;             // samples: windows of tokens, or images
  int64_t tokens = 0;              // targets that count
  int64_t ignored_tokens = 0;      // targets that the loss ignores
};

// Every window (or image) of `file` once, in file order, or, for generated data, with `file` empty, every image that training holds out, or
// every image where it holds out none, by the model of `job` with the parameters of `stored`. sequence_length 0: the
// job's. Blocks for as long as the forward passes take. Errors: those of the model, the data (naming file and offset) and the checkpoint
// (naming a parameter that it lacks).
absl::StatusOr<EvaluationReport> EvaluateFile(job::FusionJob job, const checkpoint::CheckpointReader& stored, const std::string& file,
                                              int64_t sequence_length, int threads);

}  // namespace fusionllm::cli
