// How fast an executor will be that is not there yet, and what it can hold: guessed from the label of its node and what it asks for.
//
// Nothing is measured: an accelerator has the figures that its maker publishes (estimator/gpu_specs.h), a processor core those that are
// assumed here. They are to tell clusters apart, before the executors themselves measure what they are. Pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lib/estimator/gpu_specs.h"
#include "lib/job/fusion_job.h"
#include "lib/kube/api/resource_list.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::op::placement {

// Of one core of a server: half of what AVX2 could do at 3 GHz, and its share of the memory's bandwidth.
inline constexpr double kCoreFlops = 50e9;
inline constexpr double kCoreBytesPerS = 5e9;
// Of an executor that asks for none: it is unknown, and a plan must not fail for it.
inline constexpr int64_t kUnknownMemoryBytes = int64_t{64} << 30;

// The GPU that a label like "NVIDIA-A100-SXM4-80GB" names, where it leaves a choice the slowest; null: none whose figures are known, or a
// part of one.
const estimator::GpuSpec* GpuOfProduct(const std::string& product);

// `product`: of the accelerator, as its node's label says; empty: none. `each`: what the executor asks for. `precision`: of the job, which
// says what tensor cores compute in. Without name and site.
// FailedPrecondition: of that accelerator no figures are known.
absl::StatusOr<wire::DeviceProfile> AssumedProfile(const std::string& product, const kube::ResourceList& each, job::Precision precision);

}  // namespace fusionllm::op::placement
