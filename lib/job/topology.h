// Topology: emulated sites, devices and links for runs on one machine and for simulations (`kind: Topology`), and the link that
// results between any two devices.
//
// Read with parse.h; docs/reference/job-reference.md describes every field. Plain values; LinkTable is immutable after Create and
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/job/schema.h"
#include "lib/job/units.h"

namespace fusionllm::job {

inline constexpr size_t kMaxSites = 1000;
inline constexpr size_t kMaxDevices = 10000;  // over all sites
inline constexpr size_t kMaxLinks = 100000;

enum class Role { kExecutor, kSpare };
FUSIONLLM_JOB_ENUM(Role, {"executor", E::kExecutor}, {"spare", E::kSpare});

struct Device {
  std::string name;
  double compute_scale = 1;        // share of one of this machine's cores, in [1e-6, 1]
  std::optional<ByteSize> memory;  // absent: what this machine has
  Role role = Role::kExecutor;
  int64_t threads = 1;
  std::optional<std::string> profile;  // a GPU of estimator/gpu_specs.h to plan for; absent: this machine emulates the device
  bool operator==(const Device&) const = default;
};

// Each device's own port.
struct InternalNetwork {
  Bandwidth bandwidth{10'000'000'000};
  Duration latency{100'000};
  bool operator==(const InternalNetwork&) const = default;
};

struct Site {
  std::string name;
  std::vector<Device> devices;
  InternalNetwork internal;
  bool operator==(const Site&) const = default;
};

struct Link {
  std::string from, to;  // names of sites or devices
  Bandwidth bandwidth;
  Duration latency, jitter;
  double loss = 0;         // probability, in [0, 1)
  bool symmetric = false;  // true: holds for the way back too
  bool operator==(const Link&) const = default;
};

struct SharedUplink {
  std::string site;
  std::optional<Bandwidth> egress, ingress;  // absent: no limit
  bool operator==(const SharedUplink&) const = default;
};

struct TopologySpec {
  std::vector<Site> sites;
  std::vector<Link> links;
  std::vector<SharedUplink> shared_uplinks;
  bool operator==(const TopologySpec&) const = default;
};

struct TopologyMetadata {
  std::string name;
  bool operator==(const TopologyMetadata&) const = default;
};

struct Topology {
  TopologyMetadata metadata;
  TopologySpec spec;
  bool operator==(const Topology&) const = default;
};

// A capacity that traffic passes. Paths that name the same resource share it.
struct LinkResource {
  std::string name;  // "port:paris-0:out", "port:tokyo-1:in", "uplink:paris:out", "uplink:tokyo:in", "link:paris->tokyo"
  Bandwidth bandwidth;
  bool operator==(const LinkResource&) const = default;
};

// What a message from one device to another meets.
struct EffectiveLink {
  Bandwidth bandwidth;  // the least along the path, when nothing else uses it
  Duration latency;     // one way, end to end
  Duration jitter;
  double loss = 0;
  std::vector<LinkResource> path;  // in order from sender to receiver
};

// Resolves device pairs. The most specific link wins:
//   1. device to device: theirs alone. The path is that link, latency and bandwidth are its own; ports and uplinks are not passed.
//   2. device to site, or site to device: one resource for all pairs that it covers.
//   3. site to site: likewise one resource in each direction.
//   4. inside one site: sender's port and receiver's port; bandwidth and latency are those of `internal` (once, not once a port).
// In 2 and 3 between sites the path is: sender's port, sender's uplink, link, receiver's uplink, receiver's port. Its bandwidth is the
// least of these; its latency is the latency of the link alone: a link states the whole way between its ends.
// A direction that is written out goes before the way back of a symmetric link.
class LinkTable {
 public:
  // InvalidArgument, one finding a line, when names are unknown or ambiguous, or some pair of devices has no link. `topology` is copied.
  static absl::StatusOr<LinkTable> Create(const Topology& topology);

  // NotFound names an unknown device; InvalidArgument: from and to are the same.
  absl::StatusOr<EffectiveLink> Between(absl::string_view from, absl::string_view to) const;

  struct Place {
    int site = 0;  // index into topology().spec.sites
    Device device;
  };
  // In the order of the file.
  const std::vector<Place>& devices() const { return places_; }
  const Topology& topology() const { return topology_; }

  // Sentences about pairs of devices that have no link or an ambiguous one, at most `max`, one for each pair of sites. The names in
  // `topology` must already be unique. Cost: O(sites^2 + links + max), plus sites x devices when links join sites with devices.
  static std::vector<std::string> Gaps(const Topology& topology, size_t max);

 private:
  struct DirectedLink {
    size_t index = 0;      // into topology_.spec.links
    std::string from, to;  // swapped for the way back of a symmetric link
  };

  explicit LinkTable(const Topology& topology);
  int IdOf(absl::string_view name) const;  // -1: unknown
  const DirectedLink* Find(int from, int to) const;
  std::string GapBetween(int from_site, int to_site) const;

  Topology topology_;
  std::vector<Place> places_;
  // Sites are numbered from 0, devices follow them: one key serves links between any two ends.
  std::unordered_map<std::string, int> ids_;
  std::unordered_map<uint64_t, DirectedLink> links_;
  std::vector<std::vector<int>> devices_of_site_;
  std::unordered_map<int, size_t> uplinks_;  // site -> index into topology_.spec.shared_uplinks
  bool has_mixed_links_ = false;             // between a site and a device
};

}  // namespace fusionllm::job
