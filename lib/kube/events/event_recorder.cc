#include "lib/kube/events/event_recorder.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/cut_text.h"
#include "lib/base/log.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/time.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;

// Series and objects remembered: the oldest are forgotten, at the price of one event more.
constexpr size_t kMostSeries = 4096;
constexpr size_t kMostBudgets = 4096;

Resource EventResource() { return {"events.k8s.io", "v1", "events", "Event", true}; }

json ReferenceJson(const ObjectReference& of) {
  json reference = {{"apiVersion", of.api_version}, {"kind", of.kind}, {"name", of.key.name}};
  if (!of.key.ns.empty()) reference["namespace"] = of.key.ns;
  if (!of.uid.empty()) reference["uid"] = of.uid;
  if (!of.resource_version.empty()) reference["resourceVersion"] = of.resource_version;
  return reference;
}

std::string ObjectOf(const Event& event) {
  return absl::StrCat(event.regarding.kind, "/", event.regarding.key.ToString(), "/", event.regarding.uid);
}

}  // namespace

EventMetrics::EventMetrics(metrics::Registry& registry)
    : events_(
          registry.AddCounter({"events_total",
                               "Events about objects, by what became of them: created, counted (one more of a series), filtered (too many "
                               "about one object), dropped (too many waited), failed.",
                               {"outcome"}})) {}

EventRecorder::EventRecorder(ApiClient& client, Clock& clock, const EventMetrics* metrics, std::string controller, std::string instance,
                             EventTimes times)
    : client_(client),
      clock_(clock),
      metrics_(metrics),
      controller_(std::move(controller)),
      instance_(base::CutText(instance, 128)),
      times_(times),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

EventRecorder::~EventRecorder() {
  thread_.request_stop();
  thread_.join();
}

void EventRecorder::Record(Event event) {
  event.note = base::CutText(event.note, kMaxEventNoteBytes);
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() < kMostWaitingEvents) {
      queue_.push_back({std::move(event), clock_.Now()});
      ++recorded_;
      changed_.notify_all();
      return;
    }
  }
  Count("dropped");
}

bool EventRecorder::Flush(absl::Duration patience) {
  const absl::Duration deadline = clock_.Monotonic() + patience;
  std::unique_lock lock(mutex_);
  flushing_ = true;
  changed_.notify_all();
  while (flushing_ || finished_ < recorded_) {
    if (clock_.Monotonic() >= deadline) return false;
    clock_.WaitUntil(lock, changed_, deadline);
  }
  return true;
}

void EventRecorder::Run(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (!queue_.empty()) {
      Waiting waiting = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      Take(std::move(waiting), stop);
      lock.lock();
      ++finished_;
      changed_.notify_all();
      continue;
    }
    const bool all = flushing_;
    if (all || clock_.Monotonic() >= NextSweep()) {
      lock.unlock();
      Sweep(all, stop);
      lock.lock();
      if (all) flushing_ = false;
      changed_.notify_all();
      continue;
    }
    clock_.WaitUntil(lock, changed_, NextSweep());
  }
}

EventRecorder::Key EventRecorder::KeyOf(const Event& event) {
  return {ObjectOf(event),    event.regarding.api_version,
          event.related.kind, event.related.key.ToString(),
          event.reason,       event.action,
          event.note,         event.type};
}

bool EventRecorder::Affords(const std::string& object) {
  const absl::Duration now = clock_.Monotonic();
  const auto found = budget_of_.find(object);
  if (found != budget_of_.end()) {
    budgets_.splice(budgets_.begin(), budgets_, found->second);
  } else {
    budgets_.push_front({object, now});
    budget_of_[object] = budgets_.begin();
    if (budgets_.size() > kMostBudgets) {
      budget_of_.erase(budgets_.back().object);
      budgets_.pop_back();
    }
  }
  Budget& budget = budgets_.front();
  const absl::Duration used_until = std::max(budget.free_at, now) + times_.per_event;
  if (used_until > now + times_.burst * times_.per_event) return false;
  budget.free_at = used_until;
  return true;
}

void EventRecorder::Take(Waiting waiting, const std::stop_token& stop) {
  const Event& event = waiting.event;
  if (!Affords(ObjectOf(event))) return Count("filtered");
  const Key key = KeyOf(event);
  const auto found = series_.find(key);
  if (found != series_.end() && clock_.Monotonic() - found->second.last_at < times_.series) {
    Series& series = found->second;
    ++series.count;
    series.last_observed = waiting.when;
    series.last_at = clock_.Monotonic();
    Count("counted");
    if (series.count == 2 || series.last_at - series.written_at >= times_.refresh) WriteCount(series, stop);
    return;
  }
  // Unique among all events about this object, of this process and of others.
  const ObjectKey name = {
      event.regarding.key.ns.empty() ? "default" : event.regarding.key.ns,
      absl::StrCat(base::CutText(event.regarding.key.name, 200), ".", absl::StrFormat("%x%x", absl::ToUnixNanos(waiting.when), ++names_))};
  const std::string body = Body(event, name, waiting.when);
  const absl::Status status = Try(stop, [&](const CallOptions& call) { return client_.Create(EventResource(), name.ns, body, {}, call); });
  if (!status.ok() && !IsApiAlreadyExists(status)) {  // a try whose answer was lost may have succeeded
    base::Log(base::LogLevel::kWarning, absl::StrCat("event ", event.reason, " about ", ObjectOf(event), " is lost: ", status.message()));
    return Count("failed");
  }
  Count("created");
  if (series_.size() >= kMostSeries) {
    series_.erase(
        std::min_element(series_.begin(), series_.end(), [](const auto& a, const auto& b) { return a.second.last_at < b.second.last_at; }));
  }
  const absl::Duration now = clock_.Monotonic();
  series_[key] = {.name = name, .last_observed = waiting.when, .last_at = now, .written_at = now, .event = event};
}

void EventRecorder::Sweep(bool all, const std::stop_token& stop) {
  const absl::Duration now = clock_.Monotonic();
  for (auto at = series_.begin(); at != series_.end() && !stop.stop_requested();) {
    Series& series = at->second;
    const bool over = now - series.last_at >= times_.series;
    if (series.written_count < series.count && (all || over)) WriteCount(series, stop);
    at = over ? series_.erase(at) : std::next(at);
  }
}

absl::Duration EventRecorder::NextSweep() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [key, series] : series_) next = std::min(next, series.last_at + times_.series);
  return next;
}

void EventRecorder::WriteCount(Series& series, const std::stop_token& stop) {
  const std::string patch = json{{"series", {{"count", series.count}, {"lastObservedTime", MicroTimeText(series.last_observed)}}}}.dump();
  const absl::Status status =
      Try(stop, [&](const CallOptions& call) { return client_.Patch(EventResource(), series.name, PatchType::kMerge, patch, {}, call); });
  // The server forgets events after a while; the next of the kind will be a new one.
  if (!status.ok()) Count("failed");
  series.written_count = series.count;
  series.written_at = clock_.Monotonic();
}

absl::Status EventRecorder::Try(const std::stop_token& stop, const std::function<absl::StatusOr<std::string>(const CallOptions&)>& write) {
  absl::Status status;
  for (int i = 0; i < times_.tries; ++i) {
    if (i > 0 && !clock_.WaitFor(std::max(times_.retry, RetryAfter(status).value_or(times_.retry)), stop)) break;
    status = write({.timeout = absl::Seconds(10), .stop = stop}).status();
    if (status.ok() || !IsTransient(status)) break;
  }
  return status;
}

std::string EventRecorder::Body(const Event& event, const ObjectKey& name, absl::Time when) const {
  json body = {{"apiVersion", "events.k8s.io/v1"},
               {"kind", "Event"},
               {"metadata", {{"name", name.name}, {"namespace", name.ns}}},
               {"eventTime", MicroTimeText(when)},
               {"reportingController", controller_},
               {"reportingInstance", instance_},
               {"action", base::CutText(event.action, 128)},
               {"reason", base::CutText(event.reason, 128)},
               {"regarding", ReferenceJson(event.regarding)},
               {"note", event.note},
               {"type", event.type == EventType::kNormal ? "Normal" : "Warning"}};
  if (!event.related.kind.empty()) body["related"] = ReferenceJson(event.related);
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

void EventRecorder::Count(const char* outcome) const {
  if (metrics_ != nullptr) metrics_->Count(outcome);
}

}  // namespace fusionllm::kube
