// What runs of programs that print credentials tell, under the names that dashboards of Kubernetes controllers know
// (rest_client_exec_plugin_*) and with client-go's values. One for a process. Thread-safe; its registry must outlive it, and it all
// clients.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "lib/kube/auth/child_program.h"
#include "lib/kube/clock.h"
#include "lib/metrics/registry.h"

namespace fusionllm::kube {

class ExecMetrics {
 public:
  explicit ExecMetrics(metrics::Registry& registry);

  // A run has come to its end, whatever became of it; not one that was stopped.
  void Ran(const absl::Status& end, const ProgramReport& report) const;
  // Until when the client certificate that `source` has now is good, by `clock`; InfiniteFuture: it has none. Both must be there until
  // Forget().
  void Expires(const void* source, absl::Time when, Clock& clock) const;
  void Forget(const void* source) const;

 private:
  struct Certificates;

  metrics::Counter calls_;
  std::shared_ptr<Certificates> certificates_;  // read by scrapes, which may come when this is gone
};

}  // namespace fusionllm::kube
