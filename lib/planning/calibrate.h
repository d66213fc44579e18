// Measures what planning needs to know about this machine: every distinct op of a job, its data, the optimizer, the codecs; and fits to the
// ops the rates of each class (lib/estimator), by which other jobs can be planned from the same profile.
//
// Ops are timed while whole micro-batches go forward and backward through a slice of the job's graph, as in training: run alone and again
// and again, an op finds everything in the caches and takes up to four times less. A graph whose working set is small is measured whole, of
// a large one as many slices as have an op like no other before.
//
// The same code serves an executor that joins a run and `fusionctl plan`, so both predict from the same kind of figures. Blocks for a few
// seconds; one thread. Allocates a slice (kSliceBytes, or one op if that is more). The caller makes sure that nothing else runs on the
// machine.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "lib/base/memory_limit.h"
#include "lib/kernels/backend.h"
#include "lib/runtime/stage_executor.h"
#include "lib/wire/profile_json.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

struct CalibrationOptions {
  int threads = 1;                       // of the back end
  double seconds = 1;                    // micro-batches of a slice are repeated this long (Calibrate() says what else it limits),
  int min_passes = 3, max_passes = 100;  // but at least and at most so often
  double quantile = 0.5;                 // MeasureOptions::quantile
  int in_flight = 1;                     // of MeasureGraph
  double timeout_s = 5;                  // with a slice; past that, one pass that was timed is enough
  runtime::BatchSource* data = nullptr;  // of the workload; nullptr: numbers in range stand in, and reading takes no time
  std::function<bool()> cancelled;       // asked between micro-batches; empty: never
  int64_t memory_bytes = base::AllowedMemoryBytes();  // of the host, that this process may use
};

// For devices that this machine emulates: such a device takes the uncontended time of each op divided by its scale (DeviceThrottle), which
// takes more passes to find than a median, and is a stage of a pipeline.
CalibrationOptions ForEmulatedDevices(CalibrationOptions options);

// Seconds are thread CPU time with one thread, which other work of the machine does not lengthen, else wall time. Ops are measured for the
// job's micro-batch and, for the sake of the rates, for another, which is left out where it would be a larger one and the job's own took
// longer than `seconds`; where the job leaves the size to the planner, for the largest, too, that can be measured in that time. The caller
// fills name, site, memory_bytes, compute_scale and spare. Errors: Unimplemented for an op the back end lacks; Cancelled; kernels' and the
// data's errors, naming the op; tensor::OutOfMemoryError for an op that is too large for this process, before anything of it is allocated.
absl::StatusOr<wire::DeviceProfile> Calibrate(const workload::Workload& workload, kernels::Backend& backend,
                                              const CalibrationOptions& options);

// Seconds of a value and of one that top-k keeps, by those that a value takes on average at two ratios (seconds = value_s + kept_s /
// ratio): the nearest to the second, at `high_ratio`, that are not negative.
struct TopKSeconds {
  double value_s = 0, kept_s = 0;
};
TopKSeconds FitTopK(double low_ratio, double low_s, double high_ratio, double high_s);

}  // namespace fusionllm::planning
