// The processes of one run: scheduler, broker and executors, started, watched and ended as one.
//
// Order: the scheduler prints where it listens, then the broker is started and prints where it listens, then the executors are started and
// dial it. What the broker prints from then on is the run. A broker or scheduler that is killed by a signal is started again in its old
// place (at most kMaxRestarts times each); an executor is not: the broker makes do with those that are left. When the broker exits,
// everybody else is ended and reaped. Nothing outlives Run(), nor this process (child_process.h).
//
// A first request to stop (Ctrl-C) is passed to the broker, which ends at a step boundary; when that takes long it is said once more what
// is waited for. A second request kills at once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/run/cpu_load_monitor.h"
#include "cli/run/run_recorder.h"
#include "cli/run/signal_watch.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/report/run_record.h"

namespace fusionllm::cli {

inline constexpr int kMaxRestarts = 10;

using base::kExitBadInput;
using base::kExitDone;
using base::kExitFailed;
using base::kExitInfeasible;
using base::kExitInterrupted;

struct LocalExecutor {
  std::string name;
  bool spare = false;
  std::string device;  // that computes, as executors take it; empty: their default
  std::string site;    // empty: as the topology says, or one of its own
  bool allow_nondeterminism = false;
};

struct SessionOptions {
  // Commands: the program and arguments that go before those of the protocol.
  std::vector<std::string> scheduler, broker, executor;
  std::string output;                          // absolute folder that exists, with logs/ and security/
  std::string base;                            // folder that paths of the job are relative to
  bool topology = false;                       // OUTPUT/topology.yaml is there
  std::vector<LocalExecutor> executors;        // started here
  std::optional<std::string> listen;           // address for executors of other machines; `executors` then holds those that have the data
  int64_t min_executors = 0;                   // with listen: how many in all to wait for
  std::optional<std::string> profiles;         // saved calibration
  std::optional<double> join_timeout_seconds;  // how long the broker waits for executors
  bool fresh = false;                          // ignore checkpoints
  std::optional<std::string> log_level;        // of all of them; absent: their own default
  std::optional<std::string> metrics_address;  // of the broker; absent: its own default
  std::optional<double> stop_after_s;          // ask for an end this long after the first step
  double wanted_cores = 0;                 // of this machine, for the executors here to be as fast as planned; 0: its load is not watched
  CpuLoadMonitor::ReadFunction cpu_usage;  // empty: measured
  double start_limit_s = 120;              // for a program to say where it listens
  double stop_reminder_s = 2;              // after a request to stop, for what is waited for to be said again
  double termination_grace_s = 5;          // from SIGTERM to SIGKILL
  double other_ends_s = 0.25;              // after a broker was killed, for ends of executors that were killed with it to be seen
  double broker_exit_timeout_s = 30;       // for the broker to end by itself when all executors have, and no others can come
};

// Called with what happens while it happens, on the thread of Run().
class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  // A JSON line of the broker, already part of `run`. False: the output is not read any more, the run is to stop.
  virtual bool OnLine(LineType type, absl::string_view line, const report::Run& run) = 0;
  // Something to tell the user that no JSON line says; a sentence.
  virtual void OnNotice(absl::string_view sentence) = 0;
  // What only somebody who asked for it wants to read: processes started, where they are watched.
  virtual void OnLog(base::LogLevel level, absl::string_view sentence) = 0;
  // The broker listens; executors of other machines may dial it.
  virtual void OnListening(absl::string_view address) = 0;
};

struct SessionResult {
  int exit_code = kExitDone;
  // Stopped by stop_after_s, not by a request from outside: exit_code is then kExitDone.
  bool time_limit_reached = false;
  std::string error;   // a sentence when exit_code is 1 or 3
  std::string reason;  // CamelCase, where the broker gave one with it
};

// Runs to the end and blocks meanwhile; fills `run`. Call on the main thread. An error status: something of ours could not be started or
// watched; everything that was started has been ended then.
absl::StatusOr<SessionResult> RunSession(const SessionOptions& options, SignalWatch& signals, SessionObserver& observer, report::Run& run);

}  // namespace fusionllm::cli
