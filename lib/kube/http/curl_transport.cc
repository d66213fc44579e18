#include "lib/kube/http/curl_transport.h"

#include <curl/curl.h>

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/http/curl_call.h"

namespace fusionllm::kube {
namespace {

absl::Duration TransportTime() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

// libcurl wants this once, before other threads use it.
bool StartCurl() {
  static const bool started = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return started;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CurlTransport>> CurlTransport::Make(CurlTransportOptions options) {
  if (!StartCurl()) return absl::InternalError("libcurl does not start");
  FUSIONLLM_ASSIGN_OR_RETURN(ServerUrl server, ParseServerUrl(options.server));
  if (!options.proxy_url.empty()) FUSIONLLM_RETURN_IF_ERROR(CheckProxyUrl(options.proxy_url));
  return std::unique_ptr<CurlTransport>(new CurlTransport(std::move(options), std::move(server)));
}

CurlTransport::CurlTransport(CurlTransportOptions options, ServerUrl server) : options_(std::move(options)), server_(std::move(server)) {}

CurlTransport::~CurlTransport() = default;

absl::StatusOr<std::shared_ptr<const TlsMaterial>> CurlTransport::Material() const {
  static const auto* const kNone = new std::shared_ptr<const TlsMaterial>(std::make_shared<TlsMaterial>());
  if (!options_.tls) return *kNone;
  return options_.tls();
}

absl::StatusOr<std::unique_ptr<CurlHandle>> CurlTransport::Take(std::shared_ptr<const TlsMaterial> material, absl::Duration longest) {
  std::vector<std::unique_ptr<CurlHandle>> outdated;  // closed after the lock is given up
  {
    const base::MutexLock lock(mutex_);
    while (!idle_.empty() && TransportTime() - idle_.back().since < longest) {
      std::unique_ptr<CurlHandle> handle = std::move(idle_.back().handle);
      idle_.pop_back();
      if (handle->material() == material || *handle->material() == *material) return handle;
      outdated.push_back(std::move(handle));
    }
  }
  std::unique_ptr<CurlHandle> handle = CurlHandle::Make(std::move(material));
  if (handle == nullptr) return absl::ResourceExhaustedError("out of memory for a connection");
  return handle;
}

void CurlTransport::GiveBack(std::unique_ptr<CurlHandle> handle) {
  const base::MutexLock lock(mutex_);
  if (idle_.size() < options_.max_idle_connections) idle_.push_back({std::move(handle), TransportTime()});
}

absl::StatusOr<HttpResponse> CurlTransport::Send(const HttpRequest& request, const UnaryLimits& limits, std::stop_token stop) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::shared_ptr<const TlsMaterial> material, Material());
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<CurlHandle> handle, Take(std::move(material), absl::InfiniteDuration()));
  const CallLimits call_limits = {.total_timeout = limits.timeout, .max_body_bytes = limits.max_response_bytes};
  absl::StatusOr<HttpResponse> response = CurlCall(*handle, options_, server_, request, call_limits, nullptr).Run(stop);
  // A connection in an unknown state is closed, not kept.
  if (response.ok()) GiveBack(std::move(handle));
  return response;
}

absl::StatusOr<HttpResponse> CurlTransport::Stream(const HttpRequest& request, const StreamLimits& limits, StreamSink& sink,
                                                   std::stop_token stop) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::shared_ptr<const TlsMaterial> material, Material());
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<CurlHandle> handle, Take(std::move(material), options_.fresh_for));
  const CallLimits call_limits = {.header_timeout = limits.header_timeout,
                                  .body_timeout = limits.body_timeout,
                                  .max_body_bytes = limits.max_error_bytes,
                                  .compressed = limits.compressed};
  absl::StatusOr<HttpResponse> response = CurlCall(*handle, options_, server_, request, call_limits, &sink).Run(stop);
  if (response.ok()) GiveBack(std::move(handle));
  return response;
}

}  // namespace fusionllm::kube
