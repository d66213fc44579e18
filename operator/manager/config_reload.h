// Follows the file of --config while the operator runs.
//
// It is read every few seconds and compared with what was read before: in a Pod it is a ConfigMap's, and the kubelet brings a new one by
// exchanging a link somewhere on its path, which a watch of the file itself does not see. Who does not want to wait says so by
// SIGHUP, and gets again what is wrong, or waits. What may change under a running operator (config_fields.h) holds at once; what else has
// changed is logged by name, as waiting for a restart. A file that has become wrong, or is gone, is logged once, and what was in force
// stays so.
#pragma once

#include <condition_variable>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/kube/clock.h"
#include "lib/metrics/registry.h"
#include "operator/manager/config_file.h"

namespace fusionllm::op::manager {

// Under the names that Prometheus gives to its own.
class ConfigMetrics {
 public:
  explicit ConfigMetrics(metrics::Registry& registry);
  void Read(bool well, absl::Time now) const;

 private:
  metrics::Gauge successful_, success_time_;
};

// "workers", "watchNamespaces": the settings in which the two differ, under their names in the file, in the order of its table.
std::vector<std::string> Differences(const Flags& one, const Flags& other);

// Not thread-safe, but for its own thread.
class ConfigReload {
 public:
  static constexpr absl::Duration kEvery = absl::Seconds(5);

  // Makes `flags` hold; they differ from those in force only in what may change.
  using Apply = std::function<void(const Flags& flags)>;

  // `flags`: in force, with the file as it was at the start. All but they must outlive it.
  ConfigReload(Flags flags, const CommandLine& line, Apply apply, kube::Clock& clock, const ConfigMetrics& metrics);

  // Looks at the file now. `force`: as if it had changed. Not after Start().
  void Look(bool force = false);
  // Looks every kEvery from now on, until it is destroyed.
  void Start();
  // Has it looked at now, again, once it is started; does not block. Thread-safe.
  void LookSoon();

 private:
  void Follow(const std::stop_token& stop);
  void Take(const Flags& now);

  Flags in_force_;
  const CommandLine line_;
  const Apply apply_;
  kube::Clock& clock_;
  const ConfigMetrics& metrics_;
  std::string seen_;  // the file's text, or why there is none
  bool wrong_ = false;
  base::Mutex mutex_;
  std::condition_variable changed_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // to look now
  std::jthread thread_;
};

}  // namespace fusionllm::op::manager
