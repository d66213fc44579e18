#include "services/stage_metrics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

// By transport::Priority, as in LinkBytes.
constexpr const char* kClasses[] = {"control", "tensor", "parameter_sync", "checkpoint"};
constexpr int kClassCount = 4;

}  // namespace

StageMetrics::StageMetrics(metrics::Registry& registry)
    : compute_(registry.AddGauge({"stage_compute_seconds",
                                  "Compute of the stage in the last step, of its replicas the mean; dir is forward or backward.",
                                  {"stage", "dir"}})),
      bytes_(registry.AddCounter({"link_bytes_total",
                                  "Bytes sent from src to dst by stages, framing included; class is control, tensor, parameter_sync or "
                                  "checkpoint.",
                                  {"src", "dst", "class"}})),
      bandwidth_(registry.AddGauge({"link_bandwidth_bytes_per_second",
                                    "Rate of what the link carries, smoothed; where that waits for others on one wire, it is the queue's.",
                                    {"src", "dst"}})),
      rtt_(registry.AddGauge({"link_rtt_seconds", "Round trip of small messages, smoothed.", {"src", "dst"}})),
      ratio_(registry.AddGauge({"compression_ratio",
                                "Bytes of activations and gradients before compression over their bytes as sent, since the plan began.",
                                {"link"}})),
      error_(registry.AddGauge({"compression_error",
                                "Norm of what compression lost over the norm of the original, in the newest step that was compared.",
                                {"link"}})) {}

void StageMetrics::NewPlan() {
  const base::MutexLock lock(mutex_);
  sent_.clear();
  compute_s_.clear();
  for (const metrics::Gauge& gauge : {compute_, bandwidth_, rtt_, ratio_, error_}) gauge.Clear();
}

void StageMetrics::Report(const std::string& device, int stage, const v1::StageTimes& times) {
  const base::MutexLock lock(mutex_);
  std::map<std::string, Compute>& replicas = compute_s_[stage];
  replicas[device] = {.forward_s = times.forward_seconds(), .backward_s = times.backward_seconds()};
  Compute sum;
  for (const auto& [name, compute] : replicas) {
    sum.forward_s += compute.forward_s;
    sum.backward_s += compute.backward_s;
  }
  const auto count = static_cast<double>(replicas.size());
  compute_.Set(sum.forward_s / count, {absl::StrCat(stage), "forward"});
  compute_.Set(sum.backward_s / count, {absl::StrCat(stage), "backward"});
  for (const v1::LinkBytes& link : times.links()) Link(device, link);
}

void StageMetrics::RecordSent(const std::string& device, const v1::LinkBytes& link) {
  const base::MutexLock lock(mutex_);
  Link(device, link);
}

void StageMetrics::Link(const std::string& device, const v1::LinkBytes& link) {
  for (int c = 0; c < std::min(kClassCount, link.wire_bytes_sent_by_class_size()); ++c) {
    int64_t& before = sent_[{device, link.peer(), c}];
    const int64_t now = link.wire_bytes_sent_by_class(c);
    if (now <= before) continue;
    bytes_.Add(static_cast<double>(now - before), {device, link.peer(), kClasses[c]});
    before = now;
  }
  if (link.bandwidth_bytes_per_second() > 0) bandwidth_.Set(link.bandwidth_bytes_per_second(), {device, link.peer()});
  if (link.rtt_seconds() > 0) rtt_.Set(link.rtt_seconds(), {device, link.peer()});
  const std::string name = absl::StrCat(device, "->", link.peer());
  if (link.ratio() > 0) ratio_.Set(link.ratio(), {name});
  if (link.compared_messages() > 0) error_.Set(link.relative_error(), {name});
}

}  // namespace fusionllm::services
