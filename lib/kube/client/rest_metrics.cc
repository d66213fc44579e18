#include "lib/kube/client/rest_metrics.h"

namespace fusionllm::kube {
namespace {

metrics::FamilySpec Spec(std::string name, std::string help, std::vector<std::string> labels) {
  return {.name = std::move(name), .help = std::move(help), .labels = std::move(labels), .prefix = "rest_client_"};
}

// Those of client-go, so that its dashboards fit.
std::vector<double> Seconds() { return {0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}; }
std::vector<double> Bytes() { return {64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216}; }

}  // namespace

RestMetrics::RestMetrics(metrics::Registry& registry)
    : requests_(
          registry.AddCounter(Spec("requests_total", "Requests to API servers, by the code of the answer.", {"code", "method", "host"}))),
      retries_(registry.AddCounter(Spec("request_retries_total", "Requests sent again, by the answer before.", {"code", "verb", "host"}))),
      duration_(registry.AddHistogram(Spec("request_duration_seconds", "From sending a request to the whole answer.", {"verb", "host"}),
                                      Seconds())),
      limiter_(registry.AddHistogram(Spec("rate_limiter_duration_seconds", "Waiting for our own limit on requests.", {"verb", "host"}),
                                     Seconds())),
      request_bytes_(registry.AddHistogram(Spec("request_size_bytes", "Bodies of requests.", {"verb", "host"}), Bytes())),
      response_bytes_(registry.AddHistogram(Spec("response_size_bytes", "Bodies of answers, decompressed.", {"verb", "host"}), Bytes())),
      exec_(registry) {}

void RestMetrics::Answered(const std::string& code, const std::string& method, const std::string& host, absl::Duration time) const {
  requests_.Add(1, {code, method, host});
  duration_.Observe(absl::ToDoubleSeconds(time), {method, host});
}

void RestMetrics::Retried(const std::string& code, const std::string& method, const std::string& host) const {
  retries_.Add(1, {code, method, host});
}

void RestMetrics::Limited(const std::string& method, const std::string& host, absl::Duration time) const {
  limiter_.Observe(absl::ToDoubleSeconds(time), {method, host});
}

void RestMetrics::Sizes(const std::string& method, const std::string& host, size_t request_bytes, size_t response_bytes) const {
  request_bytes_.Observe(static_cast<double>(request_bytes), {method, host});
  response_bytes_.Observe(static_cast<double>(response_bytes), {method, host});
}

}  // namespace fusionllm::kube
