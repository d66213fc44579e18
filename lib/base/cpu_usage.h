// How much of this machine's processors other programs use, for measurements of times here: under their load everything takes longer.
//
// From /proc: what all cores did, less what this process and its children did. Where that cannot be read nothing is known, and no machine
// is called busy. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fusionllm::base {

struct CpuUsage {
  double others = 0;  // cores that other programs used, in the mean; time that a hypervisor gave to others counts, too
  int cores = 1;      // of the machine
  double load = 0;    // of the last minute, ours included; 0: unknown
};

// Whether `use` leaves too little of the machine to somebody who needs `wanted` cores, as many as there are at most.
bool IsBusy(const CpuUsage& use, double wanted);
// "this machine is busy: other programs use 1.6 of its 2 cores (load 7.2); measured times will be longer than planned".
std::string BusySentence(const CpuUsage& use);
// "other programs used 1.6 of this machine's 2 cores".
std::string OthersUsed(const CpuUsage& use);

// Cores that this process may use: fewer than the machine has where it is bound to some, or its container has a limit on processor time.
double AllowedCores(const std::string& cgroup_folder = "/sys/fs/cgroup");

// Measures from Restart() on. Blocks for the reading of a few small files.
class CpuUsageMeter {
 public:
  static constexpr double kMinSeconds = 0.15;  // shorter times say little: the kernel counts in hundredths

  struct Options {
    std::string proc_folder = "/proc";
    std::function<double()> now_s;  // empty: a steady clock
    std::function<double()> own_s;  // of this process and of children that were waited for; empty: the kernel's account
  };
  CpuUsageMeter() : CpuUsageMeter(Options()) {}
  // Begins at once.
  explicit CpuUsageMeter(Options options);

  // `children` still run, or have ended and were not waited for.
  void Restart(std::span<const pid_t> children = {});
  // Of the time since; nothing: it was too short, or cannot be known.
  std::optional<CpuUsage> Read(std::span<const pid_t> children = {}) const;

 private:
  struct Times {
    double wall_s = 0, machine_s = 0, own_s = 0;
    int cores = 0;  // 0: not known
  };
  Times Now(std::span<const pid_t> children) const;

  Options options_;
  Times begin_;
};

}  // namespace fusionllm::base
