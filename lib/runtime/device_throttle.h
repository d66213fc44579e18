// Emulates a device that is slower than this machine (computeScale of a topology; docs/design/cost-model.md, "Emulated devices").
//
// An op takes its own uncontended time divided by the scale; what is left of it after the real work is waited out. The uncontended time is
// measured on this machine before training. That takes 0.2 s and may fall into a slow moment of the machine: if kMinRuns later runs took
// less, their time counts instead. Time is kept per pass: an op that was late may be caught up by the next ones, and only a pass that ends
// more than kPassSlackNs late, or late before the device waits, counts as an overrun. Work without a measured time (codecs,
// updates) is charged by the thread's CPU time divided by the scale. With scale 1 and no emulation nothing waits. Not thread-safe: used by
// the stage's thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace fusionllm::runtime {

int64_t MonotonicNanoseconds();
int64_t ThreadCpuNanoseconds();

class DeviceThrottle {
 public:
  // scale in (0, 1]; `emulate` false: real time, only accounting.
  explicit DeviceThrottle(double scale = 1, bool emulate = false) : scale_(scale), emulate_(emulate) {}

  bool emulate() const { return emulate_; }
  // Runs of an op that show what it takes undisturbed: one or two short readings may be clock errors.
  static constexpr int kMinRuns = 3;
  // What this machine may need between two passes of a device, and for a message at the end of one, without the device being late.
  static constexpr int64_t kPassSlackNs = 200'000;

  // Uncontended seconds by key (program op index, see StageExecutor); negative: unknown. With `follow`, an op's time is the lesser of these
  // and of the longest of its kMinRuns shortest runs, as charged: for back ends of one thread, whose CPU time is the op's.
  void SetSeconds(std::vector<double> seconds, bool follow);

  // Starts the device's clock: now, or with `at_once` where the last pass ended, kPassSlackNs ago at most: what this machine did in
  // between is not the device's time. For passes whose messages were there when the stage looked, which may be so much later, too.
  void BeginPass(bool at_once = false);
  // An op has run, using cpu_ns of this thread. `learn`: as it was measured, so that this run counts among its shortest.
  void ChargeOp(int key, int64_t cpu_ns, bool learn = true);
  void ChargeCpu(int64_t cpu_ns);  // other work has run
  // Waits until the device would have come this far; returns when a message may leave or the pass ends.
  void CatchUp();
  // Ends the pass: CatchUp, then returns the device's seconds of the pass.
  double EndPass();
  double lateness_seconds() const { return lateness_ns_ * 1e-9; }

 private:
  struct OpSeconds {
    double measured_s = -1;                     // before training; negative: unknown
    std::array<int64_t, kMinRuns> shortest_ns;  // of the runs since, ascending
  };
  // Seconds that the op takes when nothing disturbs it, as far as is known.
  double SecondsOf(const OpSeconds& op) const;

  const double scale_;
  const bool emulate_;
  bool follow_ = false;
  bool slack_is_minimal_ = false;  // of the stage's thread, which alone calls this
  std::vector<OpSeconds> ops_;
  int64_t pass_begin_ns_ = 0;
  int64_t last_end_ns_ = 0;  // by the device's clock; 0: no pass yet
  int64_t late_ns_ = 0;      // that this machine was behind it then, and that is not counted
  double device_ns_ = 0;     // since pass_begin_ns_
  double lateness_ns_ = 0;
};

}  // namespace fusionllm::runtime
