#include "lib/scheduler/snapshot.h"

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
  }
  return absl::OkStatus();
}

absl::Status CheckLinks(const PlanRequest& request) {
  for (const SharedResource& resource : request.resources) {
    FUSIONLLM_RETURN_IF_ERROR(CheckRate(absl::StrCat("shared link ", resource.name), resource.bytes_per_s));
  }
  std::set<std::pair<int, int>> seen;
  for (const Link& link : request.links) {
    FUSIONLLM_RETURN_IF_ERROR(CheckIndex("link", "source device", link.src, request.devices.size()));
    FUSIONLLM_RETURN_IF_ERROR(CheckIndex("link", "destination device", link.dst, request.devices.size()));
    const std::string where = absl::StrCat("link ", request.devices[link.src].name, " -> ", request.devices[link.dst].name);
    if (link.src == link.dst) return Invalid(where, "a device needs no link to itself");
    if (!seen.insert({link.src, link.dst}).second) return Invalid(where, "is given twice");
    FUSIONLLM_RETURN_IF_ERROR(CheckRate(where, link.bytes_per_s));
    FUSIONLLM_RETURN_IF_ERROR(CheckSeconds(where, "latency", link.latency_s));
    if (link.resources.size() > kMaxLinkResources) return Invalid(where, "crosses too many shared links");
    for (int resource : link.resources) FUSIONLLM_RETURN_IF_ERROR(CheckIndex(where, "shared link", resource, request.resources.size()));
  }
  return absl::OkStatus();
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
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("micro_batches", request.micro_batches, 1, kMaxMicroBatches));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("max_in_flight", request.max_in_flight, 0, kMaxMicroBatches));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("stages", request.stages, 0, kMaxDevices));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("min_executors", request.min_executors, 0, kMaxDevices));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("max_executors", request.max_executors, 0, kMaxDevices));
  FUSIONLLM_RETURN_IF_ERROR(CheckCount("search_budget", request.search_budget, 1, 10'000'000));
  FUSIONLLM_RETURN_IF_ERROR(CheckBytes("report", "bytes", request.report_bytes));
  FUSIONLLM_RETURN_IF_ERROR(CheckBytes("memory reserve", "bytes", request.memory_reserve_bytes));
  FUSIONLLM_RETURN_IF_ERROR(CheckSeconds("step", "overhead", request.step_overhead_s));
  if (!(request.memory_headroom >= 0 && request.memory_headroom < 1)) {
    return absl::InvalidArgumentError(absl::StrFormat("memory headroom %g must be a share from 0 to below 1", request.memory_headroom));
  }
  int classes = 0;
  FUSIONLLM_RETURN_IF_ERROR(CheckDevices(request, &classes));
  FUSIONLLM_RETURN_IF_ERROR(CheckGraph(request, classes));
  return CheckLinks(request);
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
