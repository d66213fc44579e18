// What clients of API servers tell, under the names that dashboards of Kubernetes controllers know (rest_client_*). One for a process;
// servers are distinguished by their host and port. Thread-safe; its registry must outlive it.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "lib/kube/auth/exec_metrics.h"
#include "lib/metrics/registry.h"

namespace fusionllm::kube {

class RestMetrics {
 public:
  explicit RestMetrics(metrics::Registry& registry);

  // `code`: of HTTP, or "<error>" when there was no answer.
  void Answered(const std::string& code, const std::string& method, const std::string& host, absl::Duration time) const;
  void Retried(const std::string& code, const std::string& method, const std::string& host) const;
  void Limited(const std::string& method, const std::string& host, absl::Duration time) const;
  void Sizes(const std::string& method, const std::string& host, size_t request_bytes, size_t response_bytes) const;

  // Of the programs that make clients' credentials.
  const ExecMetrics& exec() const { return exec_; }

 private:
  metrics::Counter requests_, retries_;
  metrics::Histogram duration_, limiter_, request_bytes_, response_bytes_;
  ExecMetrics exec_;
};

}  // namespace fusionllm::kube
