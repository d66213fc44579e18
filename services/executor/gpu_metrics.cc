#include "services/executor/gpu_metrics.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace fusionllm::services {
namespace {

using metrics::Counter;
using metrics::Gauge;

void Show(const Gauge& gauge, std::optional<double> value) {
  if (value.has_value()) {
    gauge.Set(*value);
  } else {
    gauge.Clear();
  }
}

}  // namespace

void AddGpuMetrics(metrics::Registry& registry, std::shared_ptr<const nvml::Gpu> gpu) {
  const Gauge utilization = registry.AddGauge(
      {.name = "gpu_utilization_ratio",
       .help =
           "Of the card that computes: share of the driver's last sample period (a sixth of a second to one) in which some kernel ran."});
  const Gauge memory =
      registry.AddGauge({.name = "gpu_memory_bytes", .help = "Of the card, for all processes: used, total.", .labels = {"kind"}});
  const Gauge temperature = registry.AddGauge({.name = "gpu_temperature_celsius", .help = "Of the card."});
  const Gauge power = registry.AddGauge({.name = "gpu_power_watts", .help = "What the card draws."});
  const Gauge throttled = registry.AddGauge(
      {.name = "gpu_throttled",
       .help = "1: the card's clocks are held down now, 0: they are not, by power, heat or hardware (slowed down by itself "
               "to less than half).",
       .labels = {"reason"}});
  const Counter ecc = registry.AddCounter(
      {.name = "gpu_ecc_uncorrected_errors_total", .help = "Of the card's memories, by all processes, since its driver was loaded."});
  const Counter xids = registry.AddCounter({.name = "gpu_xid_errors_total",
                                            .help = "Errors of the card that its driver has reported since the executor started.",
                                            .labels = {"xid"}});
  if (gpu == nullptr) return;
  registry.OnCollect([=, gpu = std::move(gpu), lost = std::make_shared<bool>(false)] {
    // First, and of a card that is lost, too: the error tells why.
    for (const uint64_t xid : gpu->TakeXids()) {
      base::Log(base::LogLevel::kError, absl::StrCat("the driver reports an error of the card, Xid ", xid));
      xids.Add(1, {absl::StrCat(xid)});
    }
    const absl::StatusOr<nvml::Reading> now = gpu->Read();
    if (!now.ok() && !std::exchange(*lost, true)) base::Log(base::LogLevel::kWarning, now.status().message());
    const nvml::Reading reading = now.value_or(nvml::Reading());
    Show(utilization, reading.utilization_ratio);
    Show(temperature, reading.temperature_celsius);
    Show(power, reading.power_watts);
    throttled.Clear();
    if (reading.throttling.has_value()) {
      throttled.Set(reading.throttling->power, {"power"});
      throttled.Set(reading.throttling->heat, {"heat"});
      throttled.Set(reading.throttling->hardware, {"hardware"});
    }
    if (reading.uncorrected_ecc_errors.has_value()) ecc.IncreaseTo(static_cast<double>(*reading.uncorrected_ecc_errors));
    memory.Clear();
    if (reading.memory_used_bytes.has_value()) memory.Set(static_cast<double>(*reading.memory_used_bytes), {"used"});
    if (reading.memory_total_bytes.has_value()) memory.Set(static_cast<double>(*reading.memory_total_bytes), {"total"});
  });
}

}  // namespace fusionllm::services
