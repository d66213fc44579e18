// A Prometheus of one test: on a free port of this machine, with its data in a temporary folder.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lib/base/testing/temp_folder.h"
#include "lib/kube/http/transport.h"
#include "tests/monitoring/child.h"

namespace fusionllm::monitoring {

// Their paths; empty: not installed. FUSIONLLM_PROMETHEUS and FUSIONLLM_PROMTOOL name others than those of the PATH.
std::string FindPrometheus();
std::string FindPromtool();
// Whether this run may not do without, as FUSIONLLM_REQUIRE_PROMETHEUS says, which .ci/run sets.
bool PrometheusIsRequired();

class Prometheus {
 public:
  // `config`: its configuration file. Ready when made, or the test fails.
  explicit Prometheus(const std::string& config);

  // "data" of the answer to GET /api/v1/PATH. A test failure, and null, when that is an error.
  nlohmann::json Get(const std::string& path);
  // The samples of an instant query: {"metric": {...}, "value": [time, "1"]}.
  nlohmann::json Query(const std::string& expression);
  // What label_values(selector, label) gives in a dashboard.
  std::vector<std::string> LabelValues(const std::string& selector, const std::string& label);
  std::string Log() { return child_->Output(); }

 private:
  base::TempFolder folder_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<kube::Transport> transport_;
};

}  // namespace fusionllm::monitoring
