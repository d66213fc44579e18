#include "lib/kube/watch/reflector.h"

#include <algorithm>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/resource_version.h"
#include "lib/kube/watch/line_splitter.h"
#include "lib/kube/watch/list_splitter.h"

namespace fusionllm::kube {
namespace {

// A watch that ends sooner, without a single event, has done nothing but cost a request.
constexpr absl::Duration kShortestWatch = absl::Seconds(1);
// Of so many types that are not known it is said, once each.
constexpr size_t kMaxUnknownTypes = 16;

absl::Status TooManyBytes(const ReflectorLimits& limits) {
  return absl::ResourceExhaustedError(absl::StrCat("more objects than fit into the ", limits.max_bytes >> 20, " MiB that they may take"));
}

// Of all pages of a list so far.
struct ListTotal {
  size_t bytes = 0;
  size_t items = 0;  // those that cannot be read or have no name, too
  size_t pages = 0;
};

// Takes in the stream of a list.
class PageSink : public WatchSink {
 public:
  PageSink(const DecodeObject& decode, const InformerMetrics::Recorder& recorder, const ReflectorLimits& limits,
           std::vector<ObjectPtr>& objects, std::vector<ObjectKey>& unreadable, ListTotal& total)
      : decode_(decode),
        recorder_(recorder),
        limits_(limits),
        objects_(objects),
        unreadable_(unreadable),
        total_(total),
        splitter_(limits.max_object_bytes) {}

  absl::Status OnData(absl::string_view chunk) override {
    return splitter_.Push(chunk, [this](absl::string_view json) { return Take(json); });
  }
  absl::StatusOr<ListHead> Finish() const { return splitter_.Finish(); }

 private:
  absl::Status Take(absl::string_view json) {
    if (total_.items++ >= limits_.max_objects) {
      return absl::ResourceExhaustedError(absl::StrCat("a list of more than ", limits_.max_objects, " objects"));
    }
    absl::StatusOr<ObjectPtr> object = decode_(json);
    if (object.ok()) {
      total_.bytes += (*object)->Bytes();
      objects_.push_back(*std::move(object));
      return CheckBytes();
    }
    // One object that cannot be read is no reason to do without the others. It is there, though.
    recorder_.Unreadable();
    const absl::StatusOr<ObjectPtr> metadata = DecodeMetadata(json);
    if (!metadata.ok()) return absl::OkStatus();
    total_.bytes += (*metadata)->Bytes();
    unreadable_.push_back((*metadata)->meta.Key());
    return CheckBytes();
  }
  absl::Status CheckBytes() const { return total_.bytes <= limits_.max_bytes ? absl::OkStatus() : TooManyBytes(limits_); }

  const DecodeObject& decode_;
  const InformerMetrics::Recorder& recorder_;
  const ReflectorLimits& limits_;
  std::vector<ObjectPtr>& objects_;
  std::vector<ObjectKey>& unreadable_;
  ListTotal& total_;
  ListSplitter splitter_;
};

const char* ReasonOf(const absl::Status& status, bool lived) {
  if (status.ok()) return lived ? "timeout" : "short";
  if (IsApiExpired(status)) return "expired";
  if (ApiErrorOf(status).has_value()) return "refused";
  return status.code() == absl::StatusCode::kDeadlineExceeded ? "dead" : "unreachable";
}

}  // namespace

class Reflector::EventSink : public WatchSink {
 public:
  explicit EventSink(Reflector& reflector) : reflector_(reflector), lines_(reflector.limits_.max_object_bytes) {}
  absl::Status OnOpen() override {
    opened = true;
    reflector_.sink_.Watching(true, absl::OkStatus());
    return absl::OkStatus();
  }
  absl::Status OnData(absl::string_view chunk) override {
    return lines_.Push(chunk, [this](absl::string_view line) {
      const absl::Status taken = reflector_.Take(line);
      if (taken.ok()) ++events;
      return taken;
    });
  }
  absl::Duration IdleTimeout() const override {
    return reflector_.bookmarks_seen_ ? reflector_.limits_.bookmark_silence : absl::InfiniteDuration();
  }

  bool opened = false;
  int64_t events = 0;

 private:
  Reflector& reflector_;
  LineSplitter lines_;
};

Reflector::Reflector(ApiClient& client, Clock& clock, WatchScope scope, DecodeObject decode, ReflectorSink& sink,
                     InformerMetrics::Recorder recorder, ReflectorLimits limits, std::optional<uint64_t> seed)
    : client_(client),
      clock_(clock),
      scope_(std::move(scope)),
      decode_(std::move(decode)),
      sink_(sink),
      recorder_(std::move(recorder)),
      limits_(limits),
      random_(seed.has_value() ? *seed : absl::Uniform<uint64_t>(absl::BitGen())),
      backoff_(limits.first_backoff),
      header_timeout_(limits.min_header_timeout) {}

void Reflector::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const absl::Status listed = List(stop);
    if (listed.ok()) {
      WatchUntilLost(stop);
    } else if (!stop.stop_requested()) {
      sink_.Watching(false, listed);
      BackOff(listed, stop);
    }
  }
}

absl::Status Reflector::List(const std::stop_token& stop) {
  const std::string from = version_lost_ ? "" : version_.empty() ? "0" : version_;
  absl::Status status = ListFrom(from, stop);
  if (!from.empty() && (IsApiExpired(status) || IsApiResourceVersionTooLarge(status))) {
    version_lost_ = true;
    status = ListFrom("", stop);
  }
  if (status.ok()) version_lost_ = false;
  return status;
}

absl::Status Reflector::ListFrom(const std::string& resource_version, const std::stop_token& stop) {
  std::vector<ObjectPtr> objects;
  std::vector<ObjectKey> unreadable;
  ListTotal total;
  bool restarted = false;
  ListOptions options = {.label_selector = scope_.label_selector,
                         .field_selector = scope_.field_selector,
                         .resource_version = resource_version,
                         // Pages of an older state are read from the store behind the server, one by one: only where that is asked anyway.
                         .limit = resource_version.empty() ? limits_.page_size : 0,
                         .metadata_only = scope_.metadata_only};
  for (;;) {
    if (total.pages++ >= limits_.max_sparse_pages + total.items / 10) {
      return absl::ResourceExhaustedError(absl::StrCat("a list of ", total.pages, " pages and more that hold next to nothing"));
    }
    PageSink page(decode_, recorder_, limits_, objects, unreadable, total);
    const absl::Status status =
        client_.StreamList(scope_.resource, scope_.ns, options, page, {.timeout = limits_.list_timeout, .stop = stop});
    if (IsApiExpired(status) && !options.continue_token.empty() && !std::exchange(restarted, true)) {
      // The rest of this state is no more to be had, and the pages of another would leave some objects out.
      objects.clear();
      unreadable.clear();
      total = {};
      options.continue_token.clear();
      options.limit = 0;
      continue;
    }
    if (!status.ok()) return status;
    absl::StatusOr<ListHead> head = page.Finish();
    if (!head.ok()) return head.status();
    const std::string kind = scope_.metadata_only ? "PartialObjectMetadataList" : scope_.resource.kind + "List";
    if (head->kind != kind) return absl::InvalidArgumentError(absl::StrCat("the server sent a ", head->kind, " in place of a ", kind));
    if (!head->continue_token.empty()) {
      options.continue_token = head->continue_token;
      options.resource_version.clear();  // the token says which
      continue;
    }
    if (!IsResourceVersion(head->resource_version)) {
      return absl::InvalidArgumentError(absl::StrCat("the ", kind, " has no resource version from which to watch"));
    }
    recorder_.Listed();
    recorder_.Heard(clock_.Now());
    version_ = head->resource_version;
    sink_.Replace(std::move(objects), unreadable, version_);
    return absl::OkStatus();
  }
}

void Reflector::Relist() {
  const base::MutexLock lock(mutex_);
  start_over_ = true;
  if (watch_ != nullptr) watch_->request_stop();
}

void Reflector::WatchUntilLost(const std::stop_token& stop) {
  while (!stop.stop_requested() && WatchGoesOn(stop)) {
  }
}

bool Reflector::WatchGoesOn(const std::stop_token& stop) {
  const absl::Duration start = clock_.Monotonic();
  WatchOutcome outcome;
  const absl::Status status = WatchOnce(stop, outcome);
  if (stop.stop_requested()) return false;
  {
    const base::MutexLock lock(mutex_);
    if (std::exchange(start_over_, false)) {
      version_lost_ = true;  // what the sink has is wrong: only the newest state will do
      sink_.Watching(false, absl::UnavailableError("listing again"));
      return false;
    }
  }
  sink_.Watching(false, status);
  recorder_.WatchEnded(ReasonOf(status, outcome.lived));
  if (clock_.Monotonic() - start >= limits_.healthy_after) backoff_ = limits_.first_backoff;
  // Versions go out of date under watches that were long silent, and a list is due at once. One that is gone as soon as it was listed, or
  // after an event, comes from a server that is out of order: to ask it without a pause would keep it, and us, busy for ever.
  const bool too_short = outcome.lasted < kShortestWatch;
  if (status.ok() ? !outcome.lived : too_short || !IsApiExpired(status)) {
    BackOff(status, stop);
  } else if (too_short) {
    clock_.WaitFor(kShortestWatch - outcome.lasted, stop);
  }
  // What is gone, forbidden or not understood will be said better by a list. All else can go on from where it was.
  return !(IsApiExpired(status) || IsApiNotFound(status) || IsApiForbidden(status) || IsApiUnauthorized(status) ||
           status.code() == absl::StatusCode::kInvalidArgument || std::exchange(full_, false));
}

absl::Status Reflector::WatchOnce(const std::stop_token& stop, WatchOutcome& outcome) {
  const double share = std::uniform_real_distribution<double>(0, 1)(random_);
  const WatchOptions options = {
      .label_selector = scope_.label_selector,
      .field_selector = scope_.field_selector,
      .resource_version = version_,
      .metadata_only = scope_.metadata_only,
      .server_timeout = limits_.min_server_timeout + share * (limits_.max_server_timeout - limits_.min_server_timeout),
      .header_timeout = header_timeout_};
  const absl::Duration start = clock_.Monotonic();
  EventSink sink(*this);
  std::stop_source end;
  const std::stop_callback by_caller(stop, [&] { end.request_stop(); });
  {
    const base::MutexLock lock(mutex_);
    watch_ = &end;
    if (start_over_) end.request_stop();
  }
  const absl::Status status = client_.Watch(scope_.resource, scope_.ns, options, sink, end.get_token());
  {
    const base::MutexLock lock(mutex_);
    watch_ = nullptr;
  }
  const absl::Duration lasted = clock_.Monotonic() - start;
  outcome = {.lived = sink.events > 0 || lasted >= kShortestWatch, .lasted = lasted};
  if (sink.opened) {
    header_timeout_ = limits_.min_header_timeout;
  } else if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    // Some proxies hold the head back until the first event, and large caches take minutes: wait longer each time.
    header_timeout_ = std::min(2 * header_timeout_, limits_.max_header_timeout);
  }
  return status;
}

absl::Status Reflector::Take(absl::string_view line) {
  absl::StatusOr<WatchEvent> event = ParseWatchEvent(line);
  if (!event.ok()) return event.status();  // whatever sent this is no watch
  recorder_.Heard(clock_.Now());
  switch (event->type) {
    case WatchEventType::kAdded:
    case WatchEventType::kModified:
    case WatchEventType::kDeleted:
      return TakeObject(*std::move(event));
    case WatchEventType::kBookmark: {
      const absl::StatusOr<std::string> version = ParseBookmark(event->object);
      if (!version.ok()) return version.status();
      TakeBookmark(*version);
      return absl::OkStatus();
    }
    case WatchEventType::kError: {
      absl::Status status = ToStatus(ParseApiError(500, event->object));
      return status.ok() ? absl::UnknownError("the server ended the watch with an error that says nothing") : status;
    }
    case WatchEventType::kUnknown:
      recorder_.Unreadable();
      LogUnknownType(event->type_name);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

void Reflector::LogUnknownType(const std::string& type) {
  if (unknown_types_.size() >= kMaxUnknownTypes || !unknown_types_.insert(type).second) return;
  base::Log(base::LogLevel::kWarning, absl::StrCat("watch of ", scope_.resource.Name(), ": events of type \"", absl::CHexEscape(type),
                                                   "\" are left out: it is not known what they mean"));
}

void Reflector::TakeBookmark(const std::string& resource_version) {
  bookmarks_seen_ = true;
  if (CompareResourceVersions(resource_version, version_).value_or(1) <= 0) return;
  version_ = resource_version;
  sink_.Advance(version_);
}

absl::Status Reflector::TakeObject(WatchEvent event) {
  const std::string kind = KindOf(event.object);
  if (kind != (scope_.metadata_only ? "PartialObjectMetadata" : scope_.resource.kind)) {
    return absl::InvalidArgumentError(absl::StrCat("the server sent a ", kind, " in a watch of ", scope_.resource.Name()));
  }
  absl::StatusOr<ObjectPtr> object = decode_(event.object);
  const bool readable = object.ok();
  if (!readable) {
    recorder_.Unreadable();
    object = DecodeMetadata(event.object);  // enough to know that it is there, or gone
    if (!object.ok()) return absl::OkStatus();
  }
  if (readable && event.type != WatchEventType::kDeleted) {
    if (absl::Status fits = sink_.Fits(**object); !fits.ok()) {
      full_ = true;
      return fits;
    }
  }
  const std::string version = (*object)->meta.resource_version;
  if (CompareResourceVersions(version, version_).value_or(1) > 0) version_ = version;
  if (readable || event.type == WatchEventType::kDeleted) {
    sink_.Apply(event.type, *std::move(object));
  } else {
    sink_.Unreadable((*object)->meta.Key(), version);
  }
  return absl::OkStatus();
}

absl::Status Reflector::CheckSize(const ReflectorLimits& limits, size_t objects, size_t bytes) {
  if (objects > limits.max_objects) return absl::ResourceExhaustedError(absl::StrCat("more than ", limits.max_objects, " objects"));
  return bytes <= limits.max_bytes ? absl::OkStatus() : TooManyBytes(limits);
}

void Reflector::BackOff(const absl::Status& why, const std::stop_token& stop) {
  const absl::Duration wait = backoff_ * (1 + std::uniform_real_distribution<double>(0, 1)(random_));
  backoff_ = std::min(2 * backoff_, limits_.max_backoff);
  clock_.WaitFor(std::max(wait, RetryAfter(why).value_or(absl::ZeroDuration())), stop);
}

}  // namespace fusionllm::kube
