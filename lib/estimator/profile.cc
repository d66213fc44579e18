#include "lib/estimator/profile.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::estimator {
namespace {

absl::Status CheckDevice(const DeviceProfile& device) {
  const auto bad = [&](absl::string_view what, double number) {
    return absl::InvalidArgumentError(absl::StrFormat("device %s: %s %g is out of range", device.name, what, number));
  };
  if (!(device.compute_scale > 0 && device.compute_scale <= 1)) return bad("compute scale", device.compute_scale);
  if (device.memory_bytes < 0) return bad("memory", static_cast<double>(device.memory_bytes));
  for (const OpRate& rate : device.rates) {
    for (double number : {rate.overhead_s, rate.seconds_per_flop, rate.seconds_per_byte}) {
      if (!std::isfinite(number) || number < 0) return bad("a rate of", number);
    }
  }
  for (const auto& [signature, seconds] : device.exact) {
    if (!std::isfinite(seconds) || seconds < 0) return bad(absl::StrFormat("measured time of %s", signature), seconds);
  }
  return absl::OkStatus();
}

double Median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + numbers.size() / 2, numbers.end());
  return numbers[numbers.size() / 2];
}

}  // namespace

double SecondsOf(const DeviceProfile& device, opdag::OpClass op_class, const std::string& signature, double flops, double bytes) {
  const auto measured = device.exact.find(signature);
  if (measured != device.exact.end()) return measured->second / device.compute_scale;
  if (op_class == opdag::OpClass::kFree) return 0;
  const OpRate& rate = device.rates[static_cast<size_t>(op_class)];
  return (rate.overhead_s + flops * rate.seconds_per_flop + bytes * rate.seconds_per_byte) / device.compute_scale;
}

int FillGaps(DeviceProfile& device, const OpRate& fallback) {
  std::vector<double> overheads, per_flop, per_byte;
  for (const OpRate& rate : device.rates) {
    if (rate.samples == 0) continue;
    overheads.push_back(rate.overhead_s);
    per_flop.push_back(rate.seconds_per_flop);
    per_byte.push_back(rate.seconds_per_byte);
  }
  OpRate typical = fallback;
  if (!overheads.empty())
    typical = {.overhead_s = Median(overheads), .seconds_per_flop = Median(per_flop), .seconds_per_byte = Median(per_byte)};
  int filled = 0;
  for (size_t c = 0; c < device.rates.size(); ++c) {
    if (device.rates[c].samples > 0 || c == static_cast<size_t>(opdag::OpClass::kFree)) continue;
    device.rates[c] = typical;
    device.rates[c].samples = 0;
    ++filled;
  }
  return filled;
}

absl::Status Validate(const ClusterProfile& cluster) {
  std::set<std::string> devices, resources;
  for (const DeviceProfile& device : cluster.devices) {
    if (device.name.empty() || !devices.insert(device.name).second) {
      return absl::InvalidArgumentError(absl::StrFormat("device '%s': names must be given and differ", device.name));
    }
    FUSIONLLM_RETURN_IF_ERROR(CheckDevice(device));
  }
  for (const ResourceProfile& resource : cluster.resources) {
    if (!resources.insert(resource.name).second || !(std::isfinite(resource.bytes_per_s) && resource.bytes_per_s > 0)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("shared link %s: it occurs twice, or its bandwidth %g is not positive", resource.name, resource.bytes_per_s));
    }
  }
  for (const LinkProfile& link : cluster.links) {
    const auto bad = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrFormat("link %s -> %s: %s", link.src, link.dst, what));
    };
    if (devices.count(link.src) == 0 || devices.count(link.dst) == 0 || link.src == link.dst) return bad("joins no two known devices");
    if (!(std::isfinite(link.bytes_per_s) && link.bytes_per_s > 0)) {
      return bad(absl::StrFormat("bandwidth %g bytes per second must be positive and finite", link.bytes_per_s));
    }
    if (!(std::isfinite(link.latency_s) && link.latency_s >= 0))
      return bad(absl::StrFormat("latency %g s must not be negative", link.latency_s));
    for (const std::string& resource : link.resources) {
      if (resources.count(resource) == 0) return bad(absl::StrFormat("crosses the unknown shared link %s", resource));
    }
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::estimator
