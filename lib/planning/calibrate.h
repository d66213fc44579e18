// Measures what planning needs to know about this machine: every distinct op of a job's graph, the optimizer, the codecs.
//
// The same code serves an executor that joins a run and `fusionctl plan`, so both predict from the same kind of figures. Blocks for a few
// seconds and allocates the tensors of one op at a time; one thread. The caller makes sure that nothing else runs on the machine.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/kernels/backend.h"
#include "lib/runtime/optimizer.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::planning {

struct CalibrationOptions {
  int threads = 1;                      // of the back end
  double seconds_per_op = 0.03;         // an op is repeated this long,
  int least_runs = 3, most_runs = 100;  // but at least and at most so often; the fastest run counts
  runtime::OptimizerConfig optimizer;
  std::function<bool()> cancelled;  // asked between ops; empty: never
};

// Seconds are the least of several runs: thread CPU time with one thread, which other work of the machine does not lengthen, else wall
// time. Inputs are zeros, as in runtime::StageExecutor::MeasureOps. The caller fills name, site, memory_bytes, compute_scale and spare.
// Errors: Unimplemented for an op the back end lacks; Cancelled; kernels' errors, naming the op.
absl::StatusOr<wire::DeviceProfile> Calibrate(const autodiff::TrainingGraph& training, kernels::Backend& backend,
                                              const CalibrationOptions& options);

}  // namespace fusionllm::planning
