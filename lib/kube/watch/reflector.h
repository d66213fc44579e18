// Follows the objects of one kind on one server: lists them, watches from there, and starts over where a watch cannot go on. For ever.
//
// What it hands on never goes back in time: a list is asked to be no older than what was seen before, on whichever of several servers it
// is answered. It waits before it tries again, longer with each failure and with random parts, so that a server that comes back is not
// overrun. One thread runs it.
#pragma once

#include <optional>
#include <random>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"
#include "lib/kube/watch/informer_metrics.h"
#include "lib/kube/watch/object.h"
#include "lib/kube/watch/watch_event.h"

namespace fusionllm::kube {

struct WatchScope {
  Resource resource;
  std::string ns = {};  // empty: all namespaces
  std::string label_selector = {};
  std::string field_selector = {};
  bool metadata_only = false;  // the server leaves out all else; for kinds whose changes need only be noticed
};

struct ReflectorLimits {
  absl::Duration first_backoff = absl::Milliseconds(800);  // doubled with each failure, and up to as much again by chance
  absl::Duration max_backoff = absl::Seconds(30);
  absl::Duration healthy_after = absl::Minutes(2);  // a watch that lasted this long makes earlier failures forgotten
  absl::Duration min_server_timeout = absl::Minutes(5), max_server_timeout = absl::Minutes(10);
  absl::Duration min_header_timeout = absl::Minutes(1), max_header_timeout = absl::Minutes(10);
  absl::Duration list_timeout = absl::Minutes(2);
  // Servers send a bookmark each minute: after the first has been seen, this long a silence means a dead watch.
  absl::Duration bookmark_silence = absl::Seconds(150);
  int page_size = 500;
  size_t max_object_bytes = size_t{16} << 20;
  // Of all objects together, listed or by watch; with more the server is followed no further.
  size_t max_objects = 500'000;
  size_t max_bytes = SIZE_MAX;  // as Object::Bytes() says; while all is listed again twice that is held
  // A page may hold few objects, or none, and say that there are more, but not without end: so many pages, and one more for ten objects.
  size_t max_sparse_pages = 100;
};

// Takes in what a reflector finds, on its thread.
class ReflectorSink {
 public:
  virtual ~ReflectorSink() = default;
  // All there is at `resource_version`. Of `unreadable` objects it is only known that they are there.
  virtual void Replace(std::vector<ObjectPtr> objects, const std::vector<ObjectKey>& unreadable, const std::string& resource_version) = 0;
  // ResourceExhausted: with this one there would be more than the limits allow.
  virtual absl::Status Fits(const Object& object) { return absl::OkStatus(); }
  // kAdded, kModified or kDeleted (the last state).
  virtual void Apply(WatchEventType type, ObjectPtr object) = 0;
  // It was made or has changed, and cannot be read as it is now.
  virtual void Unreadable(const ObjectKey& key, const std::string& resource_version) {}
  // Nothing changed up to here.
  virtual void Advance(const std::string& resource_version) = 0;
  // Whether a watch is open, and if not, why the last attempt failed (OK: the server ended it as usual).
  virtual void Watching(bool open, const absl::Status& why) = 0;
};

class Reflector {
 public:
  // Everything passed by reference must outlive the reflector. `seed`: of its random waits; none: another each time, for reflectors that
  // draw the same would come back all at once after the server was away.
  Reflector(ApiClient& client, Clock& clock, WatchScope scope, DecodeObject decode, ReflectorSink& sink, InformerMetrics::Recorder recorder,
            ReflectorLimits limits = {}, std::optional<uint64_t> seed = {});

  // Until `stop` is requested.
  void Run(std::stop_token stop);
  // Gives up the watch that is open and lists again, from the server's newest state. From any thread; does not block.
  void Relist();
  // ResourceExhausted when that is more than the limits allow.
  static absl::Status CheckSize(const ReflectorLimits& limits, size_t objects, size_t bytes);

 private:
  class EventSink;

  absl::Status List(const std::stop_token& stop);
  absl::Status ListFrom(const std::string& resource_version, const std::stop_token& stop);
  struct WatchOutcome {
    bool lived = false;  // it has done something
    absl::Duration lasted;
  };
  // Watches one time after the other, until a list is needed.
  void WatchUntilLost(const std::stop_token& stop);
  // Watches once, waits after a failure, and says whether another watch can follow.
  bool WatchGoesOn(const std::stop_token& stop);
  absl::Status WatchOnce(const std::stop_token& stop, WatchOutcome& outcome);
  absl::Status Take(absl::string_view line);
  void TakeBookmark(const std::string& resource_version);
  absl::Status TakeObject(WatchEvent event);
  void LogUnknownType(const std::string& type);
  void BackOff(const absl::Status& why, const std::stop_token& stop);

  ApiClient& client_;
  Clock& clock_;
  const WatchScope scope_;
  const DecodeObject decode_;
  ReflectorSink& sink_;
  const InformerMetrics::Recorder recorder_;
  const ReflectorLimits limits_;

  base::Mutex mutex_;
  bool start_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::stop_source* watch_ ABSL_GUARDED_BY(mutex_) = nullptr;  // that ends the open watch

  std::mt19937_64 random_;
  std::string version_;                  // up to where the sink knows
  bool version_lost_ = false;            // no server has it any more: the next list must ask for the newest state
  bool bookmarks_seen_ = false;          // this server sends them
  bool full_ = false;                    // the open watch brought more than the sink may keep: what is there must be counted again
  std::set<std::string> unknown_types_;  // of events, that the log knows of
  absl::Duration backoff_;
  absl::Duration header_timeout_;
};

}  // namespace fusionllm::kube
