// The verbs of the Kubernetes API over HTTP.
//
// What is tried again by itself, at most `max_retries` times: an answer 429 or 5xx with a Retry-After of at most `max_retry_wait`; a GET
// whose connection broke, twice; once anything that was answered 401, with new credentials. All else is the caller's: a write may have been
// carried out although no answer came. Each request waits at a token bucket, and, watches
// apart, until fewer than `max_concurrent_requests` are under way. Warnings of the server go to the log, each text once; the
// audit id of a refusal stands in its ApiError. Tokens stand in no error and no log line, not even where a server sends them back.
//
// Thread-safe. Lives as long as its last call.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "lib/base/mutex.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/auth/cluster_access.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/client/concurrency_limiter.h"
#include "lib/kube/client/request_limiter.h"
#include "lib/kube/client/rest_metrics.h"
#include "lib/kube/client/server_clock.h"
#include "lib/kube/clock.h"
#include "lib/kube/http/transport.h"

namespace fusionllm::kube {

struct RestClientOptions {
  std::string user_agent = "fusionllm";
  double requests_per_second = 200;
  int burst = 400;
  int max_concurrent_requests = 0;  // watches apart; 0: any number
  int max_retries = 10;
  absl::Duration max_retry_wait = absl::Seconds(30);  // of one call, all retries together; beyond it the server's error is the answer
  size_t max_response_bytes = size_t{128} << 20;
  size_t max_list_bytes = size_t{1} << 30;  // of a list that is handed on as it comes
};

// "fusion-operator/1.2.3 (linux/amd64) INSTANCE": who asks, for the server's audit log. `instance` tells one process of the program from
// the next, and from its twin in another Pod, which use the same account; empty: left out.
std::string UserAgent(absl::string_view program, absl::string_view version, absl::string_view instance);

class ListStream;

class RestClient : public ApiClient {
 public:
  // `clock` and `metrics` (which may be null) must outlive it.
  RestClient(ClusterAccess access, RestClientOptions options, Clock& clock, const RestMetrics* metrics = nullptr);

  absl::StatusOr<std::string> Get(const Resource& resource, const ObjectKey& key, const CallOptions& call) override;
  absl::StatusOr<std::string> GetMetadata(const Resource& resource, const ObjectKey& key, const CallOptions& call) override;
  absl::StatusOr<std::string> List(const Resource& resource, absl::string_view ns, const ListOptions& options,
                                   const CallOptions& call) override;
  absl::Status StreamList(const Resource& resource, absl::string_view ns, const ListOptions& options, WatchSink& sink,
                          const CallOptions& call) override;
  absl::StatusOr<std::string> Create(const Resource& resource, absl::string_view ns, absl::string_view body, const WriteOptions& options,
                                     const CallOptions& call) override;
  absl::StatusOr<std::string> Update(const Resource& resource, const ObjectKey& key, absl::string_view body, const WriteOptions& options,
                                     const CallOptions& call) override;
  absl::StatusOr<std::string> Apply(const Resource& resource, const ObjectKey& key, absl::string_view body, const ApplyOptions& options,
                                    const CallOptions& call) override;
  absl::StatusOr<std::string> Patch(const Resource& resource, const ObjectKey& key, PatchType type, absl::string_view body,
                                    const WriteOptions& options, const CallOptions& call) override;
  absl::StatusOr<std::string> Delete(const Resource& resource, const ObjectKey& key, const DeleteOptions& options,
                                     const CallOptions& call) override;
  absl::Status Watch(const Resource& resource, absl::string_view ns, const WatchOptions& options, WatchSink& sink,
                     std::stop_token stop) override;
  absl::StatusOr<std::string> GetPath(absl::string_view path, const CallOptions& call) override;
  std::optional<absl::Duration> ServerClockSkew() const override { return server_clock_.Skew(); }

  // In place of requests_per_second and burst, from now on (RequestLimiter::SetRate).
  void SetRate(double requests_per_second, int burst) { limiter_.SetRate(requests_per_second, burst); }

  const std::string& server() const { return access_.server; }
  const std::string& default_namespace() const { return access_.ns; }

 private:
  // Sends it, again if need be, and turns a refusal into an error. With a sink the body of the answer goes there, and nothing is tried
  // again once that has begun.
  absl::StatusOr<std::string> Call(const HttpRequest& request, const CallOptions& call, ListStream* sink = nullptr);
  // One attempt, with credentials.
  absl::StatusOr<HttpResponse> Attempt(HttpRequest request, const CallOptions& call, ListStream* sink,
                                       std::shared_ptr<const Credentials>& used);
  // How long to wait before trying again; nothing when that is up to the caller.
  struct Tries {
    int retries = 0, broken = 0;
    bool renewed = false;
    absl::Duration waited;
  };
  std::optional<absl::Duration> WaitBefore(const HttpRequest& request, const absl::StatusOr<HttpResponse>& response,
                                           const Credentials* used, Tries& tries) const;
  absl::Status WaitForTurn(const HttpRequest& request, const std::stop_token& stop);
  absl::StatusOr<std::shared_ptr<const Credentials>> Authorize(HttpRequest& request, const std::stop_token& stop);
  void RecordMetrics(const HttpRequest& request, const absl::StatusOr<HttpResponse>& response, absl::Duration time) const;
  absl::Status Refusal(const HttpRequest& request, const HttpResponse& response, const Credentials& used) const;
  void LogWarnings(const HttpResponse& response, const Credentials& used);

  const ClusterAccess access_;
  const RestClientOptions options_;
  Clock& clock_;
  const RestMetrics* const metrics_;
  RequestLimiter limiter_;
  ConcurrencyLimiter concurrency_limiter_;
  ServerClock server_clock_;
  base::Mutex warnings_mutex_;
  std::set<std::string> warnings_ ABSL_GUARDED_BY(warnings_mutex_);  // logged already
};

}  // namespace fusionllm::kube
