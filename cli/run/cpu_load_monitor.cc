#include "cli/run/cpu_load_monitor.h"

namespace fusionllm::cli {

std::string CpuLoadMonitor::On(LineType type, std::span<const pid_t> processes, report::Run& run) {
  if (wanted_cores_ <= 0) return "";
  if (type == LineType::kPlan && !planned_) {
    planned_ = true;
    const std::optional<base::CpuUsage> use = Read(processes);
    return use && base::IsBusy(*use, wanted_cores_) ? base::BusySentence(*use) : "";
  }
  if (type == LineType::kStep && !stepping_) {
    stepping_ = true;
    meter_.Restart(processes);
  }
  if (type == LineType::kSummary && stepping_) {
    run.processors = Read(processes);
    run.machine_was_busy = run.processors && base::IsBusy(*run.processors, wanted_cores_);
  }
  return "";
}

}  // namespace fusionllm::cli
