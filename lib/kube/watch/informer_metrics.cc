#include "lib/kube/watch/informer_metrics.h"

#include "absl/strings/numbers.h"

namespace fusionllm::kube {
namespace {

metrics::FamilySpec Spec(const std::string& name, const std::string& help) {
  return {.name = name, .help = help, .labels = {"cluster", "resource"}};
}

}  // namespace

InformerMetrics::InformerMetrics(metrics::Registry& registry)
    : relists_(registry.AddCounter(Spec("relists_total", "Complete lists taken, the first included."))),
      watch_ends_(
          registry.AddCounter({"watch_restarts_total",
                               "Watches that ended, by why: timeout (the server's usual end), expired, short, dead (no sign of life), "
                               "refused, unreachable.",
                               {"cluster", "resource", "reason"}})),
      unreadable_(registry.AddCounter(Spec("informer_unreadable_total", "Objects and events left out because they could not be decoded."))),
      divergence_(
          registry.AddCounter(Spec("informer_divergence_total", "Comparisons of a cache with the server that found a difference."))),
      heard_(registry.AddGauge(
          Spec("cluster_watch_last_event_timestamp_seconds", "When the watch last brought anything, bookmarks included."))),
      objects_(registry.AddGauge(Spec("informer_store_objects", "Objects in the cache."))),
      version_(registry.AddGauge(Spec("informer_store_resource_version", "Up to where the cache follows the server, rounded."))),
      queued_(registry.AddGauge(Spec("informer_queued_items", "Changes that handlers have not seen yet."))),
      latency_(registry.AddHistogram(Spec("informer_processing_latency_seconds", "From a change's arrival until its handler was done."),
                                     metrics::ExponentialBuckets(1e-5, 4, 12))) {}

InformerMetrics::Recorder InformerMetrics::Of(const std::string& cluster, const std::string& resource) const {
  Recorder recorder;
  recorder.all_ = this;
  recorder.cluster_ = cluster;
  recorder.resource_ = resource;
  // Counted from zero: the first is a rise that can be seen.
  for (const metrics::Counter& counter : {relists_, unreadable_, divergence_}) counter.Add(0, {cluster, resource});
  return recorder;
}

void InformerMetrics::Recorder::Listed() const {
  if (all_ != nullptr) all_->relists_.Add(1, {cluster_, resource_});
}
void InformerMetrics::Recorder::WatchEnded(const std::string& reason) const {
  if (all_ != nullptr) all_->watch_ends_.Add(1, {cluster_, resource_, reason});
}
void InformerMetrics::Recorder::Heard(absl::Time now) const {
  if (all_ != nullptr) all_->heard_.Set(absl::ToDoubleSeconds(now - absl::UnixEpoch()), {cluster_, resource_});
}
void InformerMetrics::Recorder::Unreadable() const {
  if (all_ != nullptr) all_->unreadable_.Add(1, {cluster_, resource_});
}
void InformerMetrics::Recorder::Diverged() const {
  if (all_ != nullptr) all_->divergence_.Add(1, {cluster_, resource_});
}
void InformerMetrics::Recorder::Stored(size_t objects, const std::string& resource_version) const {
  if (all_ == nullptr) return;
  all_->objects_.Set(static_cast<double>(objects), {cluster_, resource_});
  double version = 0;
  if (absl::SimpleAtod(resource_version, &version)) all_->version_.Set(version, {cluster_, resource_});
}
void InformerMetrics::Recorder::Queued(size_t items) const {
  if (all_ != nullptr) all_->queued_.Set(static_cast<double>(items), {cluster_, resource_});
}
void InformerMetrics::Recorder::Handled(absl::Duration since_received) const {
  if (all_ != nullptr) all_->latency_.Observe(absl::ToDoubleSeconds(since_received), {cluster_, resource_});
}
void InformerMetrics::Recorder::Leave() const {
  if (all_ == nullptr) return;
  for (const metrics::Gauge& gauge : {all_->heard_, all_->objects_, all_->version_, all_->queued_}) gauge.Remove({cluster_, resource_});
}

}  // namespace fusionllm::kube
