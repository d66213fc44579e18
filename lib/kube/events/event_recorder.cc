#include "lib/kube/events/event_recorder.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/base/truncate_utf8.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/time.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;

// Series and objects remembered: of the series the oldest are forgotten, at the price of one event more; of the objects those that have
// most of their burst.
constexpr size_t kMaxSeries = 4096;
constexpr size_t kMaxBudgets = 4096;

Resource EventResource() { return {"events.k8s.io", "v1", "events", "Event", true}; }

json ReferenceJson(const ObjectReference& of) {
  json reference = {{"apiVersion", of.api_version}, {"kind", of.kind}, {"name", of.key.name}};
  if (!of.key.ns.empty()) reference["namespace"] = of.key.ns;
  if (!of.uid.empty()) reference["uid"] = of.uid;
  if (!of.resource_version.empty()) reference["resourceVersion"] = of.resource_version;
  return reference;
}

// Of texts one after the other; with their lengths, so that what moves from one to the next makes a difference.
std::array<uint64_t, 2> HashOf(std::initializer_list<absl::string_view> texts) {
  std::string all;
  for (const absl::string_view text : texts) absl::StrAppend(&all, text.size(), ":", text);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  if (EVP_Digest(all.data(), all.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  std::array<uint64_t, 2> hash;
  static_assert(sizeof hash <= 32, "of the 32 bytes of a SHA-256");
  std::memcpy(hash.data(), digest.data(), sizeof hash);
  return hash;
}

template <class Map, class Earlier>
void EraseFirst(Map& map, const Earlier& earlier) {
  map.erase(std::min_element(map.begin(), map.end(), [&](const auto& a, const auto& b) { return earlier(a.second, b.second); }));
}

}  // namespace

EventMetrics::EventMetrics(metrics::Registry& registry)
    : events_(registry.AddCounter({"events_total",
                                   "Events about objects, by what became of them: created, counted (one more of a series), known (written "
                                   "before), filtered (too many "
                                   "about one object), dropped (too many waited), failed.",
                                   {"outcome"}})) {}

EventRecorder::EventRecorder(ApiClient& client, Clock& clock, const EventMetrics* metrics, std::string controller, std::string instance,
                             EventTimes times)
    : client_(client),
      clock_(clock),
      metrics_(metrics),
      controller_(std::move(controller)),
      instance_(base::TruncateUtf8(instance, 128)),
      times_(times),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

EventRecorder::~EventRecorder() {
  thread_.request_stop();
  thread_.join();
}

void EventRecorder::Record(Event event) {
  event.note = base::TruncateUtf8(event.note, kMaxEventNoteBytes);
  {
    const base::MutexLock lock(mutex_);
    if (queue_.size() < (event.source.has_value() ? kMaxWaitingEvents / 2 : kMaxWaitingEvents)) {
      const absl::Time when = event.source.has_value() ? event.source->when : clock_.Now();
      queue_.push_back({std::move(event), when});
      ++recorded_;
      changed_.notify_all();
      return;
    }
  }
  Count("dropped");
}

bool EventRecorder::Flush(absl::Duration timeout) {
  const absl::Duration deadline = clock_.Monotonic() + timeout;
  base::UniqueLock lock(mutex_);
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
    const base::MutexLock lock(mutex_);
    changed_.notify_all();
  });
  base::UniqueLock lock(mutex_);
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

EventRecorder::Fingerprint EventRecorder::BudgetOf(const Event& event) {
  const ObjectReference& object = event.regarding;
  return HashOf({object.kind, object.key.ns, object.key.name, object.uid, event.source.has_value() ? event.source->controller : ""});
}

EventRecorder::Fingerprint EventRecorder::FingerprintOf(const Event& event) {
  const ObjectReference &regarding = event.regarding, &related = event.related;
  return HashOf({regarding.api_version, regarding.kind, regarding.key.ns, regarding.key.name, regarding.uid, related.kind, related.key.ns,
                 related.key.name, event.reason, event.action, event.note, event.type == EventType::kNormal ? "N" : "W"});
}

ObjectKey EventRecorder::NameOf(const Event& event, const Series& series) {
  // Unique among all events about this object, of this process and of others. The time comes first, in as many digits each: those who list
  // events of this API in no order of their own, as `kubectl describe` does, then show them in that of time.
  return NameOf(event.regarding.key, absl::StrFormat("%016x%x", series.began_ns, series.number));
}

ObjectKey EventRecorder::NameOf(const ObjectKey& object, const std::string& end) {
  return {object.ns.empty() ? "default" : object.ns, absl::StrCat(base::TruncateUtf8(object.name, 200), ".", end)};
}

bool EventRecorder::WithinBudget(const Event& event) {
  const absl::Duration now = clock_.Monotonic();
  const Fingerprint which = BudgetOf(event);
  if (budgets_.size() >= kMaxBudgets && !budgets_.contains(which)) EraseFirst(budgets_, std::less<>());
  absl::Duration& free_at = budgets_.emplace(which, now).first->second;
  const absl::Duration used_until = std::max(free_at, now) + times_.per_event;
  if (used_until > now + times_.burst * times_.per_event) return false;
  free_at = used_until;
  return true;
}

void EventRecorder::Take(Waiting waiting, const std::stop_token& stop) {
  const Event& event = waiting.event;
  if (!WithinBudget(event)) return Count("filtered");
  if (event.source.has_value()) return TakeFromSource(waiting, stop);
  const Fingerprint which = FingerprintOf(event);
  const auto found = series_.find(which);
  if (found != series_.end() && clock_.Monotonic() - found->second.last_at < times_.series) return Repeat(found->second, waiting, stop);
  Series series{.began_ns = absl::ToUnixNanos(waiting.when), .number = ++names_};
  const absl::Status status = Create(waiting, NameOf(event, series), stop);
  if (!status.ok() && !IsApiAlreadyExists(status)) return;  // a try whose answer was lost may have succeeded
  Count("created");
  if (series_.size() >= kMaxSeries) EraseFirst(series_, [](const Series& a, const Series& b) { return a.last_at < b.last_at; });
  series.last_at = clock_.Monotonic();
  series_.insert_or_assign(which, std::move(series));
}

void EventRecorder::TakeFromSource(const Waiting& waiting, const std::stop_token& stop) {
  const Event& event = waiting.event;
  const Fingerprint text = FingerprintOf(event);
  const Fingerprint which = HashOf({event.source->controller, event.source->id, absl::StrFormat("%x %x", text[0], text[1])});
  const std::string end = absl::StrFormat("%016x%016x%016x", absl::ToUnixNanos(event.source->when), which[0], which[1]);
  const absl::Status status = Create(waiting, NameOf(event.regarding.key, end), stop);
  if (status.ok()) Count("created");
  if (IsApiAlreadyExists(status)) Count("known");
}

absl::Status EventRecorder::Create(const Waiting& waiting, const ObjectKey& name, const std::stop_token& stop) {
  const Event& event = waiting.event;
  const std::string body = Body(event, name, waiting.when);
  absl::Status status = Try(stop, [&](const CallOptions& call) { return client_.Create(EventResource(), name.ns, body, {}, call); });
  if (status.ok() || IsApiAlreadyExists(status)) return status;
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("event ", event.reason, " about ", event.regarding.kind, "/", event.regarding.key.ToString(), "/",
                         event.regarding.uid, " is lost: ", status.message()));
  Count("failed");
  return status;
}

void EventRecorder::Repeat(Series& series, const Waiting& waiting, const std::stop_token& stop) {
  if (series.repeats == nullptr) {
    series.repeats = std::make_unique<Repeats>(Repeats{.name = NameOf(waiting.event, series), .written_at = series.last_at});
  }
  Repeats& repeats = *series.repeats;
  ++repeats.count;
  repeats.last_observed = waiting.when;
  series.last_at = clock_.Monotonic();
  Count("counted");
  if (repeats.count == 2 || series.last_at - repeats.written_at >= times_.refresh) WriteCount(repeats, stop);
}

void EventRecorder::Sweep(bool all, const std::stop_token& stop) {
  const absl::Duration now = clock_.Monotonic();
  for (auto at = series_.begin(); at != series_.end() && !stop.stop_requested();) {
    Series& series = at->second;
    Repeats* const repeats = series.repeats.get();
    const bool over = now - series.last_at >= times_.series;
    if (repeats != nullptr && repeats->written_count < repeats->count && (all || over)) WriteCount(*repeats, stop);
    const auto looked_at = at++;
    if (over) series_.erase(looked_at);
  }
  absl::erase_if(budgets_, [&](const auto& budget) { return budget.second <= now; });
}

absl::Duration EventRecorder::NextSweep() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [which, series] : series_) next = std::min(next, series.last_at + times_.series);
  return next;
}

void EventRecorder::WriteCount(Repeats& repeats, const std::stop_token& stop) {
  const std::string patch = json{{"series", {{"count", repeats.count}, {"lastObservedTime", MicroTimeText(repeats.last_observed)}}}}.dump();
  const absl::Status status =
      Try(stop, [&](const CallOptions& call) { return client_.Patch(EventResource(), repeats.name, PatchType::kMerge, patch, {}, call); });
  // The server forgets events after a while; the next of the kind will be a new one.
  if (!status.ok()) Count("failed");
  repeats.written_count = repeats.count;
  repeats.written_at = clock_.Monotonic();
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
               {"reportingController", event.source.has_value() ? event.source->controller : controller_},
               {"reportingInstance", instance_},
               {"action", base::TruncateUtf8(event.action, 128)},
               {"reason", base::TruncateUtf8(event.reason, 128)},
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
