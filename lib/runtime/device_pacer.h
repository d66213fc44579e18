// Emulates a device that is slower than this machine (contract section 2, computeScale).
//
// An op takes its own uncontended time divided by the scale; what is left of it after the real work is waited out. The uncontended time is
// measured on this machine before training. That takes a fifth of a second, which may fall into a slow moment of the machine, and would
// then slow the device down for the whole run: where an op took less in a few runs since, that counts. Time is kept per pass: an op that
// was late may be caught up by the next ones, and only a pass that ends late counts as an overrun. Work without a measured time (codecs,
// updates) is charged by the thread's CPU time divided by the scale. With scale 1 and no emulation nothing waits. Not thread-safe: used by
// the stage's thread.
#pragma once

#include <array>
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
  // Runs of an op that show what it takes undisturbed: fewer may be a flaw of the clock.
  static constexpr int kMinRuns = 3;
  // What this machine may need between two passes of a device, and for a message at the end of one, without the device being late.
  static constexpr int64_t kBetweenPassesNs = 200'000;

  // Uncontended seconds by key (program op index, see StageExecutor); negative: unknown. With `follow`, an op's time is the lesser of these
  // and of the longest of its kMinRuns shortest runs, as charged: for back ends of one thread, whose CPU time is the op's.
  void SetSeconds(std::vector<double> seconds, bool follow);

  // Starts the device's clock: now, or with `at_once` where the last pass ended, since all that this one needs was there by then. So what
  // this machine did between the two, kBetweenPassesNs of it at most, is not the device's time.
  void BeginPass(bool at_once = false);
  void ChargeOp(int key, int64_t cpu_ns);  // an op has run, using cpu_ns of this thread
  void ChargeCpu(int64_t cpu_ns);          // other work has run
  // Waits until the device would have come this far; returns when a message may leave or the pass ends.
  void CatchUp();
  // Ends the pass: CatchUp, then returns the device's seconds of the pass.
  double EndPass();
  double overrun_seconds() const { return overrun_ns_ * 1e-9; }

 private:
  struct OpSeconds {
    double before = -1;                      // training; negative: unknown
    std::array<int64_t, kMinRuns> least_ns;  // of the runs since, ascending
  };
  // Seconds that the op takes when nothing disturbs it, as far as is known: after a run of cpu_ns.
  double Learn(OpSeconds& op, int64_t cpu_ns) const;

  const double scale_;
  const bool emulate_;
  bool follow_ = false;
  bool wakes_on_time_ = false;
  std::vector<OpSeconds> ops_;
  int64_t pass_begin_ns_ = 0;
  int64_t last_end_ns_ = 0;  // by the device's clock
  double device_ns_ = 0;     // since pass_begin_ns_
  double overrun_ns_ = 0;
};

}  // namespace fusionllm::runtime
