#include "lib/runtime/device_pacer.h"

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

void DevicePacer::SetSeconds(std::vector<double> seconds, bool follow) {
  follow_ = follow;
  ops_.assign(seconds.size(), {});
  for (size_t i = 0; i < seconds.size(); ++i) {
    ops_[i].before = seconds[i];
    ops_[i].least_ns.fill(std::numeric_limits<int64_t>::max());
  }
}

double DevicePacer::Learn(OpSeconds& op, int64_t cpu_ns) const {
  if (!follow_) return op.before;
  if (cpu_ns < op.least_ns.back()) {
    op.least_ns.back() = cpu_ns;
    std::sort(op.least_ns.begin(), op.least_ns.end());
  }
  return std::min(op.before, 1e-9 * static_cast<double>(op.least_ns.back()));
}

void DevicePacer::BeginPass(bool at_once) {
  if (emulate_ && !wakes_on_time_) {
    base::WakeOnTime();  // else each wait of a pass adds to it
    wakes_on_time_ = true;
  }
  pass_begin_ns_ = MonotonicNanoseconds();
  if (emulate_ && at_once) pass_begin_ns_ = std::clamp(last_end_ns_, pass_begin_ns_ - kBetweenPassesNs, pass_begin_ns_);
  device_ns_ = 0;
}

void DevicePacer::ChargeOp(int key, int64_t cpu_ns) {
  const bool known = key >= 0 && key < static_cast<int>(ops_.size()) && ops_[key].before >= 0;
  device_ns_ += (known ? Learn(ops_[key], cpu_ns) * 1e9 : static_cast<double>(cpu_ns)) / scale_;
}

void DevicePacer::ChargeCpu(int64_t cpu_ns) { device_ns_ += static_cast<double>(cpu_ns) / scale_; }

void DevicePacer::CatchUp() {
  if (!emulate_) return;
  const int64_t due_ns = pass_begin_ns_ + static_cast<int64_t>(device_ns_);
  const int64_t now_ns = MonotonicNanoseconds();
  if (now_ns < due_ns) {
    SleepUntil(due_ns);
  } else if (now_ns > due_ns + kBetweenPassesNs) {
    // The machine was too busy: the device is late, and stays late by as much.
    overrun_ns_ += static_cast<double>(now_ns - due_ns);
    device_ns_ = static_cast<double>(now_ns - pass_begin_ns_);
  }
}

double DevicePacer::EndPass() {
  CatchUp();
  last_end_ns_ = pass_begin_ns_ + static_cast<int64_t>(device_ns_);
  return emulate_ ? device_ns_ * 1e-9 : static_cast<double>(MonotonicNanoseconds() - pass_begin_ns_) * 1e-9;
}

}  // namespace fusionllm::runtime
