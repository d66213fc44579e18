// What the operator's image does for the chart beside being the operator: a command, done once. See stop_jobs.h and dry_run_job.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"

namespace CLI {
class App;
}

namespace fusionllm::op::manager {

struct HookFlags {
  std::string stop_jobs;  // "suspend", "delete"; empty: not asked for
  int stop_timeout_s = 240;
  std::string dry_run_job;  // namespace; empty: not asked for
};

void AddHookFlags(CLI::App& app, HookFlags& flags);

// The exit code of what was asked for; nothing: nothing was. `namespaces`: whose jobs are the operator's; empty: all. After
// daemon::BlockStopSignals(); blocks until done or asked to stop.
std::optional<int> RunHook(const HookFlags& flags, const std::vector<std::string>& namespaces, kube::ApiClient& hub, kube::Clock& clock);

}  // namespace fusionllm::op::manager
