#include "lib/runtime/device_pacer.h"

#include <ctime>

#include <algorithm>
#include <cerrno>

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
  for (size_t i = 0; i < seconds.size(); ++i) ops_[i].before = seconds[i];
}

double DevicePacer::Learn(OpSeconds& op, int64_t cpu_ns) const {
  if (!follow_) return op.before;
  op.running_ns.push_back(cpu_ns);
  if (op.running_ns.size() == kLately) {
    const auto undisturbed = op.running_ns.begin() + kLately / 8;
    std::nth_element(op.running_ns.begin(), undisturbed, op.running_ns.end());
    op.lately = static_cast<double>(*undisturbed) * 1e-9;
    op.running_ns.clear();
  }
  return op.lately < 0 ? op.before : std::min(op.before, op.lately);
}

void DevicePacer::BeginPass() {
  pass_begin_ns_ = MonotonicNanoseconds();
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
  } else {
    // The machine was too busy: the device is late, and stays late by as much.
    overrun_ns_ += static_cast<double>(now_ns - due_ns);
    device_ns_ = static_cast<double>(now_ns - pass_begin_ns_);
  }
}

double DevicePacer::EndPass() {
  CatchUp();
  return emulate_ ? device_ns_ * 1e-9 : static_cast<double>(MonotonicNanoseconds() - pass_begin_ns_) * 1e-9;
}

}  // namespace fusionllm::runtime
