// Times the ops of a training graph on this machine, slice by slice. Part of calibration (calibrate.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/base/memory_limit.h"
#include "lib/kernels/backend.h"
#include "lib/runtime/stage_executor.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::planning {

// Bytes that a slice needs before it ends: well beyond the caches, so that its ops meet memory as cold as they will in the whole graph.
inline constexpr int64_t kSliceBytes = int64_t{128} << 20;

// The slice of each forward op: consecutive ops, each slice but the last as soon as it has `slice_bytes` of weights, gradients, optimizer
// state and values. Placeholders are in the first.
std::vector<int> SlicesOf(const autodiff::TrainingGraph& training, int state_tensors, int64_t slice_bytes);

struct OpMeasurements {
  // By signature: the mean of all ops that were measured. Views, which are not run, are not in it.
  std::map<std::string, wire::OpProfile> ops;
  double update_seconds_per_element = 0;  // norm and optimizer; 0 without trainable parameters
  double data_seconds_per_byte = 0;       // of placeholders that `data` filled; 0 without
};

// Every slice that has a signature not measured before. `in_flight` micro-batches are kept, as in a pipeline, where a backward finds its
// inputs less often in a cache; one alone where their values are beyond `slice_bytes` and thus any cache. Errors: those of
// StageExecutor::Create and MeasureOps, naming the op; tensor::OutOfMemoryError, before anything is allocated, where a slice needs more of
// the host's memory than `memory_bytes`, naming its largest op.
absl::StatusOr<OpMeasurements> MeasureGraph(const autodiff::TrainingGraph& training, const runtime::StageConfig& config,
                                            kernels::Backend& backend, runtime::BatchSource& data, const runtime::MeasureOptions& options,
                                            int in_flight = 1, int64_t slice_bytes = kSliceBytes,
                                            int64_t memory_bytes = base::AllowedMemoryBytes());

}  // namespace fusionllm::planning
