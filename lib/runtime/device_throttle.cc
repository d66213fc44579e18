#include "lib/runtime/device_throttle.h"

#include <ctime>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "lib/base/timer_slack.h"

namespace fusionllm::runtime {
namespace {

int64_t Now(clockid_t clock) {
  timespec t = {};
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void SleepUntil(int64_t deadline_ns) {
  const timespec t = {.tv_sec = deadline_ns / 1'000'000'000, .tv_nsec = deadline_ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}

}  // namespace

int64_t MonotonicNanoseconds() { return Now(CLOCK_MONOTONIC); }
int64_t ThreadCpuNanoseconds() { return Now(CLOCK_THREAD_CPUTIME_ID); }

void DeviceThrottle::SetSeconds(std::vector<double> seconds, bool follow) {
  follow_ = follow;
  ops_.assign(seconds.size(), {});
  for (size_t i = 0; i < seconds.size(); ++i) {
    ops_[i].measured_s = seconds[i];
    ops_[i].shortest_ns.fill(std::numeric_limits<int64_t>::max());
  }
}

double DeviceThrottle::SecondsOf(const OpSeconds& op) const {
  return follow_ ? std::min(op.measured_s, 1e-9 * static_cast<double>(op.shortest_ns.back())) : op.measured_s;
}

void DeviceThrottle::BeginPass(bool at_once) {
  if (emulate_ && !slack_is_minimal_) {
    base::SetMinimalTimerSlack();  // else each wait of a pass adds to it
    slack_is_minimal_ = true;
  }
  pass_begin_ns_ = MonotonicNanoseconds();
  device_ns_ = 0;
  if (!emulate_) return;
  if (at_once && last_end_ns_ > 0) {
    const int64_t now_ns = pass_begin_ns_;
    pass_begin_ns_ = std::clamp(last_end_ns_, now_ns - kPassSlackNs, now_ns);
    late_ns_ = pass_begin_ns_ - last_end_ns_;  // what is not made up for
  }
  lateness_ns_ += static_cast<double>(late_ns_);
  late_ns_ = 0;
}

void DeviceThrottle::ChargeOp(int key, int64_t cpu_ns, bool learn) {
  const bool known = key >= 0 && key < static_cast<int>(ops_.size()) && ops_[key].measured_s >= 0;
  if (!known) {
    ChargeCpu(cpu_ns);
    return;
  }
  OpSeconds& op = ops_[key];
  if (learn && cpu_ns < op.shortest_ns.back()) {
    op.shortest_ns.back() = cpu_ns;
    std::sort(op.shortest_ns.begin(), op.shortest_ns.end());
  }
  device_ns_ += SecondsOf(op) * 1e9 / scale_;
}

void DeviceThrottle::ChargeCpu(int64_t cpu_ns) { device_ns_ += static_cast<double>(cpu_ns) / scale_; }

void DeviceThrottle::CatchUp() {
  if (!emulate_) return;
  const int64_t due_ns = pass_begin_ns_ + static_cast<int64_t>(device_ns_);
  const int64_t now_ns = MonotonicNanoseconds();
  if (now_ns < due_ns) {
    SleepUntil(due_ns);
  } else if (now_ns > due_ns + kPassSlackNs) {
    // The machine was too busy: the device is late, and stays late by as much.
    lateness_ns_ += static_cast<double>(now_ns - due_ns);
    device_ns_ = static_cast<double>(now_ns - pass_begin_ns_);
  }
}

double DeviceThrottle::EndPass() {
  CatchUp();
  const int64_t now_ns = MonotonicNanoseconds();
  if (!emulate_) return static_cast<double>(now_ns - pass_begin_ns_) * 1e-9;
  last_end_ns_ = pass_begin_ns_ + static_cast<int64_t>(device_ns_);
  late_ns_ = std::max<int64_t>(0, now_ns - last_end_ns_);
  return device_ns_ * 1e-9;
}

}  // namespace fusionllm::runtime
