#include "lib/kube/client/rest_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/kube/client/requests.h"

namespace fusionllm::kube {
namespace {

using base::Log;
using base::LogLevel;

constexpr size_t kMaxWarnings = 256;
constexpr int kBrokenGetRetries = 2;

// What the server asks to wait before the same request, in its header or its body.
std::optional<absl::Duration> AskedToWait(const HttpResponse& response) {
  int64_t seconds = 0;
  if (absl::SimpleAtoi(response.Header("Retry-After"), &seconds) && seconds >= 0 && seconds < 1'000'000) return absl::Seconds(seconds);
  return ParseApiError(response.code, response.body).retry_after;
}

void TakeOut(const Credentials& used, ApiError& error) {
  error.message = RedactSecret(error.message, used.token);
  for (ErrorCause& cause : error.causes) cause.message = RedactSecret(cause.message, used.token);
}

// Of a stream: a sink's error may hold what the server has sent, such as an ERROR event.
absl::Status Redacted(const absl::Status& status, const Credentials& used) {
  if (std::optional<ApiError> error = ApiErrorOf(status); error.has_value()) {
    TakeOut(used, *error);
    return ToStatus(*error);
  }
  absl::Status redacted(status.code(), RedactSecret(status.message(), used.token));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { redacted.SetPayload(url, payload); });
  return redacted;
}

bool MayBeTriedAgain(int code) { return code == 429 || code >= 500; }

// Adapts a WatchSink, which knows no HTTP.
class WatchStream : public StreamSink {
 public:
  explicit WatchStream(WatchSink& sink) : sink_(sink) {}
  absl::Status OnOpen(const HttpResponse&) override { return sink_.OnOpen(); }
  absl::Status OnData(absl::string_view chunk) override { return sink_.OnData(chunk); }
  absl::Duration IdleTimeout() const override { return sink_.IdleTimeout(); }

 private:
  WatchSink& sink_;
};

}  // namespace

// As WatchStream, with an end to what it takes.
class ListStream : public StreamSink {
 public:
  ListStream(WatchSink& sink, size_t max_bytes) : sink_(sink), left_(max_bytes) {}
  bool opened() const { return opened_; }
  absl::Status OnOpen(const HttpResponse&) override {
    opened_ = true;
    return sink_.OnOpen();
  }
  absl::Status OnData(absl::string_view chunk) override {
    if (chunk.size() > left_) return absl::ResourceExhaustedError("the list is longer than allowed");
    left_ -= chunk.size();
    return sink_.OnData(chunk);
  }
  absl::Duration IdleTimeout() const override { return sink_.IdleTimeout(); }

 private:
  WatchSink& sink_;
  size_t left_;
  bool opened_ = false;
};

std::string UserAgent(absl::string_view program, absl::string_view version, absl::string_view instance) {
#if defined(__aarch64__)
  constexpr char kMachine[] = "linux/arm64";
#else
  constexpr char kMachine[] = "linux/amd64";
#endif
  return absl::StrCat(program, "/", version, " (", kMachine, ")", instance.empty() ? "" : " ", instance);
}

RestClient::RestClient(ClusterAccess access, RestClientOptions options, Clock& clock, const RestMetrics* metrics)
    : access_(std::move(access)),
      options_(std::move(options)),
      clock_(clock),
      metrics_(metrics),
      limiter_(options_.requests_per_second, options_.burst, clock),
      concurrency_limiter_(options_.max_concurrent_requests) {}

absl::Status RestClient::WaitForTurn(const HttpRequest& request, const std::stop_token& stop) {
  const absl::Duration waited = limiter_.Wait(stop);
  if (waited == absl::InfiniteDuration()) return absl::CancelledError("the call was stopped while it waited for its turn");
  if (metrics_ != nullptr) metrics_->Limited(request.method, access_.server, waited);
  if (waited > absl::Seconds(1)) {
    Log(LogLevel::kWarning, absl::StrCat("client-side throttling: ", Describe(request), " waited ", absl::FormatDuration(waited)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Credentials>> RestClient::Authorize(HttpRequest& request, const std::stop_token& stop) {
  absl::StatusOr<std::shared_ptr<const Credentials>> credentials = access_.credentials->Get(stop);
  if (!credentials.ok()) return credentials.status();
  request.headers.push_back({"User-Agent", options_.user_agent});
  if (!(*credentials)->token.empty()) request.headers.push_back({"Authorization", absl::StrCat("Bearer ", (*credentials)->token)});
  return credentials;
}

void RestClient::RecordMetrics(const HttpRequest& request, const absl::StatusOr<HttpResponse>& response, absl::Duration time) const {
  if (metrics_ == nullptr) return;
  metrics_->Answered(response.ok() ? absl::StrCat(response->code) : "<error>", request.method, access_.server, time);
  if (response.ok()) metrics_->Sizes(request.method, access_.server, request.body.size(), response->body.size());
}

absl::StatusOr<HttpResponse> RestClient::Attempt(HttpRequest request, const CallOptions& call, ListStream* sink,
                                                 std::shared_ptr<const Credentials>& used) {
  FUSIONLLM_RETURN_IF_ERROR(WaitForTurn(request, call.stop));
  const ConcurrencyLimiter::Permit permit = concurrency_limiter_.Acquire(call.stop);
  if (!permit) return absl::CancelledError("the call was stopped while others were under way");
  FUSIONLLM_ASSIGN_OR_RETURN(used, Authorize(request, call.stop));
  const absl::Duration start = clock_.Monotonic();
  const absl::Time sent = clock_.Now();
  absl::StatusOr<HttpResponse> response =
      sink == nullptr
          ? access_.transport->Send(request, {.timeout = call.timeout, .max_response_bytes = options_.max_response_bytes}, call.stop)
          : access_.transport->Stream(request, {.header_timeout = call.timeout, .body_timeout = call.timeout, .compressed = true}, *sink,
                                      call.stop);
  RecordMetrics(request, response, clock_.Monotonic() - start);
  if (!response.ok()) return response;
  LogWarnings(*response, *used);
  server_clock_.Observe(response->Header("Date"), sent, clock_.Now());
  return response;
}

std::optional<absl::Duration> RestClient::WaitBefore(const HttpRequest& request, const absl::StatusOr<HttpResponse>& response,
                                                     const Credentials* used, Tries& tries) const {
  if (!response.ok()) {
    // Without credentials nothing was sent: their source has said all there is to say.
    const bool again =
        used != nullptr && absl::IsUnavailable(response.status()) && request.method == "GET" && tries.broken < kBrokenGetRetries;
    if (!again) return std::nullopt;
    return absl::Milliseconds(100) * (1 << tries.broken++);
  }
  if (response->code == 401 && !tries.renewed) {
    tries.renewed = true;
    access_.credentials->Refused(*used);
    return absl::ZeroDuration();
  }
  if (!MayBeTriedAgain(response->code) || tries.retries >= options_.max_retries) return std::nullopt;
  // A server that lags behind says "in a second"; the caller has something better to do, such as asking for whatever there is.
  if (IsApiResourceVersionTooLarge(ToStatus(ParseApiError(response->code, response->body)))) return std::nullopt;
  const std::optional<absl::Duration> asked = AskedToWait(*response);
  if (!asked.has_value() || tries.waited + *asked > options_.max_retry_wait) return std::nullopt;
  tries.waited += *asked;
  ++tries.retries;
  return asked;
}

absl::StatusOr<std::string> RestClient::Call(const HttpRequest& request, const CallOptions& call, ListStream* sink) {
  Tries tries;
  while (true) {
    std::shared_ptr<const Credentials> used;
    absl::StatusOr<HttpResponse> response = Attempt(request, call, sink, used);
    if (response.ok() && response->code / 100 == 2) return std::move(response->body);
    const bool begun = sink != nullptr && sink->opened();
    const std::optional<absl::Duration> wait = begun ? std::nullopt : WaitBefore(request, response, used.get(), tries);
    if (!wait.has_value()) {
      if (response.ok()) return Refusal(request, *response, *used);
      return used == nullptr ? response.status() : Redacted(response.status(), *used);
    }
    if (metrics_ != nullptr) metrics_->Retried(response.ok() ? absl::StrCat(response->code) : "<error>", request.method, access_.server);
    if (!clock_.WaitFor(*wait, call.stop)) return absl::CancelledError(absl::StrCat(Describe(request), ": stopped before trying again"));
  }
}

absl::Status RestClient::Refusal(const HttpRequest& request, const HttpResponse& response, const Credentials& used) const {
  ApiError error = ParseApiError(response.code, response.body);
  TakeOut(used, error);
  error.audit_id = std::string(response.Header("Audit-Id").substr(0, 64));
  if (!error.retry_after.has_value()) error.retry_after = AskedToWait(response);
  const LogLevel level = response.code >= 500 || response.code == 429 ? LogLevel::kWarning : LogLevel::kDebug;
  if (base::IsLogged(level))
    Log(level, absl::StrCat(Describe(request), ": ", response.code, " ", error.message, " [audit id ", error.audit_id, "]"));
  return ToStatus(error);
}

void RestClient::LogWarnings(const HttpResponse& response, const Credentials& used) {
  for (const HttpHeader& header : response.headers) {
    std::optional<std::string> text = WarningText(header);
    if (!text.has_value()) continue;
    text = RedactSecret(*text, used.token);
    {
      const base::MutexLock lock(warnings_mutex_);
      if (warnings_.size() >= kMaxWarnings || !warnings_.insert(*text).second) continue;
    }
    Log(LogLevel::kWarning, absl::StrCat(access_.server, " warns: ", *text));
  }
}

absl::StatusOr<std::string> RestClient::Get(const Resource& resource, const ObjectKey& key, const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(CheckKey(resource, key));
  return Call({.method = "GET", .target = ObjectPath(resource, key), .headers = {AcceptJson()}}, call);
}

absl::StatusOr<std::string> RestClient::GetMetadata(const Resource& resource, const ObjectKey& key, const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(CheckKey(resource, key));
  return Call({.method = "GET", .target = ObjectPath(resource, key), .headers = {AcceptMetadata("PartialObjectMetadata")}}, call);
}

absl::StatusOr<std::string> RestClient::List(const Resource& resource, absl::string_view ns, const ListOptions& options,
                                             const CallOptions& call) {
  return Call(ListRequest(resource, ns, options), call);
}

absl::Status RestClient::StreamList(const Resource& resource, absl::string_view ns, const ListOptions& options, WatchSink& sink,
                                    const CallOptions& call) {
  ListStream stream(sink, options_.max_list_bytes);
  return Call(ListRequest(resource, ns, options), call, &stream).status();
}

absl::StatusOr<std::string> RestClient::Create(const Resource& resource, absl::string_view ns, absl::string_view body,
                                               const WriteOptions& options, const CallOptions& call) {
  if (resource.namespaced && ns.empty())
    return absl::InvalidArgumentError(absl::StrCat("creating ", resource.Name(), " takes a namespace"));
  if (options.subresource.empty()) return Call(WriteRequest("POST", CollectionPath(resource, ns), "application/json", body, options), call);
  const ObjectKey key{std::string(ns), options.name};
  FUSIONLLM_RETURN_IF_ERROR(CheckKey(resource, key));
  return Call(WriteRequest("POST", ObjectPath(resource, key, options.subresource), "application/json", body, options), call);
}

absl::StatusOr<std::string> RestClient::Update(const Resource& resource, const ObjectKey& key, absl::string_view body,
                                               const WriteOptions& options, const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(CheckKey(resource, key));
  return Call(WriteRequest("PUT", ObjectPath(resource, key, options.subresource), "application/json", body, options), call);
}

absl::StatusOr<std::string> RestClient::Apply(const Resource& resource, const ObjectKey& key, absl::string_view body,
                                              const ApplyOptions& options, const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(CheckKey(resource, key));
  if (options.field_manager.empty() || options.field_manager.size() > 128) {
    return absl::InvalidArgumentError("server-side apply takes a field manager of 1 to 128 characters");
  }
  return Call(ApplyRequest(resource, key, body, options), call);
}

absl::StatusOr<std::string> RestClient::Patch(const Resource& resource, const ObjectKey& key, PatchType type, absl::string_view body,
                                              const WriteOptions& options, const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(CheckKey(resource, key));
  const char* const media = type == PatchType::kJson ? "application/json-patch+json" : "application/merge-patch+json";
  return Call(WriteRequest("PATCH", ObjectPath(resource, key, options.subresource), media, body, options), call);
}

absl::StatusOr<std::string> RestClient::Delete(const Resource& resource, const ObjectKey& key, const DeleteOptions& options,
                                               const CallOptions& call) {
  FUSIONLLM_RETURN_IF_ERROR(CheckKey(resource, key));
  return Call(DeleteRequest(resource, key, options), call);
}

absl::StatusOr<std::string> RestClient::GetPath(absl::string_view path, const CallOptions& call) {
  return Call({.method = "GET", .target = std::string(path), .headers = {AcceptJson()}}, call);
}

absl::Status RestClient::Watch(const Resource& resource, absl::string_view ns, const WatchOptions& options, WatchSink& sink,
                               std::stop_token stop) {
  const HttpRequest plain = WatchRequest(resource, ns, options);
  // The server ends a watch by itself; one that it forgets ends a little later.
  const StreamLimits limits = {.header_timeout = options.header_timeout, .body_timeout = options.server_timeout + absl::Seconds(5)};
  WatchStream stream(sink);
  for (bool renewed = false;; renewed = true) {
    HttpRequest request = plain;
    FUSIONLLM_RETURN_IF_ERROR(WaitForTurn(request, stop));
    FUSIONLLM_ASSIGN_OR_RETURN(const std::shared_ptr<const Credentials> used, Authorize(request, stop));
    const absl::StatusOr<HttpResponse> response = access_.transport->Stream(request, limits, stream, stop);
    if (metrics_ != nullptr) {
      metrics_->Answered(response.ok() ? absl::StrCat(response->code) : "<error>", "WATCH", access_.server, absl::ZeroDuration());
    }
    if (!response.ok()) return Redacted(response.status(), *used);
    LogWarnings(*response, *used);
    if (response->code / 100 == 2) return absl::OkStatus();
    if (response->code != 401 || renewed) return Refusal(request, *response, *used);
    access_.credentials->Refused(*used);
  }
}

}  // namespace fusionllm::kube
