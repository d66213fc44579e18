#include "lib/scheduler/snapshot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::scheduler {
namespace {

// Sums over a whole job must stay exact in int64 and finite in double.
constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr double kMaxSeconds = 1e9;
constexpr size_t kMaxLinkResources = 16;
constexpr size_t kMaxConsumers = 4'000'000;

absl::Status Invalid(absl::string_view where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

absl::Status CheckSeconds(absl::string_view where, absl::string_view what, double seconds) {
  if (seconds >= 0 && seconds <= kMaxSeconds) return absl::OkStatus();
  return Invalid(where, absl::StrFormat("%s %g must be a number of seconds between 0 and %g", what, seconds, kMaxSeconds));
}

absl::Status CheckRate(absl::string_view where, double bytes_per_s) {
  if (std::isfinite(bytes_per_s) && bytes_per_s > 0) return absl::OkStatus();
  return Invalid(where, absl::StrFormat("bandwidth %g bytes per second must be positive and finite", bytes_per_s));
}

absl::Status CheckBytes(absl::string_view where, absl::string_view what, int64_t bytes) {
  if (bytes >= 0 && bytes <= kMaxBytes) return absl::OkStatus();
  return Invalid(where, absl::StrFormat("%s %d must lie between 0 and %d", what, bytes, kMaxBytes));
}

absl::Status CheckIndex(absl::string_view where, absl::string_view what, int index, size_t size) {
  if (index >= 0 && static_cast<size_t>(index) < size) return absl::OkStatus();
  return Invalid(where, absl::StrFormat("%s %d is not below %d", what, index, size));
}

absl::Status CheckDevices(const PlanRequest& request, int* classes) {
  *classes = 0;
  std::set<absl::string_view> names;
  for (const Device& device : request.devices) {
    const std::string where = absl::StrCat("device ", device.name);
    if (device.name.empty() || !names.insert(device.name).second) return Invalid(where, "names must be given and differ");
    FUSIONLLM_RETURN_IF_ERROR(CheckIndex(where, "cost class", device.cost_class, kMaxCostClasses));
    if (!(device.time_scale > 0 && device.time_scale <= 1e6)) {
      return Invalid(where, absl::StrFormat("time scale %g must be positive and at most 1e6", device.time_scale));
    }
    FUSIONLLM_RETURN_IF_ERROR(CheckBytes(where, "memory bytes", device.memory_bytes));
    *classes = std::max(*classes, device.cost_class + 1);
  }
  return absl::OkStatus();
}

absl::Status CheckOp(const OpNode& op, int classes) {
  const std::string where = absl::StrCat("op ", op.name);
  if (op.name.empty()) return Invalid("op", "every op needs a name");
  const auto check_times = [&](absl::string_view what, const std::vector<double>& times) -> absl::Status {
    if (times.size() < static_cast<size_t>(classes)) {
      return Invalid(where, absl::StrFormat("%s times are given for %d device classes of %d", what, times.size(), classes));
    }
    for (double seconds : times) FUSIONLLM_RETURN_IF_ERROR(CheckSeconds(where, absl::StrCat(what, " time"), seconds));
    return absl::OkStatus();
  };
  if (!op.placeholder || !op.forward_s.empty()) FUSIONLLM_RETURN_IF_ERROR(check_times("forward", op.forward_s));
  if (!op.placeholder || !op.backward_s.empty()) FUSIONLLM_RETURN_IF_ERROR(check_times("backward", op.backward_s));
  if (!op.update_s.empty()) FUSIONLLM_RETURN_IF_ERROR(check_times("update", op.update_s));
  if (!op.weights_s.empty()) FUSIONLLM_RETURN_IF_ERROR(check_times("weights", op.weights_s));
  if (!(op.flops >= 0 && op.flops <= 1e30)) return Invalid(where, absl::StrFormat("%g FLOPs must be finite and not negative", op.flops));
  FUSIONLLM_RETURN_IF_ERROR(CheckBytes(where, "parameter bytes", op.parameter_bytes));
  FUSIONLLM_RETURN_IF_ERROR(CheckBytes(where, "gradient bytes", op.gradient_bytes));
  FUSIONLLM_RETURN_IF_ERROR(CheckBytes(where, "optimizer bytes", op.optimizer_bytes));
  return CheckBytes(where, "workspace bytes", op.workspace_bytes);
}

absl::Status CheckGraph(const PlanRequest& request, int classes) {
  std::set<absl::string_view> names;
  for (const OpNode& op : request.ops) {
    FUSIONLLM_RETURN_IF_ERROR(CheckOp(op, classes));
    if (!names.insert(op.name).second) return Invalid(absl::StrCat("op ", op.name), "the name occurs twice");
  }
  size_t consumers = 0;
  for (const ValueNode& value : request.values) {
    const std::string where = absl::StrCat("value ", value.name);
    FUSIONLLM_RETURN_IF_ERROR(CheckIndex(where, "producer", value.producer, request.ops.size()));
    FUSIONLLM_RETURN_IF_ERROR(CheckBytes(where, "bytes", value.bytes));
    FUSIONLLM_RETURN_IF_ERROR(CheckBytes(where, "wire bytes", value.wire_bytes));
    if (value.bytes_of_element < 1) return Invalid(where, "an element has a byte at least");
    if (value.wire_bytes > 0 && !value.lossless_only) return Invalid(where, "wire bytes are those of its codec, unless it is lossless");
    for (int consumer : value.consumers) {
      FUSIONLLM_RETURN_IF_ERROR(CheckIndex(where, "consumer", consumer, request.ops.size()));
      if (consumer <= value.producer) {
        return Invalid(where, absl::StrFormat("op %s reads it before op %s makes it: ops must be in a topological order",
                                              request.ops[consumer].name, request.ops[value.producer].name));
      }
      if (request.ops[consumer].placeholder) return Invalid(where, "a placeholder has no inputs");
    }
    for (int keeper : value.kept_by) FUSIONLLM_RETURN_IF_ERROR(CheckIndex(where, "keeper", keeper, request.ops.size()));
    consumers += value.consumers.size() + value.kept_by.size();
  }
  if (consumers > kMaxConsumers) return Invalid("values", absl::StrFormat("%d readers exceed the limit of %d", consumers, kMaxConsumers));
  for (const TiedParameter& tied : request.tied) {
    const std::string where = absl::StrCat("tied parameter ", tied.name);
    FUSIONLLM_RETURN_IF_ERROR(CheckBytes(where, "bytes", tied.bytes));
    FUSIONLLM_RETURN_IF_ERROR(CheckBytes(where, "optimizer bytes", tied.optimizer_bytes));
    for (int op : tied.ops) FUSIONLLM_RETURN_IF_ERROR(CheckIndex(where, "op", op, request.ops.size()));
    for (const TiedCodec& codec : tied.codecs) {
      if (codec.bytes.size() != tied.ops.size()) return Invalid(where, absl::StrCat(codec.codec, " has no bytes for each of its ops"));
      for (const int64_t bytes : codec.bytes) FUSIONLLM_RETURN_IF_ERROR(CheckBytes(where, "message bytes", bytes));
      FUSIONLLM_RETURN_IF_ERROR(CheckSeconds(where, "loss cost", codec.loss_cost));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOrder(const PlanRequest& request) {
  if (request.order.empty()) return absl::OkStatus();
  std::vector<int> position(request.ops.size(), -1);
  bool data_over = false;
  for (size_t p = 0; p < request.order.size(); ++p) {
    const int op = request.order[p];
    FUSIONLLM_RETURN_IF_ERROR(CheckIndex("order", "op", op, request.ops.size()));
    if (position[op] >= 0) return Invalid("order", absl::StrCat("op ", request.ops[op].name, " stands in it twice"));
    if (request.ops[op].placeholder && data_over) return Invalid("order", "placeholders come first");
    data_over = data_over || !request.ops[op].placeholder;
    position[op] = static_cast<int>(p);
  }
  if (request.order.size() != request.ops.size()) {
    return Invalid("order", absl::StrFormat("it has %d of %d ops", request.order.size(), request.ops.size()));
  }
  for (const ValueNode& value : request.values) {
    for (const int consumer : value.consumers) {
      if (position[consumer] > position[value.producer]) continue;
      return Invalid("order", absl::StrFormat("op %s stands before op %s, which it reads", request.ops[consumer].name,
                                              request.ops[value.producer].name));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckResources(absl::string_view where, const std::vector<int>& resources, size_t size) {
  if (resources.size() > kMaxLinkResources) return Invalid(where, "crosses too many shared links");
  for (int resource : resources) FUSIONLLM_RETURN_IF_ERROR(CheckIndex(where, "shared link", resource, size));
  return absl::OkStatus();
}

// Keys of two ends that must not repeat; `name` tells the pair at an index.
template <class Name>
absl::Status CheckDistinct(std::vector<std::pair<uint64_t, size_t>>& keys, const Name& name) {
  std::sort(keys.begin(), keys.end());
  for (size_t i = 1; i < keys.size(); ++i) {
    if (keys[i].first == keys[i - 1].first) return Invalid(name(keys[i].second), "is given twice");
  }
  return absl::OkStatus();
}

absl::Status CheckPairs(const PlanRequest& request) {
  const auto name = [&](size_t l) {
    const Link& link = request.links[l];
    return absl::StrCat("link ", request.devices[link.src].name, " -> ", request.devices[link.dst].name);
  };
  std::vector<std::pair<uint64_t, size_t>> keys;
  keys.reserve(request.links.size());
  for (size_t l = 0; l < request.links.size(); ++l) {
    const Link& link = request.links[l];
    FUSIONLLM_RETURN_IF_ERROR(CheckIndex("link", "source device", link.src, request.devices.size()));
    FUSIONLLM_RETURN_IF_ERROR(CheckIndex("link", "destination device", link.dst, request.devices.size()));
    if (link.src == link.dst) return Invalid(name(l), "a device needs no link to itself");
    keys.push_back({static_cast<uint64_t>(link.src) << 32 | static_cast<uint32_t>(link.dst), l});
    const absl::Status status = [&]() -> absl::Status {
      FUSIONLLM_RETURN_IF_ERROR(CheckRate("", link.bytes_per_s));
      FUSIONLLM_RETURN_IF_ERROR(CheckSeconds("", "latency", link.latency_s));
      return CheckResources("", link.resources, request.resources.size());
    }();
    // Names only of what is wrong: there may be a million pairs.
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(name(l), std::string(status.message())));
  }
  return CheckDistinct(keys, name);
}

absl::Status CheckEnd(absl::string_view which, const LinkEnd& end, const PlanRequest& request) {
  if ((end.site >= 0) == (end.device >= 0)) return Invalid("site link", absl::StrCat("its ", which, " must be a site or a device"));
  if (end.site >= 0) return CheckIndex("site link", absl::StrCat(which, " site"), end.site, request.sites.size());
  return CheckIndex("site link", absl::StrCat(which, " device"), end.device, request.devices.size());
}

absl::Status CheckSiteLinks(const PlanRequest& request) {
  std::set<absl::string_view> names;
  for (const std::string& site : request.sites) {
    if (!names.insert(site).second) return Invalid(absl::StrCat("site ", site), "is given twice");
  }
  const auto end_name = [&](const LinkEnd& end) { return end.site >= 0 ? request.sites[end.site] : request.devices[end.device].name; };
  const auto name = [&](size_t l) {
    return absl::StrCat("link ", end_name(request.site_links[l].src), " -> ", end_name(request.site_links[l].dst));
  };
  std::vector<std::pair<uint64_t, size_t>> keys;
  for (size_t l = 0; l < request.site_links.size(); ++l) {
    const SiteLink& link = request.site_links[l];
    FUSIONLLM_RETURN_IF_ERROR(CheckEnd("source", link.src, request));
    FUSIONLLM_RETURN_IF_ERROR(CheckEnd("destination", link.dst, request));
    if (link.src.device >= 0 && link.dst.device >= 0) return Invalid(name(l), "two devices are a pair, not a site link");
    FUSIONLLM_RETURN_IF_ERROR(CheckRate(name(l), link.bytes_per_s));
    FUSIONLLM_RETURN_IF_ERROR(CheckSeconds(name(l), "latency", link.latency_s));
    FUSIONLLM_RETURN_IF_ERROR(CheckResources(name(l), link.resources, request.resources.size()));
    const auto key = [&](const LinkEnd& end) -> uint64_t { return end.site >= 0 ? end.site : request.sites.size() + end.device; };
    keys.push_back({key(link.src) << 32 | key(link.dst), l});
  }
  return CheckDistinct(keys, name);
}

absl::Status CheckLinks(const PlanRequest& request) {
  for (const SharedResource& resource : request.resources) {
    FUSIONLLM_RETURN_IF_ERROR(CheckRate(absl::StrCat("shared link ", resource.name), resource.bytes_per_s));
  }
  for (const Device& device : request.devices) {
    for (int port : {device.out_port, device.in_port}) {
      if (port < -1 || port >= static_cast<int>(request.resources.size())) {
        return Invalid(absl::StrCat("device ", device.name), absl::StrFormat("port %d is none of the shared links", port));
      }
    }
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckPairs(request));
  return CheckSiteLinks(request);
}

absl::Status CheckCount(absl::string_view what, int64_t count, int64_t low, int64_t high) {
  if (count >= low && count <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: %d must lie between %d and %d", what, count, low, high));
}

}  // namespace

absl::Status Validate(const PlanRequest& request) {
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("ops", request.ops.size(), 1, kMaxOps));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("values", request.values.size(), 0, 4 * kMaxOps));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("devices", request.devices.size(), 0, kMaxDevices));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("links", request.links.size(), 0, kMaxLinks));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("site links", request.site_links.size(), 0, kMaxSiteLinks));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("sites", request.sites.size(), 0, kMaxDevices));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("shared links", request.resources.size(), 0, kMaxLinks));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("micro_batches", request.micro_batches, 1, kMaxMicroBatches));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("max_in_flight", request.max_in_flight, 0, kMaxMicroBatches));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("stages", request.stages, 0, kMaxDevices));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("min_executors", request.min_executors, 0, kMaxDevices));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("max_executors", request.max_executors, 0, kMaxDevices));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("search_budget", request.search_budget, 1, 10'000'000));
  FUSIONLLM_RETURN_IF_ERROR(CheckBytes("report", "bytes", request.report_bytes));
  FUSIONLLM_RETURN_IF_ERROR(CheckBytes("decision", "bytes", request.decision_bytes));
  if (request.max_egress_bytes.value_or(0) < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("max_egress_bytes: %d must not be negative", *request.max_egress_bytes));
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckBytes("memory reserve", "bytes", request.memory_reserve_bytes));
  FUSIONLLM_RETURN_IF_ERROR(CheckSeconds("step", "overhead", request.step_overhead_s));
  if (!(request.memory_headroom >= 0 && request.memory_headroom < 1)) {
    return absl::InvalidArgumentError(absl::StrFormat("memory headroom %g must be a share from 0 to below 1", request.memory_headroom));
  }
  int classes = 0;
  FUSIONLLM_RETURN_IF_ERROR(CheckDevices(request, &classes));
  FUSIONLLM_RETURN_IF_ERROR(CheckGraph(request, classes));
  FUSIONLLM_RETURN_IF_ERROR(CheckOrder(request));
  return CheckLinks(request);
}

int64_t TiedParameter::MinBytes() const {
  int64_t least = bytes;
  for (const TiedCodec& codec : codecs) {
    for (const int64_t of_use : codec.bytes) least = std::min(least, of_use);
  }
  return least;
}

bool MatchesGlob(absl::string_view pattern, absl::string_view text) {
  size_t p = 0, t = 0, star = absl::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace fusionllm::scheduler
