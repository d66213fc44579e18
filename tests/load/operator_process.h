// The real fusion-operator as a child process, and what it costs. Ends it with SIGKILL if it was not ended otherwise.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace fusionllm::load {

struct Usage {
  double cpu_s = 0;
  double resident_mib = 0, peak_mib = 0;
};

// By the clock that is not set.
absl::Duration Now();

// Says why on stderr, and ends this process with 1.
[[noreturn]] void Die(const std::string& why);

class OperatorProcess {
 public:
  // The program lies in $FUSIONLLM_BIN_DIR; its log is appended to `log`. Returns once it has said where its metrics are.
  OperatorProcess(std::vector<std::string> arguments, const std::string& log);
  OperatorProcess(const OperatorProcess&) = delete;
  OperatorProcess& operator=(const OperatorProcess&) = delete;
  ~OperatorProcess();

  // From its start until /readyz said so; ends the program when that takes a minute.
  absl::Duration WaitReady() const;
  void Signal(int signal) const;
  pid_t pid() const { return pid_; }
  // Waits for its end: exit code, or 128 and the signal.
  int Wait();
  Usage MeasureUsage() const;
  std::string Metrics() const;
  // The HTTP code with which it answers for `page`, "/healthz" say; 0: it does not.
  int CodeOf(const std::string& page) const;

 private:
  pid_t pid_ = -1;
  FILE* out_ = nullptr;
  std::string address_;
  absl::Duration started_;
};

// The value below which `share` of the observations of a Prometheus histogram lie, over all series whose `label` begins with `prefix`;
// linear within a bucket. Zero without observations.
double HistogramQuantile(const std::string& metrics, const std::string& name, const std::string& label, const std::string& prefix,
                         double share);

}  // namespace fusionllm::load
