#include "lib/kube/queue/queue_metrics.h"

#include <vector>

#include "lib/kube/queue/work_queue.h"

namespace fusionllm::kube {
namespace {

metrics::FamilySpec QueueSpec(const std::string& name, const std::string& help) {
  return {.name = name, .help = help, .labels = {"name", "controller"}, .prefix = "workqueue_"};
}

// Those of client-go, 10 ns to 1,000 s.
std::vector<double> Buckets() { return metrics::ExponentialBuckets(1e-8, 10, 12); }

}  // namespace

QueueMetrics::QueueMetrics(metrics::Registry& registry)
    : depth_(registry.AddGauge(QueueSpec("depth", "Keys that wait for a worker."))),
      unfinished_(registry.AddGauge(QueueSpec("unfinished_work_seconds",
                                              "Since the keys being worked on were taken, together; a stuck worker "
                                              "makes it grow steadily."))),
      longest_(registry.AddGauge(QueueSpec("longest_running_processor_seconds", "Of the key being worked on for the longest time."))),
      adds_(registry.AddCounter(QueueSpec("adds_total", "Keys added, those that were there already not counted."))),
      retries_(registry.AddCounter(QueueSpec("retries_total", "Keys added with a delay."))),
      waited_(registry.AddHistogram(QueueSpec("queue_duration_seconds", "From a key's addition until a worker took it."), Buckets())),
      worked_(registry.AddHistogram(QueueSpec("work_duration_seconds", "From a worker's taking a key until it was done."), Buckets())) {
  registry.OnCollect([queues = queues_, unfinished = unfinished_, longest = longest_] {
    const base::MutexLock lock(queues->mutex);
    for (const WorkQueue* queue : queues->all) {
      const Unfinished work = queue->UnfinishedWork();
      unfinished.Set(absl::ToDoubleSeconds(work.together), {queue->name(), queue->name()});
      longest.Set(absl::ToDoubleSeconds(work.longest), {queue->name(), queue->name()});
    }
  });
}

void QueueMetrics::Enter(const WorkQueue* queue) {
  Depth(queue->name(), 0);
  const base::MutexLock lock(queues_->mutex);
  queues_->all.insert(queue);
}

void QueueMetrics::Leave(const WorkQueue* queue) {
  const base::MutexLock lock(queues_->mutex);
  queues_->all.erase(queue);
  for (const metrics::Gauge& gauge : {depth_, unfinished_, longest_}) gauge.Remove({queue->name(), queue->name()});
}

std::map<std::string, QueueMetrics::Unfinished> QueueMetrics::UnfinishedWork() const {
  std::map<std::string, Unfinished> work;
  const base::MutexLock lock(queues_->mutex);
  for (const WorkQueue* queue : queues_->all) work[queue->name()] = queue->UnfinishedWork();
  return work;
}

void QueueMetrics::Added(const std::string& queue) const { adds_.Add(1, {queue, queue}); }
void QueueMetrics::Retried(const std::string& queue) const { retries_.Add(1, {queue, queue}); }
void QueueMetrics::Depth(const std::string& queue, size_t depth) const { depth_.Set(static_cast<double>(depth), {queue, queue}); }
void QueueMetrics::Waited(const std::string& queue, absl::Duration time) const {
  waited_.Observe(absl::ToDoubleSeconds(time), {queue, queue});
}
void QueueMetrics::Worked(const std::string& queue, absl::Duration time) const {
  worked_.Observe(absl::ToDoubleSeconds(time), {queue, queue});
}

}  // namespace fusionllm::kube
