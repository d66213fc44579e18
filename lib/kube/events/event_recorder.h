// Tells users what happened to an object: events of events.k8s.io/v1, which `kubectl describe` shows.
//
// Record() never waits: a thread of the recorder writes. What repeats becomes one event with a count; what repeats too often about one
// object is left out; what somebody else has seen is written once, even if it is recorded again; when the server is away, up to
// kMaxWaitingEvents wait and the rest is dropped. Events are for people: nothing may depend on one arriving. What was written is
// remembered by fingerprints, in some 100 bytes an event. Thread-safe.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"
#include "lib/metrics/registry.h"

namespace fusionllm::kube {

inline constexpr size_t kMaxWaitingEvents = 1000;
inline constexpr size_t kMaxEventNoteBytes = 1024;  // the server refuses more; longer notes are cut

struct ObjectReference {
  std::string api_version, kind;
  ObjectKey key;  // of the whole cluster: without a namespace; its events are in "default"
  std::string uid;
  std::string resource_version = {};  // not part of what makes two events the same

  bool Same(const ObjectReference& other) const {
    return std::tie(api_version, kind, key, uid) == std::tie(other.api_version, other.kind, other.key, other.uid);
  }
};

enum class EventType { kNormal, kWarning };

struct Event {
  ObjectReference regarding;
  ObjectReference related = {};  // no kind: none
  EventType type = EventType::kNormal;
  std::string reason;  // CamelCase, at most 128 bytes
  std::string action;  // what was done or tried, CamelCase, at most 128 bytes
  std::string note;    // a sentence

  // Of what somebody else has seen. It has a share of its own of what is written about an object, and of the room for events that wait, so
  // that it is never in the way of this controller's own.
  struct Source {
    std::string controller;  // who says so, instead of this one: "fusionllm.io/broker"
    // Tells it from whatever else this one says of the object. Its Event object is named by it, by its time and by the texts above: it is
    // created once, whichever process writes it, as long as the server remembers it. It is never one of a series.
    std::string id;
    absl::Time when;
  };
  std::optional<Source> source = {};
};

// fusionllm_events_total{outcome}. One for a process; its registry must outlive it.
class EventMetrics {
 public:
  explicit EventMetrics(metrics::Registry& registry);
  void Count(const std::string& outcome) const { events_.Add(1, {outcome}); }

 private:
  metrics::Counter events_;
};

struct EventTimes {
  absl::Duration series = absl::Minutes(6);    // what comes again within this is the same event
  absl::Duration refresh = absl::Minutes(30);  // how often the count of one that goes on is written
  absl::Duration retry = absl::Seconds(10);    // between tries, of which there are `tries`
  int tries = 12;
  int burst = 25;                               // events about one object at once
  absl::Duration per_event = absl::Minutes(5);  // and then one more in this time
};

class EventRecorder {
 public:
  // `controller`: "fusionllm.io/operator"; `instance`: the Pod. `client`, `clock` and `metrics` (which may be null) must outlive the
  // recorder.
  EventRecorder(ApiClient& client, Clock& clock, const EventMetrics* metrics, std::string controller, std::string instance,
                EventTimes times = {});
  // Drops what was not written.
  ~EventRecorder();

  void Record(Event event);
  // Blocks until all is written or given up, counts of what repeats included. False: not within `timeout`.
  bool Flush(absl::Duration timeout);

 private:
  // 128 bits of a cryptographic hash. Of the few thousand that are remembered, two of different events or objects are equal with a
  // probability below 1e-30; if they were, one would be counted as the other.
  using Fingerprint = std::array<uint64_t, 2>;
  struct Waiting {
    Event event;
    absl::Time when;
  };
  // Of an event that came more than once.
  struct Repeats {
    ObjectKey name;  // of the Event object
    int count = 1;
    int written_count = 1;
    absl::Time last_observed;
    absl::Duration written_at;
  };
  struct Series {
    // What its Event object's name ends with; the rest is said by each event of the series.
    int64_t began_ns = 0;
    uint64_t number = 0;
    absl::Duration last_at;            // by the monotonic clock, as are the others
    std::unique_ptr<Repeats> repeats;  // null: it came once
  };

  static Fingerprint FingerprintOf(const Event& event);
  // Of the object, and of who tells about it.
  static Fingerprint BudgetOf(const Event& event);
  static ObjectKey NameOf(const Event& event, const Series& series);
  static ObjectKey NameOf(const ObjectKey& object, const std::string& end);
  void Run(const std::stop_token& stop);
  bool WithinBudget(const Event& event);
  void Take(Waiting waiting, const std::stop_token& stop);
  void TakeFromSource(const Waiting& waiting, const std::stop_token& stop);
  absl::Status Create(const Waiting& waiting, const ObjectKey& name, const std::stop_token& stop);
  // Counts one more of a series.
  void Repeat(Series& series, const Waiting& waiting, const std::stop_token& stop);
  // Ends series that do not go on, and writes the counts that are due. All counts, if asked to.
  void Sweep(bool all, const std::stop_token& stop);
  absl::Duration NextSweep() const;
  void WriteCount(Repeats& repeats, const std::stop_token& stop);
  absl::Status Try(const std::stop_token& stop, const std::function<absl::StatusOr<std::string>(const CallOptions&)>& write);
  std::string Body(const Event& event, const ObjectKey& name, absl::Time when) const;
  void Count(const char* outcome) const;

  ApiClient& client_;
  Clock& clock_;
  const EventMetrics* const metrics_;
  const std::string controller_, instance_;
  const EventTimes times_;

  base::Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t recorded_ ABSL_GUARDED_BY(mutex_) = 0;  // events taken in
  int64_t finished_ ABSL_GUARDED_BY(mutex_) = 0;  // events done with
  bool flushing_ ABSL_GUARDED_BY(mutex_) = false;

  // Of the thread alone.
  absl::flat_hash_map<Fingerprint, Series> series_;
  absl::flat_hash_map<Fingerprint, absl::Duration> budgets_;  // by object and teller: when all of its burst is there again
  uint64_t names_ = 0;

  std::jthread thread_;
};

}  // namespace fusionllm::kube
