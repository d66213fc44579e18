// The sizes that a micro-batch of a job may have, and the job at each of them: `microBatchSize: auto` leaves the choice to the planner.
//
// Ops were measured at a few sizes alone. What one takes at another follows from what it took at these, as a line through two of them:
// an op reads its weights and is launched once, whatever the size, and does the rest once for each sample.
// Not thread-safe: jobs are built when they are first asked for. The job must outlive this.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/planning/profiles.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// By how much what follows from other sizes may be off: assumed.
inline constexpr double kInferredError = 0.15;

class MicroBatchSizes {
 public:
  explicit MicroBatchSizes(const workload::Workload& job);

  // Divisors of the global batch, ascending, of which a step has no more than the planner can take. Batch norm takes its statistics from a
  // micro-batch, so that a graph with it has none below the one that the job came with: a plan must not make training worse.
  std::vector<int64_t> all() const { return all_; }

  // Those that may have been measured: all() by about every second power of two, and those that calibration takes besides.
  std::vector<int64_t> calibrated() const { return calibrated_; }

  // Those of all() that a plan may be made for: where devices were measured at sizes of this job, none above what all of them were measured
  // at. A line says little beyond its ends.
  std::vector<int64_t> PlannableOn(const Profiles& profiles);

  // The job at a size, which it names. Errors: those of workload::Resolve, as for a graph that is written for one size.
  absl::StatusOr<const workload::Workload*> At(int64_t size);

  // The devices with what ops of that size take, where it follows from other sizes of the job. Errors: as At.
  absl::StatusOr<Profiles> ProfilesAt(int64_t size, const Profiles& profiles);

 private:
  struct Sized {
    std::unique_ptr<workload::Workload> workload;
    std::vector<std::string> signatures;  // by op; empty: takes no time
  };
  absl::StatusOr<const Sized*> Build(int64_t size);
  std::vector<const Sized*> MeasuredAt(const wire::DeviceProfile& device);
  void Infer(const Sized& wanted, wire::DeviceProfile& device);

  const workload::Workload& job_;
  std::vector<int64_t> all_, calibrated_;
  std::map<int64_t, absl::StatusOr<Sized>> built_;
};

// The devices with what ops of the job take, where some were measured at other sizes of it alone; nothing where there are none such.
// Errors: as MicroBatchSizes.
absl::StatusOr<std::optional<Profiles>> InferredProfiles(const workload::Workload& workload, const Profiles& profiles);

// The job and its devices at one size: that of a plan in force, say. Errors: as MicroBatchSizes.
struct JobAtSize {
  std::unique_ptr<workload::Workload> workload;
  Profiles profiles;
};
absl::StatusOr<JobAtSize> AtMicroBatchSize(const workload::Workload& job, const Profiles& profiles, int64_t size);

// A size and what it costs; infinity where there is no plan with it.
struct SizeCost {
  int64_t size = 0;
  double cost = 0;
};
using CostOfSize = std::function<absl::StatusOr<double>(int64_t size)>;

// Prices as many of `sizes` (ascending) as it takes to find the cheapest where costs fall and rise once, but for bumps of one size: sizes
// about twice as large, or half, from `first` on both ways, then those beside the best. What it priced, ascending. Errors: those of `cost`.
absl::StatusOr<std::vector<SizeCost>> SearchSizes(const std::vector<int64_t>& sizes, int64_t first, const CostOfSize& cost);

}  // namespace fusionllm::planning
