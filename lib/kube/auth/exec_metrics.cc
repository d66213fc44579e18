#include "lib/kube/auth/exec_metrics.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"

namespace fusionllm::kube {
namespace {

constexpr char kPrefix[] = "rest_client_";
constexpr char kNoError[] = "no_error", kExecutionError[] = "plugin_execution_error", kNotFoundError[] = "plugin_not_found_error",
               kInternalError[] = "client_internal_error";

}  // namespace

struct ExecMetrics::Certificates {
  struct Expiry {
    absl::Time when;
    Clock* clock;
  };
  base::Mutex mutex;
  std::map<const void*, Expiry> of_sources ABSL_GUARDED_BY(mutex);

  double ShortestLife() {
    const base::MutexLock lock(mutex);
    double seconds = std::numeric_limits<double>::infinity();
    for (const auto& [source, expiry] : of_sources) seconds = std::min(seconds, absl::ToDoubleSeconds(expiry.when - expiry.clock->Now()));
    return seconds;
  }
};

ExecMetrics::ExecMetrics(metrics::Registry& registry)
    : calls_(
          registry.AddCounter({.name = "exec_plugin_call_total",
                               .help = "Runs of programs that print credentials, by their exit code (1 where there was none, -1 after a "
                                       "signal) and by no_error, plugin_execution_error, plugin_not_found_error or client_internal_error.",
                               .labels = {"code", "call_status"},
                               .prefix = kPrefix})),
      certificates_(std::make_shared<Certificates>()) {
  // Counted from zero: the first failure is a rise that can be seen.
  calls_.Add(0, {"0", kNoError});
  calls_.Add(0, {"1", kExecutionError});
  calls_.Add(0, {"1", kNotFoundError});
  calls_.Add(0, {"1", kInternalError});
  const metrics::Gauge life =
      registry.AddGauge({.name = "exec_plugin_ttl_seconds",
                         .help = "Until the first of the client certificates that such programs have printed expires, negative if it has; "
                                 "+Inf: none of them is in use.",
                         .prefix = kPrefix});
  registry.OnCollect([life, certificates = certificates_] { life.Set(certificates->ShortestLife()); });
}

void ExecMetrics::Ran(const absl::Status& end, const ProgramReport& report) const {
  if (report.exit_code.has_value()) {
    calls_.Add(1, {absl::StrCat(*report.exit_code), *report.exit_code == 0 ? kNoError : kExecutionError});
  } else {
    calls_.Add(1, {"1", absl::IsNotFound(end) ? kNotFoundError : kInternalError});
  }
}

void ExecMetrics::Expires(const void* source, absl::Time when, Clock& clock) const {
  const base::MutexLock lock(certificates_->mutex);
  certificates_->of_sources.insert_or_assign(source, Certificates::Expiry{when, &clock});
}

void ExecMetrics::Forget(const void* source) const {
  const base::MutexLock lock(certificates_->mutex);
  certificates_->of_sources.erase(source);
}

}  // namespace fusionllm::kube
