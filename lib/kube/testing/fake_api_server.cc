#include "lib/kube/testing/fake_api_server.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/kube/testing/fake_api.h"
#include "lib/kube/testing/selectors.h"

namespace fusionllm::kube::testing {
namespace {

HttpResponse Answer(int code, const Json& body) {
  HttpResponse response;
  response.code = code;
  response.headers = {{"Content-Type", "application/json"}, {"Audit-Id", "fake"}};
  response.body = body.is_string() ? body.get<std::string>() : body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return response;
}

HttpResponse Refused(const absl::Status& status) {
  const ApiError error = *ApiErrorOf(status);
  return Answer(error.code, StatusObject(error));
}

std::string Event(const char* type, const Json& object) {
  return Json({{"type", type}, {"object", object}}).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

class FakeTransport : public Transport {
 public:
  explicit FakeTransport(FakeApiServer& server) : server_(server) {}
  absl::StatusOr<HttpResponse> Send(const HttpRequest& request, const UnaryLimits& limits, std::stop_token stop) override {
    return server_.Send(request, limits, std::move(stop));
  }
  absl::StatusOr<HttpResponse> Stream(const HttpRequest& request, const StreamLimits& limits, StreamSink& sink,
                                      std::stop_token stop) override {
    return server_.Stream(request, limits, sink, std::move(stop));
  }

 private:
  FakeApiServer& server_;
};

}  // namespace

class FakeApiServer::Impl {
 public:
  explicit Impl(Clock& clock) : clock(clock), api(clock) {}

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request, absl::Duration timeout, const std::stop_token& stop);
  absl::StatusOr<HttpResponse> Watch(const HttpRequest& request, const FakeRequest& read, const StreamLimits& limits, StreamSink& sink,
                                     const std::stop_token& stop);

  std::optional<Fault> TakeFault(const FakeRequest& read, const std::string& target) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Until `timeout` is over or `stop` is requested, and so never an answer.
  absl::Status Hang(std::unique_lock<std::mutex>& lock, absl::Duration timeout, const std::stop_token& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Record(const HttpRequest& request, const FakeRequest& read, int code) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    requests.push_back({read.verb, request.method, request.target, read.user_agent, code, clock.Monotonic(), read.metadata_only});
    if (on_request) on_request(requests.back());
  }

  Clock& clock;
  base::Mutex mutex;
  std::condition_variable changed;
  FakeApi api ABSL_GUARDED_BY(mutex);
  std::vector<Fault> faults ABSL_GUARDED_BY(mutex);
  std::vector<RecordedRequest> requests ABSL_GUARDED_BY(mutex);
  std::function<void(const RecordedRequest&)> on_request ABSL_GUARDED_BY(mutex);
  int64_t bookmarks ABSL_GUARDED_BY(mutex) = 0;  // asked for so far
  int64_t breaks ABSL_GUARDED_BY(mutex) = 0;
  int open_watches ABSL_GUARDED_BY(mutex) = 0;

 private:
  struct Session;
  absl::Status CheckVersion(const FakeRequest& read) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // All lines that are due now; empty if none.
  std::string Due(const FakeRequest& read, const FakeKind& kind, Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  std::string InitialEvents(const FakeRequest& read, const FakeKind& kind, const Selector& selector) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  std::string Bookmark(const FakeRequest& read, const FakeKind& kind) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
};

struct FakeApiServer::Impl::Session {
  Selector selector;
  int64_t cursor = 0;  // delivered up to here
  int64_t bookmarks = 0;
  int64_t breaks = 0;
  bool expired = false;
};

std::optional<Fault> FakeApiServer::Impl::TakeFault(const FakeRequest& read, const std::string& target) {
  for (Fault& fault : faults) {
    if (fault.times <= 0 || (!fault.verb.empty() && fault.verb != read.verb) || !absl::StrContains(target, fault.target)) continue;
    if (fault.skip-- > 0) continue;
    --fault.times;
    return fault;
  }
  return std::nullopt;
}

absl::Status FakeApiServer::Impl::Hang(std::unique_lock<std::mutex>& lock, absl::Duration timeout, const std::stop_token& stop) {
  const absl::Duration deadline = clock.Monotonic() + timeout;
  while (!stop.stop_requested()) {
    if (clock.Monotonic() >= deadline) return absl::DeadlineExceededError("the fake API server does not answer");
    clock.WaitUntil(lock, changed, deadline);
  }
  return absl::CancelledError("the call was stopped");
}

absl::StatusOr<HttpResponse> FakeApiServer::Impl::Send(const HttpRequest& request, absl::Duration timeout, const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const base::MutexLock lock(mutex);
    changed.notify_all();
  });
  base::UniqueLock lock(mutex);
  if (stop.stop_requested()) return absl::CancelledError("the call was stopped");
  const FakeRequest read = ReadRequest(request);
  const std::optional<Fault> fault = TakeFault(read, request.target);
  if (fault.has_value() && fault->kind == Fault::Kind::kAnswer) {
    Record(request, read, fault->code);
    return HttpResponse{fault->code, fault->headers, fault->body};
  }
  if (fault.has_value() && fault->kind != Fault::Kind::kBreakAfter) {
    Record(request, read, 0);
    if (fault->kind == Fault::Kind::kHang) return Hang(lock, timeout, stop);
    return absl::UnavailableError("the fake API server broke the connection");
  }
  const absl::StatusOr<FakeAnswer> answer = api.Do(read, request.body);
  changed.notify_all();
  HttpResponse response = answer.ok() ? Answer(answer->code, answer->body) : Refused(answer.status());
  Record(request, read, fault.has_value() ? 0 : response.code);
  if (fault.has_value()) return absl::UnavailableError("the fake API server broke the connection before its answer");
  return response;
}

absl::Status FakeApiServer::Impl::CheckVersion(const FakeRequest& read) const {
  const std::string version = read.Query("resourceVersion");
  int64_t from = 0;
  if (!version.empty() && !absl::SimpleAtoi(version, &from)) {
    return Refuse(400, "BadRequest", absl::StrCat("resourceVersion: Invalid value: \"", version, "\""));
  }
  if (from <= api.store().version()) return absl::OkStatus();
  return Refuse(504, "Timeout", absl::StrCat("Too large resource version: ", from, ", current: ", api.store().version()),
                {{"ResourceVersionTooLarge", "", "Too large resource version"}});
}

std::string FakeApiServer::Impl::Bookmark(const FakeRequest& read, const FakeKind& kind) const {
  const Json object = {{"kind", kind.resource.kind},
                       {"apiVersion", kind.resource.ApiVersion()},
                       {"metadata", {{"resourceVersion", absl::StrCat(api.store().version())}, {"creationTimestamp", nullptr}}}};
  return Event("BOOKMARK", FakeApi::Shown(read, object));
}

std::string FakeApiServer::Impl::InitialEvents(const FakeRequest& read, const FakeKind& kind, const Selector& selector) {
  std::string lines;
  for (const auto& [key, object] : api.store().All(kind.collection())) {
    if (!read.key.ns.empty() && key.ns != read.key.ns) continue;
    if (selector.Holds(*object)) lines += Event("ADDED", FakeApi::Shown(read, *object));
  }
  return lines;
}

std::string FakeApiServer::Impl::Due(const FakeRequest& read, const FakeKind& kind, Session& session) {
  if (session.cursor < api.store().compacted()) {
    session.expired = true;
    return Event("ERROR",
                 StatusObject({.code = 410, .reason = "Expired", .message = absl::StrCat("too old resource version: ", session.cursor)}));
  }
  std::string lines;
  const std::deque<Change>& history = api.store().history();
  const auto first = std::upper_bound(history.begin(), history.end(), session.cursor,
                                      [](int64_t cursor, const Change& change) { return cursor < change.version; });
  for (auto change = first; change != history.end(); ++change) {
    if (change->collection != kind.collection() || (!read.key.ns.empty() && change->key.ns != read.key.ns)) continue;
    const auto selects = [&](const SharedJson& object) { return object != nullptr && session.selector.Holds(*object); };
    const bool before = selects(change->before);
    const bool after = selects(change->after);
    if (after) lines += Event(before ? "MODIFIED" : "ADDED", FakeApi::Shown(read, *change->after));
    // What no longer fits the selector is gone for this watch, as it was but with the version of the change.
    if (!before || after) continue;
    Json last = change->last != nullptr ? *change->last : *change->before;
    last["metadata"]["resourceVersion"] = absl::StrCat(change->version);
    lines += Event("DELETED", FakeApi::Shown(read, last));
  }
  session.cursor = api.store().version();
  if (session.bookmarks < bookmarks && read.Query("allowWatchBookmarks") == "true") lines += Bookmark(read, kind);
  session.bookmarks = bookmarks;
  return lines;
}

absl::StatusOr<HttpResponse> FakeApiServer::Impl::Watch(const HttpRequest& request, const FakeRequest& read, const StreamLimits& limits,
                                                        StreamSink& sink, const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const base::MutexLock lock(mutex);
    changed.notify_all();
  });
  base::UniqueLock lock(mutex);
  const std::optional<Fault> fault = TakeFault(read, request.target);
  const bool raw = fault.has_value() && fault->kind == Fault::Kind::kRaw;
  if (fault.has_value() && !raw) {
    Record(request, read, fault->kind == Fault::Kind::kAnswer ? fault->code : 0);
    if (fault->kind == Fault::Kind::kAnswer) return HttpResponse{fault->code, fault->headers, fault->body};
    if (fault->kind == Fault::Kind::kHang) return Hang(lock, limits.header_timeout, stop);
    return absl::UnavailableError("the fake API server broke the connection");
  }
  const absl::StatusOr<const FakeKind*> kind = api.FindKind(read);
  absl::Status refusal = kind.ok() ? CheckVersion(read) : kind.status();
  absl::StatusOr<Selector> selector = Selector::Parse(read.Query("labelSelector"), read.Query("fieldSelector"));
  if (refusal.ok() && !selector.ok()) refusal = Refuse(400, "BadRequest", "unable to parse requirement");
  if (!refusal.ok()) {
    HttpResponse response = Refused(refusal);
    Record(request, read, response.code);
    return response;
  }
  Record(request, read, 200);
  Session session = {.selector = *std::move(selector), .bookmarks = bookmarks, .breaks = breaks};
  const std::string version = read.Query("resourceVersion");
  std::string lines;
  if (raw) {
    lines = fault->body;
  } else if (version.empty() || version == "0") {
    lines = InitialEvents(read, **kind, session.selector);
    session.cursor = api.store().version();
  } else {
    (void)absl::SimpleAtoi(version, &session.cursor);
  }
  int64_t seconds = 0;
  (void)absl::SimpleAtoi(read.Query("timeoutSeconds"), &seconds);
  const absl::Duration end = clock.Monotonic() + (seconds > 0 ? absl::Seconds(seconds) : absl::Hours(1));

  HttpResponse head = {.code = 200, .headers = {{"Content-Type", "application/json"}}};
  ++open_watches;
  lock.unlock();
  absl::Status status = sink.OnOpen(head);
  lock.lock();
  absl::Duration heard = clock.Monotonic();
  while (status.ok()) {
    if (session.breaks != breaks) {  // what has happened since goes nowhere
      status = absl::UnavailableError("the fake API server broke the connection");
      break;
    }
    if (!raw) lines += Due(read, **kind, session);
    if (!lines.empty()) {
      lock.unlock();
      status = sink.OnData(std::exchange(lines, ""));
      lock.lock();
      heard = clock.Monotonic();
      if (!status.ok()) break;
    }
    if (raw || session.expired || clock.Monotonic() >= end) break;
    if (stop.stop_requested()) status = absl::CancelledError("the call was stopped");
    const absl::Duration idle_end = heard + sink.IdleTimeout();
    if (clock.Monotonic() >= idle_end) status = absl::DeadlineExceededError("the watch is silent");
    const bool due = session.cursor != api.store().version() || session.bookmarks != bookmarks || session.breaks != breaks;
    if (status.ok() && !due) clock.WaitUntil(lock, changed, std::min(end, idle_end));
  }
  --open_watches;
  changed.notify_all();
  if (!status.ok()) return status;
  return head;
}

FakeApiServer::FakeApiServer(Clock& clock) : impl_(std::make_unique<Impl>(clock)) {}

FakeApiServer::~FakeApiServer() = default;

void FakeApiServer::Serve(const Resource& resource, const KindOptions& options) {
  const base::MutexLock lock(impl_->mutex);
  impl_->api.Serve(resource, options);
}

std::shared_ptr<Transport> FakeApiServer::NewTransport() { return std::make_shared<FakeTransport>(*this); }

absl::StatusOr<HttpResponse> FakeApiServer::Send(const HttpRequest& request, const UnaryLimits& limits, std::stop_token stop) {
  absl::StatusOr<HttpResponse> response = impl_->Send(request, limits.timeout, stop);
  if (response.ok() && response->body.size() > limits.max_response_bytes) return absl::ResourceExhaustedError("the answer is too long");
  return response;
}

absl::StatusOr<HttpResponse> FakeApiServer::Stream(const HttpRequest& request, const StreamLimits& limits, StreamSink& sink,
                                                   std::stop_token stop) {
  const FakeRequest read = ReadRequest(request);
  if (read.verb == "watch") return impl_->Watch(request, read, limits, sink, stop);
  absl::StatusOr<HttpResponse> response = impl_->Send(request, limits.header_timeout, stop);
  if (!response.ok() || response->code / 100 != 2) return response;
  const std::string body = std::exchange(response->body, "");
  FUSIONLLM_RETURN_IF_ERROR(sink.OnOpen(*response));
  FUSIONLLM_RETURN_IF_ERROR(sink.OnData(body));
  return response;
}

void FakeApiServer::AddFault(const Fault& fault) {
  const base::MutexLock lock(impl_->mutex);
  impl_->faults.push_back(fault);
}

void FakeApiServer::Compact() {
  const base::MutexLock lock(impl_->mutex);
  impl_->api.store().Compact();
  impl_->changed.notify_all();
}

void FakeApiServer::SendBookmarks() {
  const base::MutexLock lock(impl_->mutex);
  ++impl_->bookmarks;
  impl_->changed.notify_all();
}

void FakeApiServer::BreakWatches() {
  const base::MutexLock lock(impl_->mutex);
  ++impl_->breaks;
  impl_->changed.notify_all();
}

int FakeApiServer::open_watches() const {
  const base::MutexLock lock(impl_->mutex);
  return impl_->open_watches;
}

std::vector<RecordedRequest> FakeApiServer::requests() const {
  const base::MutexLock lock(impl_->mutex);
  return impl_->requests;
}

void FakeApiServer::ForgetRequests() {
  const base::MutexLock lock(impl_->mutex);
  impl_->requests.clear();
}

void FakeApiServer::OnRequest(std::function<void(const RecordedRequest&)> on_request) {
  const base::MutexLock lock(impl_->mutex);
  impl_->on_request = std::move(on_request);
}

std::vector<std::string> FakeApiServer::objects() const {
  const base::MutexLock lock(impl_->mutex);
  std::vector<std::string> names;
  for (const auto& [collection, objects] : impl_->api.store().collections()) {
    for (const auto& [key, object] : objects) names.push_back(absl::StrCat(collection, " ", key.ToString()));
  }
  return names;
}

}  // namespace fusionllm::kube::testing
