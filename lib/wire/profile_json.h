// What a device measured about itself, and what devices measured about the links between them: what a plan is made from.
//
// An executor sends one profile when it joins; the broker gathers them into a profiles document for the scheduler, which `fusionctl`
// also saves and loads (--profiles). Plain structs and their JSON text; reading trusts nothing. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/estimator/cost_model.h"

namespace fusionllm::wire {

// Of the text of a profiles document. A newer one is refused: it may mean other things by the same fields. Documents without a version are
// of version 1.
inline constexpr int kProfilesVersion = 1;
inline constexpr size_t kMaxProfiledDevices = 10'000;
inline constexpr size_t kMaxProfiledOps = 20'000;  // distinct signatures
inline constexpr size_t kMaxMeasuredLinks = 200'000;

struct OpProfile {
  double seconds = 0;  // one run, uncontended
  int64_t workspace_bytes = 0;
  // What it is, which the rates of its class were fitted to: opdag::Name(OpClass), and costs of one run.
  std::string op_class;
  double flops = 0;
  double bytes = 0;
  // Above 0: not measured, but inferred from other micro-batch sizes (planning/micro_batch_sizes.h), and may be off by so much. Does not
  // travel.
  double relative_error = 0;
  bool operator==(const OpProfile&) const = default;
};

// Seconds that a codec takes: for each fp32 value of a tensor, for a message whatever its size (_message_), and of top-k for each value
// kept
// (_kept_). The last four are 0 in profiles from before 28 November 2026; their top-k was measured at a ratio of 20.
struct CodecProfile {
  double encode_seconds = 0;
  double decode_seconds = 0;
  double encode_message_seconds = 0;
  double decode_message_seconds = 0;
  double encode_kept_seconds = 0;
  double decode_kept_seconds = 0;
  bool operator==(const CodecProfile&) const = default;
};

// All times are those of the machine itself: an emulated device takes 1 / compute_scale as long.
struct DeviceProfile {
  std::string name;
  std::string site;
  std::string backend;        // that the times belong to: "cpu"
  std::string specification;  // the GPU whose published figures these are (estimator/gpu_specs.h); empty: measured
  std::string arithmetic;     // with a specification: what its matrix products are computed in, estimator::Name(Arithmetic)
  int threads = 1;
  int64_t memory_bytes = 0;
  double compute_scale = 1;  // in (0, 1]
  bool spare = false;
  std::map<std::string, OpProfile> ops;            // by signature, estimator::OpSignature: jobs that have these ops take these times,
  std::map<std::string, estimator::OpRate> rates;  // by opdag::Name(OpClass): and all others are priced by these
  double update_seconds_per_element = 0;           // optimizer and norm, for each element of a trainable parameter
  // To read or make samples, for each byte of a micro-batch, by the job's data.kind; only kinds that were measured.
  std::map<std::string, double> data_seconds_per_byte;
  std::map<std::string, CodecProfile> codecs;  // by compression::Name(CodecKind)
  bool operator==(const DeviceProfile&) const = default;
};

// From `src` to `dst`, measured on one representative pair of two sites, or of one site; or, with a shared link, of these two devices,
// which share it with all others that have a shared link of that name.
struct MeasuredLink {
  std::string src, dst;
  double rtt_seconds = 0;
  double bandwidth_bytes_per_second = 0;
  std::string shared_link;
  // How certain it is (estimator::LinkFit): transfers, their relative error, half widths of 95 % confidence intervals. 0 samples: not
  // reported.
  int samples = 0;
  double relative_error = 0;
  std::optional<double> latency_ci95_seconds, bandwidth_ci95_bytes_per_second;
  std::optional<double> latency_seconds;  // one way, where that could be measured; else it is half of rtt_seconds
  double OneWaySeconds() const { return latency_seconds.value_or(rtt_seconds / 2); }
  bool operator==(const MeasuredLink&) const = default;
};

struct ProfilesDocument {
  std::vector<DeviceProfile> devices;
  std::vector<MeasuredLink> links;
  bool operator==(const ProfilesDocument&) const = default;
};

// {"name": .., "site": .., "ops": {"SIGNATURE": {"seconds": .., ..}}, "rates": {"matmul": {"seconds_per_flop": .., "samples": ..}}, ..}
std::string PrintProfile(const DeviceProfile& profile);
// Errors: InvalidArgument naming the field.
absl::StatusOr<DeviceProfile> ParseProfile(absl::string_view text);

// {"version": 1, "devices": [profile ..], "links": [{"src", "dst", "rtt_seconds", "bandwidth_bytes_per_second", "shared_link", ..} ..]}.
// Equal documents give equal bytes: sorted keys, shortest numbers that read back exactly.
std::string PrintProfiles(const ProfilesDocument& profiles);
// Errors: InvalidArgument naming the field; also for a newer version, device names that repeat and links whose ends are unknown or the
// same.
absl::StatusOr<ProfilesDocument> ParseProfiles(absl::string_view text);

}  // namespace fusionllm::wire
