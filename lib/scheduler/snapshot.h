// What a planner gets: operators with their costs, devices, directed links, and what the job asks for. A snapshot: planning is a pure
// function of it, without clock, threads or I/O, so equal snapshots give byte-identical plans.
//
// Plain data with dense indices: `ops`, `devices`, `resources` are referred to by position. Times are seconds, sizes bytes, rates bytes
// per second. Costs are for one micro-batch of the size the job runs; a caller that may choose the micro-batch size makes one request for
// each size and keeps the fastest plan. Limits: see kMax*. Const access from several threads is safe.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/opdag/activation_kind.h"
#include "lib/schedule/pipeline_schedule.h"
#include "lib/scheduler/codec_policy.h"

namespace fusionllm::scheduler {

inline constexpr int kMaxOps = 20'000;
inline constexpr int kMaxDevices = 10'000;
inline constexpr int kMaxLinks = 2'000'000;      // pairs of devices
inline constexpr int kMaxSiteLinks = 2'000'000;  // with a site at one end at least
inline constexpr int kMaxMicroBatches = 4'096;
inline constexpr int kMaxCostClasses = 256;

// One forward operator together with its backward part, which always runs where it does.
struct OpNode {
  std::string name;
  // Data or labels: lives in the first stage, is no op that a baseline counts. Its forward time is that of reading.
  bool placeholder = false;
  double flops = 0;  // forward + backward, one micro-batch
  // By cost class (Device::cost_class), uncontended, one micro-batch; update_s is the optimizer's time once a step and may be empty (0);
  // so may all times of a placeholder.
  std::vector<double> forward_s;
  std::vector<double> backward_s;
  std::vector<double> update_s;
  std::vector<double> weights_s;  // part of backward_s that computes the gradients of parameters only; may be empty (unknown, counts as 0)
  int64_t parameter_bytes = 0;    // tied parameters are counted by each op that uses them; TiedParameter corrects that inside a stage
  int64_t gradient_bytes = 0;     // one buffer for each use
  int64_t optimizer_bytes = 0;
  int64_t workspace_bytes = 0;  // scratch while it runs: a stage needs the largest
  // Under recomputation: the block it is in (autodiff::RecomputeBlocks), and whether it runs again.
  int block = 0;
  bool runs_again = true;
};

// One tensor of the forward graph. Cut when a consumer's stage is not the producer's: it then travels once to each such stage, and if
// differentiable a gradient of the same size travels back.
struct ValueNode {
  std::string name;
  int producer = 0;
  std::vector<int> consumers;  // forward ops, any order, repetition allowed
  std::vector<int> kept_by;    // forward ops whose backward part reads it: each of their stages stashes it for every micro-batch in flight
  int64_t bytes = 0;
  bool differentiable = false;
  bool lossless_only = false;    // labels, masks, token ids: never through a lossy codec
  int64_t wire_bytes = 0;        // of a lossless one, as it travels; 0: bytes
  int64_t bytes_of_element = 4;  // what bytes are counted in
  opdag::ActivationKind kind = opdag::ActivationKind::kHidden;
};

// How the gradients of a tied parameter may travel.
struct TiedCodec {
  std::string codec = "fp32";  // text for the plan; fp32: exact
  std::vector<int64_t> bytes;  // of the message of each of the parameter's ops
  double loss_cost = 0;        // expected increase of the loss, nats per target; 0: exact
};

// A trainable parameter used by several ops. In one stage its uses share the weights; over several stages each sends the gradients of its
// own uses to every other at the end of a step.
struct TiedParameter {
  std::string name;
  std::vector<int> ops;
  int64_t bytes = 0;
  int64_t optimizer_bytes = 0;
  std::vector<TiedCodec> codecs;  // to choose from, the least aggressive first; none: exact, `bytes` from each op
  std::string codecs_why;         // a clause for plans: why there is no other to choose from; may be empty
  // What one stage sends another at least, whatever the codec and the stages.
  int64_t MinBytes() const;
};

struct Device {
  std::string name;
  std::string site;
  int cost_class = 0;
  double time_scale = 1;  // seconds here = seconds of the class * time_scale (1 / computeScale of an emulated device)
  int64_t memory_bytes = 0;
  bool spare = false;  // kept in the backup pool: no stage
  // Shared resources that all it sends and receives over site links with `through_ports` passes; -1: none.
  int out_port = -1;
  int in_port = -1;
};

// A rate that several directed pairs share in one direction: a link between two sites, an uplink, a device's port.
struct SharedResource {
  std::string name;
  double bytes_per_s = 0;
};

// A directed pair of devices that can talk. A pair that neither a Link nor a SiteLink covers cannot.
struct Link {
  int src = 0;
  int dst = 0;
  double latency_s = 0;    // one way
  double bytes_per_s = 0;  // of this pair alone
  std::vector<int> resources;
};

// One device, or every device of a site: exactly one of the two is given.
struct LinkEnd {
  int site = -1;    // into PlanRequest::sites
  int device = -1;  // into PlanRequest::devices
};

// What every pair of devices between two ends, at least one of them a site, has alike: a network of many devices in few words. The most
// specific goes first: a Link, from a device to a site, from a site to a device, from a site to a site (the same one: inside it).
struct SiteLink {
  LinkEnd src;
  LinkEnd dst;
  double latency_s = 0;    // one way
  double bytes_per_s = 0;  // of each pair alone
  std::vector<int> resources;
  bool through_ports = false;  // also passes the sender's out_port and the receiver's in_port
};

// Ops whose name matches `ops` (`*` any run of characters, `?` one) run on the device of that name.
struct Pin {
  std::string ops;
  std::string device;
};

// What op-fence may spend by default, below two seconds on 64 devices and 1,000 ops, and for a plan that is good rather than polished,
// below 100 ms there.
inline constexpr int64_t kFullSearchBudget = 20'000;
inline constexpr int64_t kQuickSearchBudget = 5'000;

struct PlanRequest {
  std::vector<OpNode> ops;  // in a topological order
  std::vector<ValueNode> values;
  std::vector<TiedParameter> tied;
  // The topological order of ops that stages are consecutive runs of, placeholders first; empty: the planner decides.
  std::vector<int> order;
  std::vector<Device> devices;  // in the order declared, site by site
  std::vector<SharedResource> resources;
  std::vector<Link> links;
  std::vector<std::string> sites;  // the values of Device::site that site links speak of
  std::vector<SiteLink> site_links;

  int micro_batches = 1;
  schedule::PipelineSchedule schedule = schedule::k1F1B;
  int max_in_flight = 0;  // micro-batches open in a stage, as many of them as memory allows; 0: the planner decides

  const LinkCodecPolicy* codec_policy = nullptr;  // nullptr: exact. Not owned, must outlive the call.
  // Of a plan's codecs, nats per target: those of tied parameters stay exact where they would exceed it with what links cost. What links
  // may cost is the policy's.
  double max_loss_cost = std::numeric_limits<double>::infinity();

  std::vector<Pin> pins;
  std::string first_device;          // the one that must run the first stage: it has the data; empty: any
  std::vector<std::string> exclude;  // device names
  std::string exclude_why;           // a clause for refusals that they cause: of those that were not named; empty: all were named
  int stages = 0;                    // exactly so many; 0: the planner decides
  int min_executors = 1;
  int max_executors = 0;          // 0: all there are
  std::string max_executors_why;  // a clause for refusals that it causes: what of the job limits them
  bool use_all_devices = false;   // op-fence and exact: leave none out

  // Bytes that the devices of any one site (Device::site) may send to other sites in a step, all together. Plans keep to it, with stronger
  // codecs than links need for their speed if the policy has them.
  std::optional<int64_t> max_egress_bytes;

  // End of a step: every stage reports (loss, norm) to the first one and gets its decision.
  bool coordinates_steps = true;
  int64_t report_bytes = 1'024;
  int64_t decision_bytes = 0;  // 0: as many as of a report
  // Activation checkpointing: of what its backward parts and the ops that run again read, a stage stashes only what it received, what
  // placeholders hold and what goes from one block to another; it runs one block's ops again at a time.
  bool recompute = false;
  bool recompute_is_a_choice = false;  // the job may also do the other way: what is said to bound its plans must hold for both
  // Some device has been given less memory than the job may use there, since a plan did not fit after all: what a search rules out on it
  // may yet fit.
  bool memory_is_lowered = false;
  double step_overhead_s = 0;        // fixed cost of a step, whatever the plan
  double memory_headroom = 0.05;     // share of a device's memory that no plan may use
  int64_t memory_reserve_bytes = 0;  // of each device, for what no op owns (code, runtime, connection buffers)

  // Whether PlannedPipeline::explain also says what other cuts and devices would make of the step.
  bool weigh_alternatives = false;

  uint64_t seed = 0;
  // Simulations of up to 512 passes (stages and links x micro-batches x 2) that a search may spend, 10 to 20 us each; a longer one counts
  // as several, other work by what it takes. exact: 50 times as many simulations, whatever their length. op-fence with 13 to 64 usable
  // devices: four and a half times as many more as what is beyond kQuickSearchBudget.
  int64_t search_budget = kFullSearchBudget;
};

// Refuses what cannot be planned on at all: NaN, negative or infinite numbers, indices out of range, links that repeat, ops out of
// order, sizes beyond the limits. Errors: InvalidArgument naming the op, value, device or link ("link paris-0 -> tokyo-1: bandwidth 0
// ...").
absl::Status Validate(const PlanRequest& request);

// `*` matches any run of characters, `?` exactly one; linear-time backtracking.
bool MatchesGlob(absl::string_view pattern, absl::string_view text);

}  // namespace fusionllm::scheduler
