// Everything a plan needs to know about the hardware: devices as they were measured and the network between them.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/estimator/gpu_specs.h"
#include "lib/job/fusion_job.h"
#include "lib/job/topology.h"
#include "lib/planning/network.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::planning {

// What tensor cores compute a job of this precision in, as the runtime's kernels do (docs/design/cuda.md): fp32 products are not rounded to
// TF32.
estimator::Arithmetic ArithmeticOf(job::Precision precision);

struct Profiles {
  std::vector<wire::DeviceProfile> devices;
  Network network;
};

// Each device of the topology: the measured machine, at the device's computeScale. A device of `measured` with the same name gives its own
// times, else the first one's are used. A device without `memory` gets `machine_memory_bytes`. A device with a `profile` is that GPU, from
// its published figures, with tensor cores in `arithmetic`; its memory unless it has its own.
// Errors: InvalidArgument for topologies whose links do not resolve, that name an unknown profile, or that need a measured device where
// there is none.
absl::StatusOr<Profiles> ProfilesFromTopology(const job::Topology& topology, const std::vector<wire::DeviceProfile>& measured,
                                              int64_t machine_memory_bytes,
                                              estimator::Arithmetic arithmetic = estimator::Arithmetic::kFp32);

// As devices reported: links by NetworkOf.
Profiles ProfilesFromDocument(wire::ProfilesDocument document);

// The device by which codecs are priced for all: a measured one if there is any, which is the slower. Precondition: there are devices.
const wire::DeviceProfile& CodecReferenceDevice(const Profiles& profiles);

}  // namespace fusionllm::planning
