// Emulates a device that is slower than this machine (contract section 2, computeScale).
//
// An op takes its own uncontended time divided by the scale; what is left of it after the real work is waited out. The uncontended time is
// measured on this machine before training. That takes a fifth of a second, which may fall into a slow moment of the machine, and would
// then slow the device down for the whole run: where an op lately took less, its lesser time counts. Time is kept per pass: an op that was
// late may be caught up by the next ones, and only a pass that ends late counts as an overrun. Work without a measured time (codecs,
// updates) is charged by the thread's CPU time divided by the scale. With scale 1 and no emulation nothing waits. Not thread-safe: used by
// the stage's thread.
#pragma once

#include <cstdint>
#include <vector>

namespace fusionllm::runtime {

int64_t MonotonicNanoseconds();
int64_t ThreadCpuNanoseconds();

class DevicePacer {
 public:
  // scale in (0, 1]; `emulate` false: real time, only accounting.
  explicit DevicePacer(double scale = 1, bool emulate = false) : scale_(scale), emulate_(emulate) {}

  bool emulate() const { return emulate_; }
  // Runs of an op of which all but an eighth took longer than what it lately took undisturbed.
  static constexpr int kLately = 32;

  // Uncontended seconds by key (program op index, see StageExecutor); negative: unknown. With `follow`, an op's time is the lesser of these
  // and of what its last whole kLately runs took undisturbed, as charged: for back ends of one thread, whose CPU time is the op's.
  void SetSeconds(std::vector<double> seconds, bool follow);

  void BeginPass();                        // starts the device's clock now
  void ChargeOp(int key, int64_t cpu_ns);  // an op has run, using cpu_ns of this thread
  void ChargeCpu(int64_t cpu_ns);          // other work has run
  // Waits until the device would have come this far; returns when a message may leave or the pass ends.
  void CatchUp();
  // Ends the pass: CatchUp, then returns the device's seconds of the pass.
  double EndPass();
  double overrun_seconds() const { return overrun_ns_ * 1e-9; }

 private:
  struct OpSeconds {
    double before = -1;               // training; negative: unknown
    double lately = -1;               // negative: fewer than kLately runs so far
    std::vector<int64_t> running_ns;  // since then
  };
  // Seconds that the op takes when nothing disturbs it, as far as is known: after a run of cpu_ns.
  double Learn(OpSeconds& op, int64_t cpu_ns) const;

  const double scale_;
  const bool emulate_;
  bool follow_ = false;
  std::vector<OpSeconds> ops_;
  int64_t pass_begin_ns_ = 0;
  double device_ns_ = 0;  // since pass_begin_ns_
  double overrun_ns_ = 0;
};

}  // namespace fusionllm::runtime
