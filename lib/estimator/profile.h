// What is known of the hardware: how fast each device runs each class of ops, how long and wide each directed link is. Measured by the
// executors (op micro-benchmarks, link probes), fitted here, saved and loaded by lib/wire.
//
// Plain data: seconds, bytes, FLOPs. Rates describe the uncontended machine; the emulation of a slower device (compute_scale) is applied
// by SecondsOf and by nobody else.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::estimator {

// Time of an op of one class: overhead_s + flops * seconds_per_flop + bytes * seconds_per_byte.
struct OpRate {
  double overhead_s = 0;
  double seconds_per_flop = 0;
  double seconds_per_byte = 0;
  double relative_error = 0;  // root mean square of (fitted - measured) / measured over the samples kept
  int samples = 0;            // 0: never measured
  bool operator==(const OpRate&) const = default;
};

struct DeviceProfile {
  std::string name;
  std::string site;
  std::string backend;  // kernels that were measured; profiles of different back ends are different cost classes
  std::array<OpRate, opdag::kOpClassCount> rates;
  std::map<std::string, double> exact;  // seconds by OpSignature: used instead of the fit
  int64_t memory_bytes = 0;
  double compute_scale = 1;  // in (0, 1]: an op takes its time divided by this
  bool spare = false;
  bool operator==(const DeviceProfile&) const = default;
};

// A rate shared by several directed pairs: site-to-site link, uplink, port.
struct ResourceProfile {
  std::string name;
  double bytes_per_s = 0;
  bool operator==(const ResourceProfile&) const = default;
};

struct LinkProfile {
  std::string src, dst;  // device names
  double latency_s = 0;  // one way
  double bytes_per_s = 0;
  double confidence = 0;               // 0 declared or guessed .. 1 measured with much data
  std::vector<std::string> resources;  // names of ResourceProfiles crossed
  bool operator==(const LinkProfile&) const = default;
};

struct ClusterProfile {
  std::vector<DeviceProfile> devices;
  std::vector<ResourceProfile> resources;
  std::vector<LinkProfile> links;
  bool operator==(const ClusterProfile&) const = default;
};

// Uncontended seconds of one op on the device, compute_scale applied: the exact measurement where there is one, else the fit of its class;
// a class never measured is priced by the device's other classes (FillGaps).
double SecondsOf(const DeviceProfile& device, opdag::OpClass op_class, const std::string& signature, double flops, double bytes);

// Gives classes without samples the median rates of those with; a device without any gets `fallback`. Returns how many it filled.
int FillGaps(DeviceProfile& device, const OpRate& fallback);

// Numbers finite and in range, names that exist. Errors: InvalidArgument naming device or link.
absl::Status Validate(const ClusterProfile& cluster);

}  // namespace fusionllm::estimator
