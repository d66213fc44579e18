// Watches what other programs take of this machine's processors while a run measures its devices and while it makes steps.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <span>

#include "cli/run/run_recorder.h"
#include "lib/base/cpu_usage.h"
#include "lib/report/run_record.h"

namespace fusionllm::cli {

class CpuLoadMonitor {
 public:
  using ReadFunction = std::function<std::optional<base::CpuUsage>()>;
  // `wanted_cores`: that the run needs for its speed; 0: nothing is watched. `read`: of the time since the last mark; empty: measured.
  CpuLoadMonitor(double wanted_cores, ReadFunction read) : wanted_cores_(wanted_cores), read_(std::move(read)) {}

  // A line of the run, already part of `run`; `processes` are its own. Notes in `run` what the steps had beside them. Answers a sentence
  // for the user at the first plan, if the machine was busy until then; else nothing.
  std::string On(LineType type, std::span<const pid_t> processes, report::Run& run);

 private:
  std::optional<base::CpuUsage> Read(std::span<const pid_t> processes) const { return read_ ? read_() : meter_.Read(processes); }

  const double wanted_cores_;
  const ReadFunction read_;
  base::CpuUsageMeter meter_;
  bool planned_ = false, stepping_ = false;
};

}  // namespace fusionllm::cli
